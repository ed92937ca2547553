"""Readers of plain arrays, OGBench and ExORL, a writer for OGBench, and the choice of a reader.

`read_dataset(path)` finds out which of them a path is for.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName
from twinax.mapped_files import Origin, row_blocks
from twinax.memory import available_memory
from twinax.npz_files import npz_names, npz_sizes, read_npz, write_npz
from twinax.offline._columns import column, existing, joined, joined_on_disk, row_count
from twinax.offline._d4rl import read_d4rl
from twinax.offline._dataset import FIELDS, Dataset, from_arrays
from twinax.offline._ends import CUT, OVER, flags_of, missing_ends
from twinax.offline._hdf5 import hdf5_size, read_minari
from twinax.offline._notes import say, say_unused
from twinax.offline._tables import HDF5, LARGE, chosen_rows, opened_table, table_names
from twinax.recipe import remembered

OGBENCH_FIELDS = ("observations", "actions", "terminals", "rewards", "masks", *CUT)
EXORL_FIELDS = ("observation", "action", "reward", "discount")
_EXORL_NAME = re.compile(r"episode_(\d+)_(\d+)$")


# Plain arrays


def read_arrays(path: str | Path, mapped: bool = False, low: Any = -1.0, high: Any = 1.0) -> Dataset:
    """An npz or HDF5 file, or a directory of npy files, with the fields of a `Dataset` by name.

    With `mapped` observations and actions stay on the disk until they are drawn, so they may be larger than the memory.
    """
    path = existing(path)
    names = table_names(path)
    wanted = (*FIELDS, *OVER, *CUT)
    with opened_table(path, dict.fromkeys(wanted), mapped) as fields:
        if {"observations", "actions"} <= set(fields) and not set(OVER) & set(fields):
            raise missing_ends(names, str(path))
        for name in set(LARGE) & set(fields):
            if not isinstance(fields[name], np.ndarray):  # in pieces, in a file that is open only here
                rows = np.arange(row_count(fields[name]))
                fields[name] = chosen_rows(name, fields[name], rows, path, "arrays")
    dataset = from_arrays(fields, low, high, source=str(path))
    # After the data were found good: what is wrong with them comes first.
    say_unused(str(path), set(names) - set(wanted))
    _say_endless(fields, str(path))
    return dataset


def _say_endless(fields: Collection[str], source: str) -> None:
    """Values that no end stops are rarely meant."""
    if "rewards" in fields and not {"masks", "timeouts", "truncations", "terminations"} & set(fields):
        say(
            source,
            "there are rewards but no masks, so values are bootstrapped at every end; add masks, 0 where the world "
            "ended, or timeouts, 1 where time was up and terminals are the world's other ends",
        )


# OGBench


def read_ogbench(
    path: str | Path, compact: bool | None = None, mapped: bool = False, low: Any = -1.0, high: Any = 1.0
) -> Dataset:
    """An npz file of OGBench: flat trajectories, each with one more row for its final state.

    Regular: next observations are made by shifting, and the final rows are left out. Compact: the rows stay as they
    are. Mapped files are compact, because shifting copies; otherwise the default is regular. Rewards and masks are
    read if they are there, one for each row.
    """
    path = existing(path)
    fields = read_npz(path, OGBENCH_FIELDS, mapped)
    arrays = _ogbench(fields, mapped if compact is None else compact, str(path))
    dataset = from_arrays(arrays, low, high, source=str(path))
    say_unused(str(path), set(npz_names(path)) - set(OGBENCH_FIELDS))
    _say_endless(fields, str(path))
    return dataset


def _ogbench(fields: dict[str, np.ndarray], compact: bool, source: str) -> dict[str, np.ndarray]:
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
    fields = {
        **{name: value for name, value in fields.items() if name not in CUT},
        **_ogbench_cuts(fields, ends, source),
    }
    if compact:
        return {**fields, "terminals": ends, "valids": ~ends}
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
    return kept


def _ogbench_cuts(fields: dict[str, np.ndarray], ends: np.ndarray, source: str) -> dict[str, np.ndarray]:
    """Steps that a limit of time ended; they lead to a final state."""
    cut = flags_of(fields, CUT, len(ends), source)
    if cut is None:
        return {}
    last = np.append(ends[1:], False) & ~ends
    if len(wrong := np.flatnonzero(cut & ~ends & ~last)):
        name = next(name for name in CUT if name in fields)
        raise TwinaxError(
            f"{source}: {name} is 1 at row {wrong[0]}, but row {wrong[0] + 1} is no final state, as it is in OGBench's "
            "format; a table of steps with terminals and timeouts is read as format d4rl"
        )
    return {"truncations": last & (cut | np.append(cut[1:], False))}


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
    for block in row_blocks(dataset.observations[:-1]):
        begin, end = block.start, block.stop
        same = dataset.next_observations[begin:end] == dataset.observations[begin + 1 : end + 1]
        same = same.reshape(end - begin, -1).all(1) | dataset.terminals[begin:end]
        if not same.all():
            row = begin + int(np.flatnonzero(~same)[0])
            raise dataset.error(
                f"next_observations of row {row} is not observations of row {row + 1}, but the trajectory goes on; "
                "OGBench's format keeps each state once"
            )


# ExORL


def read_exorl(
    path: str | Path,
    max_rows: int | None = None,
    compact: bool | None = None,
    mapped: bool = False,
    low: Any = -1.0,
    high: Any = 1.0,
) -> Dataset:
    """A directory of ExORL with an npz file for each episode; its name ends in the number of steps.

    Row t of an episode holds the observation after the action of row t, so the first row has none. The reward is one of
    the next observation (`reward_on_next`). The discount becomes the mask. With `mapped` the episodes are copied once
    to files that can be mapped, in the compact layout unless told otherwise.
    """
    path = existing(path)
    files = _exorl_files(path)
    compact = mapped if compact is None else compact
    episodes = map(_exorl_episode, files)
    if mapped:
        fields = joined_on_disk(episodes, compact, str(path), max_rows, Origin.of_files(path, files), "exorl")
    else:
        fields = joined(episodes, compact, str(path), max_rows)
    data = from_arrays(fields, low, high, reward_on_next=True, source=str(path))
    say_unused(str(path), set(npz_names(files[0])) - set(EXORL_FIELDS))
    return data if max_rows is None or data.rows <= max_rows else data.first(max_rows)


def _exorl_files(path: Path) -> list[Path]:
    files = sorted(path.glob("episode_*.npz")) if path.is_dir() else []
    if not files:
        raise TwinaxError(f"{path}: there are no files called episode_NUMBER_STEPS.npz")
    return files


def _exorl_episode(file: Path) -> dict[str, np.ndarray]:
    named = _EXORL_NAME.match(file.stem)
    if named is None:
        raise TwinaxError(f"{file}: the name must be episode_NUMBER_STEPS.npz")
    fields = read_npz(file, EXORL_FIELDS)
    for name in EXORL_FIELDS:
        if name not in fields:
            raise TwinaxError(f"{file}: {name} is missing; there are {', '.join(sorted(fields)) or 'no known arrays'}")
    rows = row_count(fields["observation"])
    for name, value in fields.items():
        if value.shape[:1] != (rows,):
            raise TwinaxError(f"{file}: {name} has shape {value.shape}, but observation has {rows} rows")
    if rows < 2:
        raise TwinaxError(f"{file}: the trajectory is empty")
    if int(named[2]) != rows - 1:
        raise TwinaxError(f"{file}: the name says {int(named[2])} steps, but there are {rows - 1}")
    discount = column(fields, "discount", file)[1:].astype(np.float32)
    last = np.arange(rows - 1) == rows - 2
    return {
        "states": fields["observation"],
        "actions": fields["action"][1:],
        "rewards": column(fields, "reward", file)[1:],
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
    path = existing(path)
    if path.is_dir():
        if (path / "data").is_dir():
            return "minari"
        if any(path.glob("episode_*.npz")):
            return "exorl"
        if names := {file.stem for file in path.glob("*.npy")}:
            return "arrays" if {"next_observations", "valids"} & names or "timeouts" not in names else "d4rl"
        raise TwinaxError(f"{path}: this directory holds no npy files, no episodes and no Minari dataset")
    if path.suffix not in (*HDF5, ".npz"):
        raise TwinaxError(f"{path}: data is read from .npz, .hdf5 and .h5 files and from directories")
    names = set(table_names(path))
    if path.suffix in HDF5:
        if any(name.startswith("episode_") for name in names):
            return "minari"
        return "arrays" if {"masks", "valids"} & names and {"next_observations", "valids"} & names else "d4rl"
    if {"next_observations", "valids"} & names:
        return "arrays"
    return "d4rl" if {"timeouts", "terminations"} & names else "ogbench"


def size_in_memory(path: Path, format: str) -> int:
    """Bytes of a file's arrays in memory, roughly; twice, because next observations are arrays of their own."""
    if format == "minari" or path.suffix in HDF5:
        return 2 * hdf5_size(path)
    if format == "exorl":
        files = _exorl_files(path)
        return 2 * len(files) * sum(npz_sizes(files[0], EXORL_FIELDS).values())
    if path.is_dir():
        return 2 * sum(file.stat().st_size for file in path.glob("*.npy") if file.stem in FIELDS)
    return 2 * sum(npz_sizes(path, FIELDS).values())


@remembered
def read_dataset(path: str | Path, format: str | None = None, mapped: bool | None = None, **options: Any) -> Dataset:
    """The dataset in a file or directory. `mapped` leaves observations and actions on the disk until they are drawn;
    None does so if the arrays would take more than half of the free memory.

    Options are those of the format's reader.

    >>> read_dataset("cube-single-play-v0.npz").size       # doctest: +SKIP
    1000000
    """
    path = existing(path)
    format = find_format(path) if format is None else format
    if format not in _READERS:
        raise UnknownName("format", format, FORMATS)
    read = _READERS[format]
    known = inspect.signature(read).parameters
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the format '{format}'", name, [one for one in known if one != "path"])
    if mapped is None:
        mapped = size_in_memory(path, format) > available_memory() / 2
    return read(path, **options, mapped=mapped)
