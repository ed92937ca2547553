"""What the readers of files share: paths that exist, columns, and trajectories joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.mapped_files import ArrayFile, Origin, kept


def existing(path: str | Path) -> Path:
    """The path, if there is something."""
    path = Path(path)
    if not path.exists():
        raise TwinaxError(f"there is no file or directory '{path}'")
    return path


def row_count(array: Any) -> int:
    """Rows of an array; a single number has none."""
    return array.shape[0] if array.shape else 0


def column(fields: dict[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    """One number for each row, whether stored as (rows,) or as (rows, 1)."""
    array = fields[name]
    if array.shape not in ((len(array),), (len(array), 1)) or array.dtype.kind not in "fiub":
        raise TwinaxError(
            f"{path}: {name} has shape {array.shape} of {array.dtype}; it must be one number for each row"
        )
    return array.reshape(-1)


def regular_rows(one: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of a trajectory, each with its next observation; `states` has one more than the other columns."""
    rest = {name: value for name, value in one.items() if name != "states"}
    return {"observations": one["states"][:-1], "next_observations": one["states"][1:], **rest}


def compact_rows(one: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of a trajectory and one for its final state, which may not be drawn."""
    steps = len(one["actions"])
    last = {"rewards": 0, "masks": 1, "terminals": True, "truncations": False}
    longer = {name: np.append(one[name], np.array([value], one[name].dtype)) for name, value in last.items()}
    actions = np.concatenate([one["actions"], one["actions"][-1:]])
    return {"observations": one["states"], "actions": actions, **longer, "valids": np.arange(steps + 1) < steps}


def joined(
    trajectories: Iterable[dict[str, np.ndarray]], compact: bool, source: str, most: int | None = None
) -> dict[str, np.ndarray]:
    """Trajectories one after the other, until there are enough steps."""
    parts = list(_checked(trajectories, compact, source, most))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def joined_on_disk(
    trajectories: Iterable[dict[str, np.ndarray]],
    compact: bool,
    source: str,
    most: int | None,
    origin: Origin,
    key: Any,
) -> dict[str, np.ndarray]:
    """The same in mapped files, written in one pass."""

    def fill(folder: Path) -> None:
        files: dict[str, ArrayFile] = {}
        with ExitStack() as stack:
            for part in _checked(trajectories, compact, source, most):
                for name, value in part.items():
                    if name not in files:
                        file = ArrayFile(folder / f"{name}.npy", value.shape[1:], value.dtype)
                        files[name] = stack.enter_context(file)
                    files[name].append(value)

    return dict(kept(origin, ("joined", compact, most, key), fill))


def _checked(
    trajectories: Iterable[dict[str, np.ndarray]], compact: bool, source: str, most: int | None
) -> Iterator[dict[str, np.ndarray]]:
    first, total = {}, 0
    for number, one in enumerate(trajectories):
        part = compact_rows(one) if compact else regular_rows(one)
        first = first or {name: value.shape[1:] for name, value in part.items()}
        for name, value in part.items():
            if value.shape[1:] != first[name]:
                raise TwinaxError(
                    f"{source}: {name} has rows of shape {value.shape[1:]} in trajectory {number}, "
                    f"but of {first[name]} in trajectory 0"
                )
        yield part
        total += len(part["actions"])
        if most is not None and total >= most:
            return
