"""Readers of offline data: OGBench, D4RL, Minari, ExORL and plain arrays, each into a `Dataset`; a writer for OGBench.

`read_dataset(path)` finds out which of them a path is for.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName, require
from twinax.offline._dataset import CHUNK, Dataset, from_arrays
from twinax.offline._npz import can_be_mapped, npz_names, read_npy_directory, read_npz, write_npz

FIELDS = (
    "observations", "actions", "terminals", "next_observations", "rewards", "masks", "truncations", "valids",
)  # fmt: skip
_EXORL_NAME = re.compile(r"episode_(\d+)_(\d+)$")


# Plain arrays


def read_arrays(path: str | Path, mapped: bool = False, low: Any = -1.0, high: Any = 1.0) -> Dataset:
    """An npz file, or a directory of npy files, with the fields of a `Dataset` by name.

    With `mapped` the observations stay on the disk until they are drawn, so they may be larger than the memory.
    """
    path = _there(path)
    read = read_npy_directory if path.is_dir() else read_npz
    return from_arrays(read(path, FIELDS, mapped), low, high, source=str(path))


# OGBench


def read_ogbench(path: str | Path, compact: bool | None = None, mapped: bool = False) -> Dataset:
    """An npz file of OGBench: flat trajectories, each with one more row for its final state.

    Regular: next observations are made by shifting, and the final rows are left out. Compact: the rows stay as they
    are. Mapped files are compact, because shifting copies; otherwise the default is regular. Rewards and masks are
    read if they are there, one for each row.
    """
    path = _there(path)
    fields = read_npz(path, FIELDS, mapped)
    return _ogbench(fields, mapped if compact is None else compact, str(path))


def _ogbench(fields: dict[str, np.ndarray], compact: bool, source: str) -> Dataset:
    for name in ("observations", "actions", "terminals"):
        if name not in fields:
            raise TwinaxError(
                f"{source}: {name} is missing; there are {', '.join(sorted(fields)) or 'no known arrays'}"
            )
    if fields["observations"].ndim < 2:
        raise TwinaxError(f"{source}: observations has shape {fields['observations'].shape}; it must be (rows, width)")
    rows = len(fields["observations"])
    ends = np.asarray(fields["terminals"])
    if ends.shape != (rows,):
        raise TwinaxError(f"{source}: terminals has shape {ends.shape}, but observations has {rows} rows")
    if len(wrong := np.flatnonzero((ends != 0) & (ends != 1))):
        raise TwinaxError(f"{source}: terminals is {ends[wrong[0]]} at row {wrong[0]}; it must be 0 or 1")
    ends = ends.astype(bool)
    if rows == 0 or not ends[-1]:
        raise TwinaxError(
            f"{source}: terminals is 0 at row {rows - 1}, the last one; the file ends inside a trajectory"
        )
    if compact:
        return from_arrays({**fields, "terminals": ends, "valids": ~ends}, source=source)
    empty = ends & np.concatenate([[True], ends[:-1]])
    if empty.any():
        row = np.flatnonzero(empty)[0]
        raise TwinaxError(f"{source}: the trajectory that ends at row {row} is empty: no step leads there")
    steps = np.flatnonzero(~ends)
    kept = {}
    for name, value in fields.items():
        if value.shape[:1] != (rows,):
            raise TwinaxError(f"{source}: {name} has shape {value.shape}, but observations has {rows} rows")
        kept[name] = value[steps]
    kept["next_observations"] = fields["observations"][steps + 1]
    kept["terminals"] = ends[steps + 1]
    return from_arrays(kept, source=source)


def save_ogbench(dataset: Dataset, path: str | Path, compressed: bool = False) -> Path:
    """Write a dataset in OGBench's format; not compressed, it can be mapped.

    Rewards, masks and truncations are added where there are any; OGBench's own loader leaves them alone.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise TwinaxError(f"the file is called '{path.name}'; OGBench's files end in .npz")
    if dataset.normaliser is not None and dataset.normaliser.kind != "none":
        raise dataset.error("the observations are normalised; save the dataset before that")
    dataset.require_goals()
    if dataset.compact:
        finals = dataset.terminals & ~dataset.valids
        source, closing = np.arange(dataset.rows), finals
        observations = dataset.observations
    else:
        last = np.flatnonzero(dataset.terminals)
        _check_chain(dataset)
        # Each last step comes twice: as itself, and as the final state that it leads to.
        source = np.sort(np.concatenate([np.arange(dataset.rows), last]))
        closing = np.append(source[1:] == source[:-1], False)
        closing = np.concatenate([[False], closing[:-1]])
        observations = dataset.observations[source]
        observations[closing] = dataset.next_observations[last]
    fields = {"observations": observations, "actions": dataset.actions[source], "terminals": closing}
    if dataset.rewards is not None:
        fields["rewards"] = np.where(closing, np.float32(0), dataset.rewards[source])
    if (dataset.masks != 1).any():
        fields["masks"] = np.where(closing, np.float32(1), dataset.masks[source])
    if dataset.truncations.any():
        fields["truncations"] = dataset.truncations[source] & ~closing
    write_npz(path, fields, compressed)
    return path


