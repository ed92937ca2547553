"""Which objects of a batch are new: none that is held already, or that came earlier in the batch.

Objects are looked up by a hash of their states, and what is found is compared in full: two objects with one hash stay
two objects.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.types import Array, Bool, Int


def hashes(states: Any) -> Int[Array, " rows"]:
    """A whole number for each state, the same in every framework: entries times fixed odd numbers, modulo 2^32.

    >>> hashes({"position": np.array([[0, 1], [1, 0], [0, 1]], np.int32)}).tolist()
    [588245967, 1505919583, 588245967]
    """
    parts = [_hash(leaf, place) for place, leaf in enumerate(jtu.tree_leaves(states))]
    return functools.reduce(lambda a, b: a + b, parts)


def _hash(leaf: Any, place: int) -> Int[Array, " rows"]:
    flat = _rows(leaf)
    if "float" in str(flat.dtype):
        flat = ops.clip(1024 * flat, -(2.0**20), 2.0**20)  # as coarse as it is: what has one hash is compared in full
    numbers = ops.cast(flat, "int32")
    odd = ops.like(_odd_numbers(place, flat.shape[1]), numbers)
    return ops.cast(ops.sum(numbers * odd, -1), "int32")


@functools.lru_cache(maxsize=64)
def _odd_numbers(place: int, columns: int) -> np.ndarray:
    return np.random.default_rng(place).integers(-(2**31), 2**31, columns).astype(np.int32) | 1


def _rows(leaf: Any) -> Any:
    return leaf.reshape(leaf.shape[0], int(np.prod(leaf.shape[1:])))


def equal(one: Any, other: Any) -> Bool[Array, " rows"]:
    """Whether states of two batches of one length are the same, row by row."""
    parts = [ops.all(_rows(a) == _rows(b), -1) for a, b in zip(*map(jtu.tree_leaves, (one, other)), strict=True)]
    return functools.reduce(lambda a, b: a & b, parts)


def differences(one: Any, other: Any) -> Int[Array, "rows others"]:
    """The number of entries in which objects of two batches differ."""
    pairs = zip(*map(jtu.tree_leaves, (one, other)), strict=True)
    parts = [ops.sum(ops.cast(_rows(a)[:, None] != _rows(b)[None], "int32"), -1) for a, b in pairs]
    return functools.reduce(lambda a, b: a + b, parts)


def repeated(
    states: Any, keys: Int[Array, " rows"], others: Any, other_keys: Int[Array, " others"], counted: Any
) -> Bool[Array, " rows"]:
    """Which states are among others, of those that are counted for each, (rows, others)."""
    places = ops.arange(other_keys.shape[0], keys)[None]
    # Of several with one hash the last is looked at: a state that is not found is held once more, and none is lost.
    found = ops.max(ops.where((keys[:, None] == other_keys[None]) & counted, places, -1), 1)
    there = ops.cast(ops.where(found < 0, 0, found), "int32")
    return (found >= 0) & equal(states, tree.map_leaves(lambda x: ops.take(x, there), others))


def near(objects: Any, others: Any, counted: Any, distance: int) -> Bool[Array, " rows"]:
    """Which objects differ from some of the others in fewer entries than `distance`."""
    return ops.any((differences(objects, others) < distance) & counted, 1)


def earlier(number: int, like: Any) -> Bool[Array, "rows others"]:
    """For each row of a batch those that came before it."""
    row = ops.arange(number, like)
    return row[None] < row[:, None]
