"""Batches of states in NumPy: their rows, compared and shown."""

from __future__ import annotations

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
    return np.concatenate([_integers(np.asarray(x).reshape(size_of(states), -1)) for x in jtu.tree_leaves(states)], 1)


def _integers(x: np.ndarray) -> np.ndarray:
    # Floats by their bits, or 0.2 and 0.7 would be one state; adding 0 makes -0 a 0.
    return (x.astype(np.float64) + 0.0).view(np.int64) if x.dtype.kind == "f" else x.astype(np.int64)


def equal(a: Any, b: Any) -> np.ndarray:
    """Which states of two batches are the same."""
    return (rows_of(a) == rows_of(b)).all(1)


def show(states: Any, row: int) -> str:
    """One state of a batch, for an error message."""
    one = jtu.tree_map(lambda x: np.asarray(x)[row].tolist(), states)
    if not hasattr(one, "_asdict"):
        return str(one)
    return ", ".join(f"{name}={value}" for name, value in one._asdict().items())
