"""The reader of D4RL: a flat table with terminals and timeouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.offline._columns import column, existing, row_count
from twinax.offline._dataset import Dataset, from_arrays
from twinax.offline._ends import CUT, OVER, flags_of, missing_ends
from twinax.offline._notes import say_unused
from twinax.offline._tables import chosen_rows, opened_table, table_names

NAMES = ("observations", "actions", "rewards", "next_observations", *OVER, *CUT)


def read_d4rl(
    path: str | Path, terminate_on_end: bool = False, low: Any = -1.0, high: Any = 1.0, mapped: bool = False
) -> Dataset:
    """A table of D4RL (HDF5, npz or npy files), as its q-learning view: `masks` is 0 at terminals, and timeouts are
    truncations.

    Next observations are those of the next row, unless the file has its own. So the last row of the file is left out,
    and so is the last step of each timeout, whose next row begins another trajectory. With `terminate_on_end` these
    steps are kept and masked. A masked step without a next observation repeats its own.
    """
    path = existing(path)
    names = table_names(path)
    with opened_table(path, NAMES, mapped) as fields:
        if {"observations", "actions"} <= set(fields) and not set(OVER) & set(fields):
            raise missing_ends(names, str(path))
        fields = _d4rl_fields(fields, terminate_on_end, path)
    data = from_arrays(fields, low, high, source=str(path))
    say_unused(str(path), set(names) - set(NAMES))
    return data


def _d4rl_fields(fields: dict[str, Any], terminate_on_end: bool, path: Path) -> dict[str, Any]:
    for name in ("observations", "actions"):
        if name not in fields:
            raise TwinaxError(f"{path}: {name} is missing; there are {', '.join(sorted(fields)) or 'no known arrays'}")
    rows = row_count(fields["observations"])
    for name, value in fields.items():
        if value.shape[:1] != (rows,):
            raise TwinaxError(f"{path}: {name} has shape {value.shape}, but observations has {rows} rows")
    if rows < 2:
        raise TwinaxError(f"{path}: observations has {rows} rows; at least 2 are needed to have a next one")
    over, timeouts = (flags_of(fields, names, rows, str(path)) for names in (OVER, CUT))
    assert over is not None
    timeouts = np.zeros(rows, bool) if timeouts is None else timeouts
    chosen = np.arange(rows) < rows - 1
    if not terminate_on_end:
        chosen &= ~timeouts
    chosen = np.flatnonzero(chosen)
    if len(chosen) == 0:
        raise TwinaxError(f"{path}: every row is the last step of a timeout, so nothing is left")
    masked = over | timeouts if terminate_on_end else over
    # A trajectory ends where it says so, and before a step that was left out.
    ends = (over | timeouts)[chosen] | timeouts[chosen + 1] & (not terminate_on_end)
    ends[-1] = True
    cut = (timeouts[chosen] | timeouts[chosen + 1] & (not terminate_on_end)) & ~over[chosen]
    following = (fields["observations"], np.where(masked[chosen], chosen, chosen + 1))
    if "next_observations" in fields:
        following = (fields["next_observations"], chosen)
    large = {
        "observations": (fields["observations"], chosen),
        "next_observations": following,
        "actions": (fields["actions"], chosen),
    }
    key = ("d4rl", terminate_on_end)
    return {
        **{name: chosen_rows(name, source, index, path, key) for name, (source, index) in large.items()},
        **({"rewards": column(fields, "rewards", path)[chosen]} if "rewards" in fields else {}),
        "masks": ~masked[chosen],
        "terminals": ends,
        "truncations": cut,
    }