def _check_chain(dataset: Dataset) -> None:
    for begin in range(0, dataset.rows - 1, CHUNK):
        end = min(begin + CHUNK, dataset.rows - 1)
        same = dataset.next_observations[begin:end] == dataset.observations[begin + 1 : end + 1]
        same = same.reshape(end - begin, -1).all(1) | dataset.terminals[begin:end]
        if not same.all():
            row = begin + int(np.flatnonzero(~same)[0])
            raise dataset.error(
                f"next_observations of row {row} is not observations of row {row + 1}, but the trajectory goes on; "
                "OGBench's format keeps each state once"
            )


# D4RL


def read_d4rl(path: str | Path, terminate_on_end: bool = False, low: Any = -1.0, high: Any = 1.0) -> Dataset:
    """An HDF5 file of D4RL, as its q-learning view: `masks` is 0 at terminals, and timeouts are truncations.

    Next observations are those of the next row, unless the file has its own. So the last row of the file is left out,
    and so is the last step of each timeout, whose next row begins another trajectory. With `terminate_on_end` these
    steps are kept and masked. A masked step without a next observation repeats its own.
    """
    path = _there(path)
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    with _hdf5(path) as file:
        fields = {name: _hdf5_array(file, name, path) for name in names if name in file}
    for name in ("observations", "actions", "rewards", "terminals"):
        if name not in fields:
            raise TwinaxError(f"{path}: {name} is missing; there are {', '.join(sorted(fields)) or 'no known arrays'}")
    rows = _rows(fields["observations"])
    for name, value in fields.items():
        if value.shape[:1] != (rows,):
            raise TwinaxError(f"{path}: {name} has shape {value.shape}, but observations has {rows} rows")
    if rows < 2:
        raise TwinaxError(f"{path}: observations has {rows} rows; at least 2 are needed to have a next one")
    over = _column(fields, "terminals", path).astype(bool)
    timeouts = _column(fields, "timeouts", path).astype(bool) if "timeouts" in fields else np.zeros(rows, bool)
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
            "rewards": _column(fields, "rewards", path)[kept],
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
    path = _there(path)
    if path.is_dir():
        inside = path / "data" / "main_data.hdf5"
        if not inside.exists():
            raise TwinaxError(f"{path}: there is no data/main_data.hdf5 in it; only Minari's HDF5 format is read")
        path = inside
    parts: list[dict[str, np.ndarray]] = []
    total = 0
    with _hdf5(path) as file:
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
    data = from_arrays(_joined(parts, str(path)), low, high, source=str(path))
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
        states = states.reshape(_rows(states), -1) if states.ndim < 2 else states
    if hasattr(group["actions"], "keys"):
        raise TwinaxError(f"{where}: actions has parts; only a single box or a single choice is read")
    rest = {name: _hdf5_array(group, name, path) for name in ("actions", "rewards", "terminations", "truncations")}
    steps = _rows(rest["actions"])
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


# ExORL


def read_exorl(path: str | Path, max_rows: int | None = None) -> Dataset:
    """A directory of ExORL with an npz file for each episode; its name ends in the number of steps.

    Row t of an episode holds the observation after the action of row t, so the first row has none. The reward is one of
    the next observation (`reward_on_next`). The discount becomes the mask.
    """
    path = _there(path)
    files = sorted(path.glob("episode_*.npz")) if path.is_dir() else []
    if not files:
        raise TwinaxError(f"{path}: there are no files called episode_NUMBER_STEPS.npz")
    parts: list[dict[str, np.ndarray]] = []
    total = 0
    for file in files:
        parts.append(_exorl_episode(file))
        total += len(parts[-1]["actions"])
        if max_rows is not None and total >= max_rows:
            break
    data = from_arrays(_joined(parts, str(path)), reward_on_next=True, source=str(path))
    return data if max_rows is None or data.rows <= max_rows else data.first(max_rows)


