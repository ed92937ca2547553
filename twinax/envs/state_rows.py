"""Batches of states in NumPy: their rows, compared and shown."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.tree_util as jtu
import numpy as np


def size_of(states: Any) -> int:
    """How many states a batch has."""
    return jtu.tree_leaves(states)[0].shape[0]


def pick(states: Any, rows: np.ndarray) -> Any:
    """The states with these numbers."""
    return jtu.tree_map(lambda x: np.asarray(x)[rows], states)


def rows_of(states: Any) -> np.ndarray:
    """Each state as one row of integers, equal exactly where the states are."""
    leaves = [np.asarray(x) for x in jtu.tree_leaves(states)]
    return np.concatenate([_integers(x.reshape(len(x), math.prod(x.shape[1:]))) for x in leaves], 1)


def _integers(x: np.ndarray) -> np.ndarray:
    # Floats by their bits, or 0.2 and 0.7 would be one state; adding 0 makes -0 a 0.
    return (x.astype(np.float64) + 0.0).view(np.int64) if x.dtype.kind == "f" else x.astype(np.int64)


def keys_of(rows: np.ndarray) -> np.ndarray:
    """One whole number for each row of integers, equal exactly where the rows are, however many columns there are."""
    keys, size = np.zeros(len(rows), np.int64), 1  # keys lie in 0..size - 1; Python's integers do not overflow
    for column in np.ascontiguousarray(rows.T) if len(rows) else ():
        low, high = int(column.min()), int(column.max())
        if size * (high - low + 1) > MOST:
            # Places among the distinct values are as good as the values, and there are no more of them than rows.
            keys, size = _places(keys)
        if size * (high - low + 1) > MOST:
            column, high = _places(column)
            low, high = 0, high - 1
        keys = keys * (high - low + 1) + (column - low)
        size *= high - low + 1
    return keys


MOST = 2**62
"""Keys stay below this, so that an int64 holds them."""


def _places(values: np.ndarray) -> tuple[np.ndarray, int]:
    distinct, places = np.unique(values, return_inverse=True)
    return places.reshape(-1), len(distinct)


def equal(a: Any, b: Any) -> np.ndarray:
    """Which states of two batches are the same."""
    return (rows_of(a) == rows_of(b)).all(1)


def fields_of(state: Any) -> dict[str, Any] | None:
    """The parts of a named tuple, dataclass or dictionary by name; None for anything else."""
    if isinstance(state, dict):
        return state
    if hasattr(state, "_asdict"):
        return state._asdict()
    if dataclasses.is_dataclass(state):
        return {entry.name: getattr(state, entry.name) for entry in dataclasses.fields(state)}
    return None


def without_done(state: Any) -> Any:
    """All of a state but `done`: what is left if it is one thing, otherwise a dictionary by name or a tuple."""
    named = fields_of(state)
    if named is None:
        rest = tuple(leaf for leaf in jtu.tree_leaves(state) if leaf is not state.done)
        return rest[0] if len(rest) == 1 else rest
    named = {name: value for name, value in named.items() if name != "done"}
    return next(iter(named.values())) if len(named) == 1 else named


def show(states: Any, row: int) -> str:
    """One state, or object, of a batch in one line, for people."""
    named = fields_of(states)
    if named is not None:
        return ", ".join(f"{name}={show(value, row)}" for name, value in named.items())
    return str(jtu.tree_map(lambda x: np.asarray(x)[row].tolist(), states))
