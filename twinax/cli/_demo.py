"""The whole tour on a small world: train in the three modes, prove that they agree, compare, report."""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from pathlib import Path

from twinax import console
from twinax.cli import _compare, _settings, _train

HELP = "train in three modes, check parity, compare, report (a minute or two)"

DEFAULTS = (
    "env.dim=2",
    "env.side=8",
    "proxy=bands",
    "objective=tb",
    "policy.hidden=[64,64]",
    "trainer.steps=1000",
    "compare.repeats=3",
    "run.dir=runs/demo",
)


add_arguments = _settings.add_overrides


def run(arguments: Namespace) -> int:
    from twinax import conf, runs

    # All is composed before an earlier demo is removed.
    overrides = [*DEFAULTS, *arguments.overrides]
    config = conf.compose(overrides)
    directory, modes = Path(config.run.dir), config.compare.modes
    configs = [conf.compose([*overrides, f"trainer.mode={mode}", f"run.dir={directory / mode}"]) for mode in modes]
    for mode in modes:
        _remove_earlier(directory / mode)
    parts = len(modes) + 2
    trained = []
    for number, one in enumerate(configs, 1):
        print(f"\n[{number}/{parts}] training in {one.trainer.mode} mode", flush=True)
        trained.append(_train.train(one, quiet=not sys.stderr.isatty()))
    print(f"\n[{parts - 1}/{parts}] parity and comparison", flush=True)
    result = _compare.compare(config, conf.build_problem(config), overrides, directory)
    written = {"comparison": _settings.write_json(directory / "compare.json", result)}
    _compare.print_result(result)
    print(f"\n[{parts}/{parts}] report", flush=True)
    console.facts({**written, "report": runs.write_report(trained, directory / "report.html")})
    return 0 if result["parity"] is not False else 1


def _remove_earlier(directory: Path) -> None:
    """Make room for a new demo; only what is a run is removed."""
    if (directory / "config.yaml").is_file():
        shutil.rmtree(directory)
