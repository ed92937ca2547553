"""Files that a person gave a run, such as a robot's MJCF: copied into it, or remembered by their sums.

sources/            copies; config.yaml names them by their place in the run
sources.json        SHA-256 of files that stay where they are, because they do not lie in one folder
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.runs import files

FOLDER, SUMS = "sources", "sources.json"


def keep(run: Path, config: Any, sources: Sequence[Path]) -> Any:
    """The configuration as it is to be written; the first of the sources is the one that it names.

    What lies in one folder is copied. Otherwise, as with meshes in a folder of their own, names inside the files would
    lead nowhere from a copy: then the file is named by its whole path, and a change of any of them is noticed later.
    """
    if not sources:
        return config
    first, folder = sources[0], run / FOLDER
    with files.writing("the run's own copy of", first):
        if first.absolute().parent == folder.absolute():
            return renamed(config, first, f"{FOLDER}/{first.name}")  # a run that goes on
        if len({source.absolute().parent for source in sources}) == 1:
            folder.mkdir(exist_ok=True)
            for source in sources:
                shutil.copyfile(source, folder / source.name)
            (run / SUMS).unlink(missing_ok=True)
            return renamed(config, first, f"{FOLDER}/{first.name}")
        sums = {str(source.absolute()): _digest(source) for source in sources}
        files.replace_file(run / SUMS, json.dumps(sums, indent=2) + "\n")
    return renamed(config, first, str(first.absolute()))


def found(run: Path, config: Any) -> Any:
    """A configuration as it was written, its files where they lie now and what they were."""
    _refuse_changes(run)

    def place(value: str) -> str:
        return str(run / value) if value.startswith(f"{FOLDER}/") and (run / value).is_file() else value

    return _changed(config, place)


def renamed(config: Any, file: Path, name: str) -> Any:
    """A configuration that names a file by another name.

    >>> renamed({"task": {"robot": "./own.xml", "steps": 3}}, Path("own.xml"), "sources/own.xml")
    {'task': {'robot': 'sources/own.xml', 'steps': 3}}
    """
    return _changed(config, lambda value: name if value and Path(value) == file else value)


def _changed(config: Any, change: Callable[[str], str]) -> Any:
    if isinstance(config, dict):
        return {key: _changed(value, change) for key, value in config.items()}
    if isinstance(config, list):
        return [_changed(value, change) for value in config]
    return change(config) if isinstance(config, str) else config


def _refuse_changes(run: Path) -> None:
    place = run / SUMS
    if not place.exists():
        return
    try:
        sums = dict(json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise TwinaxError(f"{place} cannot be read: {error}") from error
    for name, wanted in sums.items():
        if not Path(name).is_file():
            raise TwinaxError(f"the run {run} was trained with {name}, which is not there; put it back")
        here = _digest(Path(name))
        if here != wanted:
            raise TwinaxError(
                f"{name} is not the file that the run {run} was trained with: its sha256 is {here[:12]}..., "
                f"{SUMS} says {str(wanted)[:12]}...; put the old one back or train again"
            )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
