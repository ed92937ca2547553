"""Pictures of an evaluation: plots/pictures.safetensors, arrays by name (target, learned, ...) and their step.

A sum over all of them is kept with them: what was changed is not shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.runs import files

PREFIX = "picture/"


def select(metrics: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays among an evaluation's metrics that are pictures, without their prefix."""
    return {name.removeprefix(PREFIX): np.asarray(value) for name, value in metrics.items() if name.startswith(PREFIX)}


def save(path: Path, pictures: Mapping[str, np.ndarray], step: int) -> None:
    """Replace the pictures of the evaluation before, in plots/ of a run; nothing is written when there are none."""
    from twinax.bridge.safetensors_bytes import encode

    if not pictures:
        return
    with files.writing("the pictures", path, path.parent.parent, kept="the checkpoints are intact"):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(path, encode(pictures, {"step": str(step), "sum": _digest(pictures, step)}))


def load(path: Path) -> tuple[dict[str, np.ndarray], int]:
    """The pictures and the step they were taken at; none, and step 0, when there is no such file."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return {}, 0
    try:
        with safe_open(files.readable(path, path.parent.parent), framework="np") as file:
            metadata = file.metadata() or {}
            step = int(metadata.get("step", 0))
            pictures = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}
        if metadata.get("sum") != _digest(pictures, step):
            raise ValueError("it was changed after it was written")
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise TwinaxError(f"{path} cannot be read ({error}); delete it to go on without pictures") from error
    return pictures, step


def _digest(pictures: Mapping[str, np.ndarray], step: int) -> str:
    made = hashlib.sha256(str(step).encode())
    for name, array in sorted(pictures.items()):
        made.update(f"{name} {array.dtype} {array.shape} ".encode())
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()
