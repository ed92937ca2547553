"""Typed configuration: Hydra groups and overrides in, one plain dataclass out.

>>> from twinax import conf
>>> config = conf.compose(["env=grid", "objective=db", "trainer.steps=10"])
>>> config.trainer.steps, config.env.side, config.objective.name
(10, 3, 'detailed_balance')
>>> problem = conf.build_problem(config)
"""

from collections.abc import Callable

from twinax.conf._compose import compose, documented, opened_experiment, restore, restore_run, split_commas
from twinax.conf._keys import documentation, known_keys
from twinax.conf._mirror import make_options, mirror, open_section, sections_of
from twinax.conf._python_runs import stored_options
from twinax.conf._registry import DEFAULT, PLAYED, Experiment, Group, Preset, experiment_names, find_experiment
from twinax.conf._sections import BatchSection, Root, as_dict, at_least, count_steps, train_options

__all__ = [
    "DEFAULT",
    "PLAYED",
    "BatchSection",
    "Experiment",
    "Group",
    "Preset",
    "Root",
    "as_dict",
    "at_least",
    "build_problem",
    "build_untrained",
    "compose",
    "documentation",
    "documented",
    "experiment_names",
    "find_experiment",
    "known_keys",
    "make_options",
    "mirror",
    "open_section",
    "opened_experiment",
    "restore",
    "restore_run",
    "sections_of",
    "split_commas",
    "stored_options",
    "train_options",
]


def build_problem(config: Root):
    """The problem that a configuration describes, built by its experiment's own file.

    trainer.env_steps is written into the configuration as trainer.steps: what it is depends on the problem.
    """
    build = find_experiment(config.experiment).build
    if config.trainer.env_steps is not None:
        count_steps(config, build(config))  # and once more: a problem may read how long it is trained
    return build(config)


def build_untrained(config: Root, tell: Callable[[str], None] | None = None):
    """The problem for a policy that is only used: files and settings that training alone needs may be missing.

    `tell` gets a sentence for each metric that is left out for that; without it only the policy is wanted, and metrics
    that need more than the world are not prepared.
    """
    experiment = find_experiment(config.experiment)
    return experiment.build(config) if experiment.untrained is None else experiment.untrained(config, tell)
