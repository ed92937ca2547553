"""Pictures of an evaluation: plots/pictures.safetensors, arrays by name (target, learned, ...) and their step."""

from __future__ import annotations

import os
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
    """Replace the pictures of the evaluation before; nothing is written when there are none."""
    from safetensors.numpy import save as to_bytes

    if not pictures:
        return
    content = to_bytes(
        {name: np.ascontiguousarray(array) for name, array in pictures.items()}, metadata={"step": str(step)}
    )
    temporary = path.with_name(f".tmp-{path.name}")
    with files.writing("the pictures", path, kept="the checkpoints are intact"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)


def load(path: Path) -> tuple[dict[str, np.ndarray], int]:
    """The pictures and the step they were taken at; none, and step 0, when there is no such file."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return {}, 0
    try:
        with safe_open(path, framework="np") as file:
            step = int((file.metadata() or {}).get("step", 0))
            return {name: np.asarray(file.get_tensor(name)) for name in file.keys()}, step
    except (SafetensorError, OSError, ValueError) as error:
        raise TwinaxError(f"{path} cannot be read ({error}); delete it to go on without pictures") from error
