"""Pictures of an evaluation: plots/pictures.safetensors, arrays by name, how each picture is drawn, and their step.

The file says all that a report needs, as data. A sum over it is kept with it: what was changed is not shown.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinax.errors import TwinaxError
from twinax.parts import Drawn, Picture
from twinax.runs import files, plain

PREFIX = "picture/"
_OTHERS = Picture("Pictures")
_LONGEST = 300
"""Characters of a text that a file may give."""


class Shown(NamedTuple):
    """One picture with its arrays, by their own names."""

    name: str
    picture: Picture
    arrays: dict[str, np.ndarray]


def select(metrics: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays among an evaluation's metrics that are pictures, without their prefix."""
    return {name.removeprefix(PREFIX): np.asarray(value) for name, value in metrics.items() if name.startswith(PREFIX)}


def grouped(arrays: Mapping[str, np.ndarray], told: Mapping[str, Picture]) -> list[Shown]:
    """Pictures with their arrays; what belongs to none of those that are told is one of maps."""
    groups = {name: Shown(name, told.get(name, _OTHERS), {}) for name in (*told, "")}
    for name, array in arrays.items():
        owner, slash, own = name.partition("/")
        belongs = bool(slash) and owner in told
        groups[owner if belongs else ""].arrays[own if belongs else name] = array
    return [shown for shown in groups.values() if shown.arrays]


def maps(arrays: Mapping[str, np.ndarray], told: Mapping[str, Picture]) -> dict[str, np.ndarray]:
    """The arrays that are pictures by themselves, under their whole names."""
    others = tuple(f"{name}/" for name, picture in told.items() if name and picture.kind != "maps")
    return {name: array for name, array in arrays.items() if not name.startswith(others)}


def save(path: Path, arrays: Mapping[str, np.ndarray], step: int, told: Mapping[str, Picture] | None = None) -> None:
    """Replace the pictures of the evaluation before, in plots/ of a run; nothing is written when there are none."""
    from twinax.bridge.safetensors_bytes import encode

    if not arrays:
        return
    drawn = plain.dumps({name: dataclasses.asdict(one) for name, one in (told or {}).items()})
    with files.writing("the pictures", path, path.parent.parent, kept="the checkpoints are intact"):
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"step": str(step), "pictures": drawn, "sum": _digest(arrays, step, drawn)}
        files.replace_file(path, encode(arrays, metadata))


def add(path: Path, drawn: Mapping[str, Drawn], step: int) -> None:
    """Put further pictures beside those of the last evaluation, in place of what had their names."""
    arrays, told, _ = load(path)
    kept = {name: array for name, array in arrays.items() if name.partition("/")[0] not in drawn}
    new = {f"{name}/{own}": np.asarray(array) for name, one in drawn.items() for own, array in one.arrays.items()}
    save(path, {**kept, **new}, step, {**told, **{name: one.picture for name, one in drawn.items()}})


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Picture], int]:
    """The arrays, how they are drawn, and the step they were taken at; nothing, and step 0, without such a file."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return {}, {}, 0
    try:
        with safe_open(files.readable(path, path.parent.parent), framework="np") as file:
            metadata = file.metadata() or {}
            step, drawn = int(metadata.get("step", 0)), metadata.get("pictures", "{}")
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}
        if metadata.get("sum") != _digest(arrays, step, drawn):
            raise ValueError("it was changed after it was written")
        told = plain.loads(drawn)
        pictures = {name: one for name, value in told.items() if (one := _picture(value)) is not None}
    except (SafetensorError, OSError, AttributeError, TypeError, ValueError) as error:
        raise TwinaxError(f"{path} cannot be read ({error}); delete it to go on without pictures") from error
    return arrays, pictures, step


def _picture(told: Any) -> Picture | None:
    """What a file says of a picture; None where it says something else. Only texts count."""
    given = told if isinstance(told, dict) else {}
    title, kind, pair = given.get("title"), given.get("kind"), given.get("difference")
    if not isinstance(title, str) or not isinstance(kind, str):
        return None
    labels, captions = (
        {name: text[:_LONGEST] for name, text in one.items() if isinstance(text, str)} if isinstance(one, dict) else {}
        for one in (given.get("labels"), given.get("captions"))
    )
    match pair:
        case [str() as first, str() as second]:
            return Picture(title[:_LONGEST], kind, labels, captions, (first, second))
    return Picture(title[:_LONGEST], kind, labels, captions)


def _digest(arrays: Mapping[str, np.ndarray], step: int, drawn: str) -> str:
    made = hashlib.sha256(f"{step} {drawn}".encode())
    for name, array in sorted(arrays.items()):
        made.update(f"{name} {array.dtype} {array.shape} ".encode())
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()
