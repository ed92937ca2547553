"""Show what there is: experiments, environments, objectives, modes, every key, and the runs in ./runs."""

from __future__ import annotations

import importlib.util
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinax import console
from twinax.commands import COMMANDS
from twinax.errors import TwinaxError, UnknownName

HELP = "show environments, objectives, modes, keys and runs"

_NEEDS_TORCH = ("torch", "hybrid")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WHAT|KEY=VALUE",
        help="all (default), choices, keys or runs; settings, such as experiment=ppo, say whose",
    )


def run(arguments: Namespace) -> int:
    from twinax import conf

    known = ("all", "choices", "keys", "runs")
    settings = [word for word in arguments.words if "=" in word]
    what, *more = [word for word in arguments.words if "=" not in word] or ["all"]
    for word in (what, *more):
        if word not in known:
            raise UnknownName("list", word, known)
    if more:
        raise TwinaxError(f"list shows one of {', '.join(known)} at a time, but was given {what} and {more[0]}")
    if what in ("all", "choices"):
        print_choices(conf.opened_experiment(settings))
    if what == "keys":
        print_keys(settings)
    if what in ("all", "runs"):
        print_runs(Path("runs"))
    return 0


def print_choices(experiment: Any) -> None:
    """Experiments, modes, and the choices of an experiment's groups with their other spellings."""
    from twinax import conf
    from twinax.engines import ALIASES, MODES

    rows = [(f"experiment={name}", conf.find_experiment(name).summary) for name in conf.experiment_names()]
    console.table("experiments", ("setting", "what it is"), rows, numbers_from=2)
    torch = importlib.util.find_spec("torch") is not None
    rows = []
    for mode in MODES:
        also = ", ".join(alias for alias, name in ALIASES.items() if name == mode)
        missing = "" if torch or mode not in _NEEDS_TORCH else "needs pip install 'twinax[torch]'"
        rows.append((f"trainer.mode={mode}", also, missing))
    console.table("modes", ("setting", "also", ""), rows, numbers_from=3)
    if others := COMMANDS.installed:
        rows = [(f"twinax {name}", code) for name, code in others.items()]
        console.table("commands of installed packages", ("command", "what it is"), rows, numbers_from=2)
    for name, group in reversed(experiment.groups.items()):
        rows = [
            (f"{name}={choice}", ", ".join(alias for alias, own in group.aliases.items() if own == choice))
            for choice in group.choices
        ]
        console.table(name, ("setting", "also"), rows, numbers_from=2)


def print_keys(settings: Sequence[str]) -> None:
    """Every key with its default and its sentence; with settings, the keys of what they choose and their values."""
    from twinax import conf

    experiment = conf.opened_experiment(settings)
    chosen = [text for text in settings if not text.startswith("experiment=")]
    rows = conf.documented(settings) if chosen else conf.documentation(experiment)
    title = " ".join([f"keys of experiment={experiment.name}", *chosen])
    shown = [(key, str(value), sentence) for _, key, value, sentence in rows]
    console.table(title, ("key", "value" if chosen else "default", "what it is"), shown, numbers_from=3)


def print_runs(root: Path) -> None:
    """The runs below a directory, newest last."""
    from twinax.runs import RunDirectory, find_runs

    rows = []
    for path in find_runs(root):
        try:
            summary = RunDirectory(path).read_summary()
        except TwinaxError:
            summary = {"status": "unreadable"}
        names = ("status", "mode", "steps", "loss")
        rows.append((path, *(summary.get(name) for name in names), _result(summary)))
    if rows:
        console.table(f"runs in ./{root}", ("run", "status", "mode", "steps", "loss", "result"), rows, 3)
    else:
        print(f"no runs in ./{root} yet: twinax train env=grid trainer.steps=1000")


def _result(summary: Mapping[str, Any]) -> str | None:
    """What its family finds most telling of a run."""
    from twinax.runs.glossary import GENERAL, tiles, title, titles_of

    with titles_of([summary]):
        names = [name for name in tiles() if name not in GENERAL and summary.get(name) is not None]
        return f"{title(names[0]).lower()} {console.show(summary[names[0]])}" if names else None
