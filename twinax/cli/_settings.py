"""What several commands do with a configuration: build its problem, name its directory, describe it."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any


def add_overrides(parser: ArgumentParser) -> None:
    """The settings at the end of a command line."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings, such as trainer.steps=100")


def add_trust(parser: ArgumentParser) -> None:
    """For commands that build what somebody else's run says."""
    parser.add_argument(
        "--trust", action="store_true", help="run the code of other packages that the run names, though it is not yours"
    )


def choose_directory(config: Any, kind: str | None = None) -> Path:
    """`run.dir`, or a new name under runs/ made of the date and what is run."""
    import datetime

    from twinax import conf

    if config.run.dir is not None:
        return Path(config.run.dir)
    experiment = conf.find_experiment(config.experiment)
    names = [getattr(config, section).name for section in experiment.named_by]
    last = config.seed + config.seeds - 1
    seed = f"seed{config.seed}" if config.seeds == 1 else f"seeds{config.seed}-{last}"
    day = datetime.date.today().isoformat()
    # Of somebody's code the last part is enough to know it by; a colon is no part of a file's name everywhere.
    short = [name.rpartition(":")[2] for name in (kind or config.experiment, *names)]
    made = [*short, *([] if kind else [config.trainer.mode, seed])]
    stem = "-".join([day, *([config.run.name] if config.run.name else made)])
    for number in range(1, 100_000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    return Path("runs") / stem


def sentence(config: Any) -> str:
    """The problem in one line, as choices are written: each with its numbers if they are few, and the batch."""
    import dataclasses

    from twinax import conf

    parts = []
    for name in reversed(list(conf.find_experiment(config.experiment).groups)):
        section = getattr(config, name)
        numbers = [
            f"{key} {value}"
            for key, value in dataclasses.asdict(section).items()
            if key != "name" and value is not None
        ]
        short = name == "objective" or not 0 < len(numbers) <= 8
        parts.append(f"{name}={section.name}" + ("" if short else f" ({', '.join(numbers)})"))
    if hasattr(config.trainer, "batch_size"):
        parts.append(f"batch {config.trainer.batch_size}")
    return ", ".join(parts)


def write_json(path: Path, value: Any) -> Path:
    """Write a small JSON file whole, making its directory."""
    from twinax.runs import files, plain

    with files.writing("the file", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(path, plain.dumps(value, indent=2) + "\n")
    return path
