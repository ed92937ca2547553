"""What the readers of files share: paths that exist, columns, and trajectories joined."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twinax.errors import TwinaxError


def existing(path: str | Path) -> Path:
    """The path, if there is something."""
    path = Path(path)
    if not path.exists():
        raise TwinaxError(f"there is no file or directory '{path}'")
    return path


def row_count(array: np.ndarray) -> int:
    """Rows of an array; a single number has none."""
    return len(array) if array.ndim else 0


def column(fields: dict[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    """One number for each row, whether stored as (rows,) or as (rows, 1)."""
    found = fields[name]
    if found.shape not in ((len(found),), (len(found), 1)) or found.dtype.kind not in "fiub":
        raise TwinaxError(
            f"{path}: {name} has shape {found.shape} of {found.dtype}; it must be one number for each row"
        )
    return found.reshape(-1)


def joined(parts: list[dict[str, np.ndarray]], source: str) -> dict[str, np.ndarray]:
    """Trajectories one after the other."""
    for number, part in enumerate(parts):
        for name, value in part.items():
            if value.shape[1:] != parts[0][name].shape[1:]:
                raise TwinaxError(
                    f"{source}: {name} has rows of shape {value.shape[1:]} in trajectory {number}, "
                    f"but of {parts[0][name].shape[1:]} in trajectory 0"
                )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
