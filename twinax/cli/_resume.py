"""Go on with a run from its newest whole checkpoint; settings such as trainer.mode may change."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from twinax.cli import _settings, _train
from twinax.errors import TwinaxError

HELP = "go on with a run, also in another mode"

_FIXED = ("seed", "seeds", "run.dir", "experiment")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    _settings.add_trust(parser)
    _settings.add_overrides(parser)


def run(found: Namespace) -> int:
    from twinax import conf, runs
    from twinax.engines import is_leader, provide_devices

    for override in found.overrides:
        if override.partition("=")[0] in _FIXED:
            raise TwinaxError(f"'{override}' cannot change in an existing run: start a new one with `twinax train`")
    directory = Path(found.run)
    config = conf.restore_run(directory, found.overrides, found.trust)
    config.run.dir = str(directory)
    devices = provide_devices(config.trainer.devices)
    problem = conf.build_problem(config)
    options = conf.train_options(config, devices=devices)
    leads = is_leader()
    changed = options.as_dict()
    changed.pop("seed")
    result = runs.resume(
        directory,
        problem,
        progress=False if found.quiet or not leads else None,
        config=conf.as_dict(config),
        announce=(lambda facts: _train.print_start(config, directory, problem.present.unit, facts)) if leads else None,
        writes=leads,
        **changed,
    )
    if leads:
        _train.print_end(result.summary, directory)
    return 0
