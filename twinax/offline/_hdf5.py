"""HDF5 files opened for reading, and the reader of Minari, which has a group for each episode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName, require
from twinax.mapped_files import Origin
from twinax.offline._columns import existing, joined, joined_on_disk, row_count
from twinax.offline._dataset import Dataset, from_arrays
from twinax.offline._notes import say_unused

_MINARI = ("observations", "actions", "rewards", "terminations", "truncations")
"""Arrays of an episode of Minari."""


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


def hdf5_dataset(group: Any, name: str, path: Path) -> Any:
    array = group[name]
    if hasattr(array, "keys"):
        raise TwinaxError(f"{path}: '{name}' is a group of arrays, where an array was expected")
    return array


def hdf5_array(group: Any, name: str, path: Path) -> np.ndarray:
    return np.asarray(hdf5_dataset(group, name, path)[()])


def on_disk(array: Any, path: Path) -> Any:
    """An array of a file, mapped if it lies there in one piece; otherwise it can be read block by block."""
    whole = array.id.get_storage_size() == array.size * array.dtype.itemsize > 0
    if array.chunks is None and whole and not (array.is_virtual or array.external):
        if (offset := array.id.get_offset()) is not None:
            return np.memmap(path, array.dtype, "r", offset, array.shape)
    return array


def hdf5_names(file: Any) -> list[str]:
    """All arrays of a file or a group; those of a group inside of it as group/array."""
    names: list[str] = []

    def add(name: str, member: Any) -> None:
        if not hasattr(member, "keys"):
            names.append(name)

    file.visititems(add)
    return names


def hdf5_size(path: Path) -> int:
    """Bytes of all arrays of a file, or of the file in a directory of Minari."""
    with opened_hdf5(_minari_path(path) if path.is_dir() else path) as file:
        arrays = (file[name] for name in hdf5_names(file))
        return sum(int(one.size or 0) * one.dtype.itemsize for one in arrays)


# Minari


def read_minari(
    path: str | Path,
    keys: Sequence[str] = (),
    low: Any = None,
    high: Any = None,
    max_rows: int | None = None,
    compact: bool | None = None,
    mapped: bool = False,
) -> Dataset:
    """A dataset of Minari: its directory, or the HDF5 file in it, with a group for each episode.

    Observations with parts are joined from the parts named by `keys`, such as observation and desired_goal. The box of
    the actions is the one the dataset names, unless it is given. With `mapped` the episodes are copied once to files
    that can be mapped, in the compact layout unless told otherwise.
    """
    path = existing(path)
    path = _minari_path(path) if path.is_dir() else path
    compact = mapped if compact is None else compact
    with opened_hdf5(path) as file:
        box = _minari_box(path, file)
        names = sorted((name for name in file if re.fullmatch(r"episode_\d+", name)), key=lambda name: int(name[8:]))
        if not names:
            raise TwinaxError(f"{path}: there are no groups called episode_0, episode_1 and so on")
        unused = _minari_unused(file[names[0]], keys)
        episodes = (_minari_episode(file[name], keys, path) for name in names)
        if mapped:
            origin = Origin.of_files(path)
            fields = joined_on_disk(episodes, compact, str(path), max_rows, origin, ("minari", *keys))
        else:
            fields = joined(episodes, compact, str(path), max_rows)
    low, high = (box[0] if low is None else low), (box[1] if high is None else high)
    data = from_arrays(fields, low, high, source=str(path))
    say_unused(str(path), unused)
    return data if max_rows is None or data.rows <= max_rows else data.first(max_rows)


def _minari_path(path: Path) -> Path:
    inside = path / "data" / "main_data.hdf5"
    if not inside.exists():
        raise TwinaxError(f"{path}: there is no data/main_data.hdf5 in it; only Minari's HDF5 format is read")
    return inside


def _minari_box(path: Path, file: Any) -> tuple[Any, Any]:
    # Newer versions describe the spaces in a file beside the data, older ones in it.
    beside = path.with_name("metadata.json")
    try:
        text = json.loads(beside.read_text())["action_space"] if beside.exists() else file.attrs["action_space"]
        space = json.loads(text)
        return np.array(space["low"], np.float64), np.array(space["high"], np.float64)
    except (KeyError, TypeError, ValueError):
        return -1.0, 1.0


def _minari_unused(group: Any, keys: Sequence[str]) -> list[str]:
    used = {*_MINARI, *(f"observations/{key}" for key in keys)}
    return [
        name.replace("/", ".") if name.startswith("observations/") else name
        for name in hdf5_names(group)
        if name not in used
    ]


def _minari_episode(group: Any, keys: Sequence[str], path: Path) -> dict[str, np.ndarray]:
    where = f"{path}: {group.name.strip('/')}"
    for name in _MINARI:
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
        columns = [hdf5_array(states, key, path) for key in keys]
        states = np.concatenate([x.reshape(len(x), -1) for x in columns], 1)
    else:
        states = hdf5_array(group, "observations", path)
        states = states.reshape(row_count(states), -1) if states.ndim < 2 else states
    if hasattr(group["actions"], "keys"):
        raise TwinaxError(f"{where}: actions has parts; only a single box or a single choice is read")
    rest = {name: hdf5_array(group, name, path) for name in ("actions", "rewards", "terminations", "truncations")}
    steps = row_count(rest["actions"])
    if steps == 0:
        raise TwinaxError(f"{where}: the trajectory is empty")
    for name, value in rest.items():
        if value.shape[:1] != (steps,):
            raise TwinaxError(f"{where}: {name} has shape {value.shape}, but actions has {steps} rows")
    if len(states) != steps + 1:
        raise TwinaxError(f"{where}: observations has {len(states)} rows, but {steps} actions need {steps + 1}")
    return {
        "states": states,
        "actions": rest["actions"],
        "rewards": rest["rewards"],
        "masks": ~rest["terminations"].astype(bool),
        "terminals": np.arange(steps) == steps - 1,
        "truncations": rest["truncations"].astype(bool),
    }