def _exorl_episode(file: Path) -> dict[str, np.ndarray]:
    named = _EXORL_NAME.match(file.stem)
    if named is None:
        raise TwinaxError(f"{file}: the name must be episode_NUMBER_STEPS.npz")
    fields = read_npz(file, ("observation", "action", "reward", "discount"))
    for name in ("observation", "action", "reward", "discount"):
        if name not in fields:
            raise TwinaxError(f"{file}: {name} is missing; there are {', '.join(sorted(fields)) or 'no known arrays'}")
    rows = _rows(fields["observation"])
    for name, value in fields.items():
        if value.shape[:1] != (rows,):
            raise TwinaxError(f"{file}: {name} has shape {value.shape}, but observation has {rows} rows")
    if rows < 2:
        raise TwinaxError(f"{file}: the trajectory is empty")
    if int(named[2]) != rows - 1:
        raise TwinaxError(f"{file}: the name says {int(named[2])} steps, but there are {rows - 1}")
    discount = _column(fields, "discount", file)[1:].astype(np.float32)
    last = np.arange(rows - 1) == rows - 2
    return {
        "observations": fields["observation"][:-1],
        "next_observations": fields["observation"][1:],
        "actions": fields["action"][1:],
        "rewards": _column(fields, "reward", file)[1:],
        "masks": discount,
        "terminals": (discount == 0) | last,
        "truncations": last & (discount != 0),
    }


# Any of them


_READERS: dict[str, Callable[..., Dataset]] = {
    "ogbench": read_ogbench,
    "arrays": read_arrays,
    "d4rl": read_d4rl,
    "minari": read_minari,
    "exorl": read_exorl,
}
FORMATS = tuple(_READERS)
"""The formats that `read_dataset` knows."""


def find_format(path: str | Path) -> str:
    """Which format a file or directory has, by its name and the names of its arrays."""
    path = _there(path)
    if path.is_dir():
        if (path / "data").is_dir():
            return "minari"
        if any(path.glob("episode_*.npz")):
            return "exorl"
        if any(path.glob("*.npy")):
            return "arrays"
        raise TwinaxError(f"{path}: this directory holds no npy files, no episodes and no Minari dataset")
    if path.suffix in (".hdf5", ".h5"):
        with _hdf5(path) as file:
            return "minari" if any(name.startswith("episode_") for name in file) else "d4rl"
    if path.suffix != ".npz":
        raise TwinaxError(f"{path}: data is read from .npz, .hdf5 and .h5 files and from directories")
    names = npz_names(path)
    return "arrays" if {"next_observations", "valids"} & set(names) else "ogbench"


def read_dataset(path: str | Path, format: str | None = None, mapped: bool | None = False, **options: Any) -> Dataset:
    """The dataset in a file or directory. `mapped` leaves observations on the disk; None does so where it can be done.

    Options are those of the format's reader.

    >>> read_dataset("cube-single-play-v0.npz").size       # doctest: +SKIP
    1000000
    """
    path = _there(path)
    format = find_format(path) if format is None else format
    if format not in _READERS:
        raise UnknownName("format", format, FORMATS)
    by_array = format in ("ogbench", "arrays")
    if mapped is None:
        mapped = by_array and (path.is_dir() or can_be_mapped(path))
    if mapped and not by_array:
        raise TwinaxError(
            f"{path}: only npz files and directories of npy files can be mapped, not the format '{format}'"
        )
    read = _READERS[format]
    known = inspect.signature(read).parameters
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the format '{format}'", name, [one for one in known if one != "path"])
    return read(path, **options, **({"mapped": mapped} if by_array else {}))


def _there(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise TwinaxError(f"there is no file or directory '{path}'")
    return path


def _rows(array: np.ndarray) -> int:
    return len(array) if array.ndim else 0


def _column(fields: dict[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    found = fields[name]
    if found.shape not in ((len(found),), (len(found), 1)) or found.dtype.kind not in "fiub":
        raise TwinaxError(
            f"{path}: {name} has shape {found.shape} of {found.dtype}; it must be one number for each row"
        )
    return found.reshape(-1)


def _joined(parts: list[dict[str, np.ndarray]], source: str) -> dict[str, np.ndarray]:
    for number, part in enumerate(parts):
        for name, value in part.items():
            if value.shape[1:] != parts[0][name].shape[1:]:
                raise TwinaxError(
                    f"{source}: {name} has rows of shape {value.shape[1:]} in trajectory {number}, "
                    f"but of {parts[0][name].shape[1:]} in trajectory 0"
                )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@contextmanager
def _hdf5(path: Path) -> Iterator[Any]:
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
