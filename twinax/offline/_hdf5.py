"""Readers of HDF5 files: D4RL and Minari."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName, require
from twinax.offline._columns import column, existing, joined, row_count
from twinax.offline._dataset import Dataset, from_arrays


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Any]:
    """An HDF5 file for reading; whatever its damage, the error is one sentence."""
    require("h5py", "offline", "reading HDF5 files")
    import h5py  # pyright: ignore[reportMissingImports]

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        reason = "it is truncated" if "truncated" in str(error) else "it is not an HDF5 file"
        raise TwinaxError(f"{path}: this file cannot be opened as HDF5: {reason}") from None
    try:
        with file:
            yield file
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise TwinaxError(f"{path}: this file is damaged ({' '.join(str(error).split())})") from None


def _hdf5_array(group: Any, name: str, path: Path) -> np.ndarray:
    found = group[name]
    if hasattr(found, "keys"):
        raise TwinaxError(f"{path}: '{name}' is a group of arrays, where an array was expected")
    return np.asarray(found[()])


# D4RL


def read_d4rl(path: str | Path, terminate_on_end: bool = False, low: Any = -1.0, high: Any = 1.0) -> Dataset:
    """An HDF5 file of D4RL, as its q-learning view: `masks` is 0 at terminals, and timeouts are truncations.

    Next observations are those of the next row, unless the file has its own. So the last row of the file is left out,
    and so is the last step of each timeout, whose next row begins another trajectory. With `terminate_on_end` these
    steps are kept and masked. A masked step without a next observation repeats its own.
    """
    path = existing(path)
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    with opened_hdf5(path) as file:
        fields = {name: _hdf5_array(file, name, path) for name in names if name in file}
    for name in ("observations", "actions", "rewards", "terminals"):
        if name not in fields:
            raise TwinaxError(f"{path}: {name} is missing; there are {', '.join(sorted(fields)) or 'no known arrays'}")
    rows = row_count(fields["observations"])
    for name, value in fields.items():
        if value.shape[:1] != (rows,):
            raise TwinaxError(f"{path}: {name} has shape {value.shape}, but observations has {rows} rows")
    if rows < 2:
        raise TwinaxError(f"{path}: observations has {rows} rows; at least 2 are needed to have a next one")
    over = column(fields, "terminals", path).astype(bool)
    timeouts = column(fields, "timeouts", path).astype(bool) if "timeouts" in fields else np.zeros(rows, bool)
    kept = np.arange(rows) < rows - 1
    if not terminate_on_end:
        kept &= ~timeouts
    kept = np.flatnonzero(kept)
    if len(kept) == 0:
        raise TwinaxError(f"{path}: every row is the last step of a timeout, so nothing is left")
    masked = over | timeouts if terminate_on_end else over
    if "next_observations" in fields:
        following = fields["next_observations"][kept]
    else:
        following = fields["observations"][np.where(masked[kept], kept, kept + 1)]
    # A trajectory ends where it says so, and before a step that was left out.
    ends = (over | timeouts)[kept] | timeouts[kept + 1] & (not terminate_on_end)
    ends[-1] = True
    cut = (timeouts[kept] | timeouts[kept + 1] & (not terminate_on_end)) & ~over[kept]
    return from_arrays(
        {
            "observations": fields["observations"][kept],
            "next_observations": following,
            "actions": fields["actions"][kept],
            "rewards": column(fields, "rewards", path)[kept],
            "masks": ~masked[kept],
            "terminals": ends,
            "truncations": cut,
        },
        low,
        high,
        source=str(path),
    )


# Minari


def read_minari(
    path: str | Path, keys: Sequence[str] = (), low: Any = None, high: Any = None, max_rows: int | None = None
) -> Dataset:
    """A dataset of Minari: its directory, or the HDF5 file in it, with a group for each episode.

    Observations with parts are joined from the parts named by `keys`, such as observation and desired_goal. The box of
    the actions is the one the dataset names, unless it is given.
    """
    path = existing(path)
    if path.is_dir():
        inside = path / "data" / "main_data.hdf5"
        if not inside.exists():
            raise TwinaxError(f"{path}: there is no data/main_data.hdf5 in it; only Minari's HDF5 format is read")
        path = inside
    parts: list[dict[str, np.ndarray]] = []
    total = 0
    with opened_hdf5(path) as file:
        box = _minari_box(path, file)
        names = sorted((name for name in file if re.fullmatch(r"episode_\d+", name)), key=lambda name: int(name[8:]))
        if not names:
            raise TwinaxError(f"{path}: there are no groups called episode_0, episode_1 and so on")
        for name in names:
            one = _minari_episode(file[name], keys, path)
            parts.append(one)
            total += len(one["actions"])
            if max_rows is not None and total >= max_rows:
                break
    low, high = (box[0] if low is None else low), (box[1] if high is None else high)
    data = from_arrays(joined(parts, str(path)), low, high, source=str(path))
    return data if max_rows is None or data.rows <= max_rows else data.first(max_rows)


def _minari_box(path: Path, file: Any) -> tuple[Any, Any]:
    # Newer versions describe the spaces in a file beside the data, older ones in it.
    beside = path.with_name("metadata.json")
    try:
        text = json.loads(beside.read_text())["action_space"] if beside.exists() else file.attrs["action_space"]
        space = json.loads(text)
        return np.array(space["low"], np.float64), np.array(space["high"], np.float64)
    except (KeyError, TypeError, ValueError):
        return -1.0, 1.0


def _minari_episode(group: Any, keys: Sequence[str], path: Path) -> dict[str, np.ndarray]:
    where = f"{path}: {group.name.strip('/')}"
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        if name not in group:
            raise TwinaxError(f"{where}: {name} is missing")
    states = group["observations"]
    if hasattr(states, "keys"):
        known = sorted(states.keys())
        if not keys:
            raise TwinaxError(
                f"{where}: observations has the parts {', '.join(known)}; name those that are to be joined"
            )
        for key in keys:
            if key not in states:
                raise UnknownName("part of the observations", key, known)
        columns = [_hdf5_array(states, key, path) for key in keys]
        states = np.concatenate([x.reshape(len(x), -1) for x in columns], 1)
    else:
        states = _hdf5_array(group, "observations", path)
        states = states.reshape(row_count(states), -1) if states.ndim < 2 else states
    if hasattr(group["actions"], "keys"):
        raise TwinaxError(f"{where}: actions has parts; only a single box or a single choice is read")
    rest = {name: _hdf5_array(group, name, path) for name in ("actions", "rewards", "terminations", "truncations")}
    steps = row_count(rest["actions"])
    if steps == 0:
        raise TwinaxError(f"{where}: the trajectory is empty")
    for name, value in rest.items():
        if value.shape[:1] != (steps,):
            raise TwinaxError(f"{where}: {name} has shape {value.shape}, but actions has {steps} rows")
    if len(states) != steps + 1:
        raise TwinaxError(f"{where}: observations has {len(states)} rows, but {steps} actions need {steps + 1}")
    return {
        "observations": states[:-1],
        "next_observations": states[1:],
        "actions": rest["actions"],
        "rewards": rest["rewards"],
        "masks": ~rest["terminations"].astype(bool),
        "terminals": np.arange(steps) == steps - 1,
        "truncations": rest["truncations"].astype(bool),
    }
