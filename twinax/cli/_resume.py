"""Go on with a run from its newest whole checkpoint; settings such as trainer.mode may change.

The run may have been started by `twinax train` or in Python, as long as its files say how its problem was made."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinax.cli import _settings, _train
from twinax.errors import TwinaxError

if TYPE_CHECKING:
    from twinax.problem import Problem
    from twinax.train_options import TrainOptions

HELP = "go on with a run, also in another mode"

_FIXED = ("seed", "seeds", "run.dir", "experiment")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    _settings.add_trust(parser)
    _settings.add_overrides(parser)


def run(arguments: Namespace) -> int:
    from twinax import runs
    from twinax.engines import is_leader

    for override in arguments.overrides:
        if override.partition("=")[0] in _FIXED:
            raise TwinaxError(f"'{override}' cannot change in an existing run: start a new one with `twinax train`")
    directory = runs.RunDirectory(Path(arguments.run))
    directory.must_exist()
    build = _configured if directory.is_composed else _written_in_python
    problem, options, config, sentence = build(directory, arguments.overrides, arguments.trust)
    leads, changed = is_leader(), options.as_dict()
    changed.pop("seed")

    def announce(facts: Any) -> None:
        _train.print_start(sentence, options, directory.path, problem.present.unit, facts)

    result = runs.resume(
        directory.path,
        problem,
        progress=False if arguments.quiet or not leads else None,
        config=config,
        announce=announce if leads else None,
        writes=leads,
        **changed,
    )
    if leads:
        _train.print_end(result.summary, directory.path)
    return 0


Built = tuple["Problem", "TrainOptions", dict[str, Any] | None, str]
"""A run's problem, how it goes on, its configuration, and the problem in one line."""


def _configured(directory: Any, overrides: Sequence[str], trust: bool) -> Built:
    """Of a run that was composed from settings: all of these may change."""
    from twinax import conf
    from twinax.engines import provide_devices

    config = conf.restore_run(directory.path, overrides, trust)
    config.run.dir = str(directory.path)
    devices = provide_devices(config.trainer.devices)
    problem = conf.build_problem(config)
    return problem, conf.train_options(config, devices=devices), conf.as_dict(config), _settings.sentence(config)


def _written_in_python(directory: Any, overrides: Sequence[str], trust: bool) -> Built:
    """Of a run whose problem is as a call in Python made it."""
    from twinax import conf
    from twinax.engines import provide_devices

    options = conf.stored_options(directory.path, overrides)
    options = dataclasses.replace(options, devices=provide_devices(options.devices))
    problem = directory.read_problem(trust, use="resume")
    unit = problem.present.unit
    facts = ", ".join(fact for fact in problem.present.describe().values() if isinstance(fact, str))
    return (
        problem,
        options.counted(unit.column, unit.per_step),
        None,
        facts if len(facts) <= 120 else f"{facts[:117]}...",
    )
