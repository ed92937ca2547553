"""Show what there is: experiments, environments, objectives, modes, every key, and the runs in ./runs."""

from __future__ import annotations

import importlib.util
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from twinax.cli import _console
from twinax.errors import TwinaxError, UnknownName

HELP = "show environments, objectives, modes, keys and runs"

_NEEDS_TORCH = ("torch", "hybrid")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", default="all", metavar="WHAT", help="all (default), choices, keys or runs")
    parser.add_argument("--experiment", default="gflownet", metavar="NAME", help="whose choices and keys")


def run(found: Namespace) -> int:
    from twinax import conf

    known = ("all", "choices", "keys", "runs")
    if found.what not in known:
        raise UnknownName("list", found.what, known)
    if found.what in ("all", "choices"):
        print_choices(conf.find_experiment(found.experiment))
    if found.what == "keys":
        print_keys(conf.find_experiment(found.experiment))
    if found.what in ("all", "runs"):
        print_runs(Path("runs"))
    return 0


def print_choices(experiment: Any) -> None:
    """Experiments, modes, and the choices of an experiment's groups with their other spellings."""
    from twinax import conf
    from twinax.engines import ALIASES, MODES

    rows = [(f"experiment={name}", conf.find_experiment(name).summary) for name in conf.experiment_names()]
    _console.table("experiments", ("setting", "what it is"), rows, numbers_from=2)
    torch = importlib.util.find_spec("torch") is not None
    rows = []
    for mode in MODES:
        also = ", ".join(alias for alias, name in ALIASES.items() if name == mode)
        missing = "" if torch or mode not in _NEEDS_TORCH else "needs pip install 'twinax[torch]'"
        rows.append((f"trainer.mode={mode}", also, missing))
    _console.table("modes", ("setting", "also", ""), rows, numbers_from=3)
    for name, group in reversed(experiment.groups.items()):
        rows = [
            (f"{name}={choice}", ", ".join(alias for alias, own in group.aliases.items() if own == choice))
            for choice in group.choices
        ]
        _console.table(name, ("setting", "also"), rows, numbers_from=2)


def print_keys(experiment: Any) -> None:
    """Every key with its default and its sentence."""
    from twinax import conf

    rows = [(key, str(default), sentence) for _, key, default, sentence in conf.documentation(experiment)]
    _console.table(f"keys of experiment={experiment.name}", ("key", "default", "what it is"), rows, numbers_from=3)


def print_runs(root: Path) -> None:
    """The runs below a directory, newest last."""
    from twinax.runs import RunDirectory, find_runs

    rows = []
    for path in find_runs(root):
        try:
            summary = RunDirectory(path).read_summary()
        except TwinaxError:
            summary = {"status": "unreadable"}
        names = ("status", "mode", "steps", "loss", "total_variation")
        rows.append((path, *(summary.get(name) for name in names)))
    if rows:
        _console.table(f"runs in ./{root}", ("run", "status", "mode", "steps", "loss", "total variation"), rows, 3)
    else:
        print(f"no runs in ./{root} yet: twinax train env=grid trainer.steps=1000")
