"""Train a problem; settings with several values, such as seed=0,1,2, train one run after the other."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinax import console
from twinax.cli import _settings

if TYPE_CHECKING:
    from twinax.parts import Unit
    from twinax.train_options import TrainOptions

HELP = "train a problem and keep the run in a directory"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    _settings.add_overrides(parser)


def run(arguments: Namespace) -> int:
    from twinax import conf

    combinations = conf.split_commas(arguments.overrides)
    # All of them are composed first: a mistake in the last must not come after the training of the others.
    configs = [conf.compose(overrides) for overrides in combinations]
    directories = []
    for number, config in enumerate(configs):
        if len(configs) > 1 and config.run.dir is not None:
            config.run.dir = str(Path(config.run.dir) / str(number))
        directories.append(train(config, quiet=arguments.quiet))
    if len(configs) > 1:
        print(f"all of them: twinax report {' '.join(map(str, directories))}")
    return 0


def train(config: Any, quiet: bool = False) -> Path:
    """Train what a configuration says; the run's directory."""
    from twinax import conf, runs
    from twinax.engines import is_leader, provide_devices
    from twinax.runs.sinks import make_sinks

    # Not kept in the configuration: a run may go on with another number of processes.
    devices = provide_devices(config.trainer.devices)
    make_sinks(config.logger)  # what is missing for them is told before anything is built
    problem = conf.build_problem(config)
    options = conf.train_options(config, devices=devices)
    unit, sentence = problem.present.unit, _settings.sentence(config)
    directory = _settings.choose_directory(config)
    config.run.dir = str(directory)
    leads = is_leader()
    shown = {"config": conf.as_dict(config), "progress": False if quiet or not leads else None}
    if (other := conf.find_experiment(config.experiment).train(config)) is not None:
        print_start(sentence, options, directory, unit)
        result = other(problem, options.steps, options.seed, directory, sinks=make_sinks(options.logger), **shown)
    else:
        announce = (lambda facts: print_start(sentence, options, directory, unit, facts)) if leads else None
        result = runs.train(problem, options, run_dir=directory, announce=announce, writes=leads, **shown)
    if leads:
        print_end(result.summary, directory)
    return directory


def print_start(
    sentence: str, options: TrainOptions, directory: Path, unit: Unit, facts: Mapping[str, Any] | None = None
) -> None:
    """What is about to happen; `sentence` says what the problem is."""
    from twinax.platforms import device_label
    from twinax.runs.summary import threads

    mode, seeds = options.mode, f", {options.seeds} seeds" if options.seeds > 1 else ""
    numbers = {name: f"{value:,}" for name, value in (facts or {}).items()}
    console.facts(
        {
            "problem": sentence,
            "mode": f"{mode}, {options.dtype}, {unit.told(options.steps)}, seed {options.seed}{seeds}",
            **numbers,
            "device": f"{device_label(mode, options.device)}, {counted(threads(mode), 'thread')}",
            "run": directory,
            **({"logger": ", ".join(options.logger)} if options.logger else {}),
        }
    )


def counted(number: int, thing: str) -> str:
    """So many of a thing, in words."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def print_end(summary: dict[str, Any], directory: Path) -> None:
    """What came out, and what to do next."""
    from twinax.parts import Unit
    from twinax.runs.summary import NO_RESULTS

    rows = console.metric_rows(summary, (*NO_RESULTS, *summary["counts"]))
    unit = Unit(**summary["unit"])
    console.table(f"after {unit.told(summary['steps'])}", ("metric", "value"), rows)
    console.facts({"run": directory, "next": f"twinax report {directory}"})
