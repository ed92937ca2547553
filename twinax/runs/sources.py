"""Files that a person gave a run, such as a robot's MJCF: copied into it, or remembered by their sums.

sources/            copies; config.yaml names them by their place in the run
sources.json        SHA-256 of the copies, or of files that stay where they are because they do not lie in one folder
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.runs import files, plain

FOLDER, SUMS = "sources", "sources.json"


def keep(run: Path, config: Any, sources: Sequence[Path]) -> Any:
    """The configuration as it is to be written, which names sources where they lie then.

    What lies in one folder is copied. Otherwise, as with meshes in a folder of their own, names inside the files would
    lead nowhere from a copy: then the file is named by its whole path, and a change of any of them is noticed later.
    """
    if not sources:
        return config
    first, folder = sources[0], run / FOLDER
    if first.absolute().parent == folder.absolute():
        # A run that goes on.
        return _all_renamed(config, {source: f"{FOLDER}/{source.name}" for source in sources})
    alike = len({source.absolute().parent for source in sources}) == 1
    with files.writing("the run's own copy of", first):
        content = {source: source.read_bytes() for source in sources}
    if alike:
        with files.writing("the folder", folder, run):
            folder.mkdir(exist_ok=True)
        for source, data in content.items():
            with files.writing("the copy", folder / source.name, run):
                files.replace_file(folder / source.name, data)
    names = {source: f"{FOLDER}/{source.name}" if alike else str(source.absolute()) for source in sources}
    sums = {names[source]: hashlib.sha256(data).hexdigest() for source, data in content.items()}
    with files.writing("the sums", run / SUMS, run):
        files.replace_file(run / SUMS, json.dumps(sums, indent=2) + "\n")
    return _all_renamed(config, names)


def _all_renamed(config: Any, names: Mapping[Path, str]) -> Any:
    for file, name in names.items():
        config = renamed(config, file, name)
    return config


def locate(run: Path, config: Any) -> Any:
    """A configuration as it was written, its files where they lie now and what they were."""
    _refuse_changes(run)

    def place(value: str) -> str:
        if not value.startswith(f"{FOLDER}/") or not (run / value).is_file():
            return value
        return str(files.inside(run, run / value))

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
        sums = plain.loads(files.read_text(place, run))
        if not isinstance(sums, dict) or not all(isinstance(one, str) for one in sums.values()):
            raise ValueError("it holds no sums by name")
    except (OSError, ValueError) as error:
        raise TwinaxError(f"{place} cannot be read: {error}") from error
    for name, wanted in sums.items():
        path = run / name  # of a whole path the path itself
        if not Path(name).is_absolute():
            files.inside(run, path)
        if not path.is_file():
            raise TwinaxError(f"the run {run} was trained with {name}, which is not there; put it back")
        here = _digest(path)
        if here != wanted:
            raise TwinaxError(
                f"{path} is not the file that the run {run} was trained with: its sha256 is {here[:12]}..., "
                f"{SUMS} says {wanted[:12]}...; put the old one back or train again"
            )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
