"""The edit distance: letters to insert, delete or exchange."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax import ops
from twinax.types import Array, Int

AT_ONCE = 10_000_000
"""Numbers in memory while distances of many sequences are computed on the host."""


def edit_distance(one: Int[Array, "a length"], other: Int[Array, "b width"]) -> Int[Array, "a b"]:
    """Levenshtein's distance of each sequence to each other one; -1 behind the letters of a shorter one.

    >>> edit_distance(np.array([[0, 1, 2]]), np.array([[1, 2, -1], [0, 1, 2]])).tolist()
    [[1, 0]]
    """
    width = other.shape[1]
    shape = (one.shape[0], other.shape[0], width + 1)
    columns = ops.arange(width + 1, one)

    def letter_more(row: Any, letter: Any) -> tuple[Any, Any]:
        exchanged = row[..., :-1] + ops.cast(letter[:, None, None] != other[None], "int32")
        new = ops.concat([row[..., :1] + 1, ops.minimum(row[..., 1:] + 1, exchanged)], -1)
        # Insertions cost 1 a column: the least of new[k] + j - k over k <= j, by doubling.
        new, step = new - columns, 1
        while step <= width:
            new = ops.concat([new[..., :step], ops.minimum(new[..., step:], new[..., :-step])], -1)
            step *= 2
        return ops.where((letter >= 0)[:, None, None], new + columns, row), ()

    first = ops.broadcast(columns[None, None], shape) + ops.zeros(shape, columns)
    rows, _ = ops.scan(letter_more, ops.cast(first, "int32"), ops.cast(ops.transpose(one), "int32"))
    ends = ops.cast(ops.sum(ops.cast(other >= 0, "int32"), -1), "int32")
    return ops.take_along(rows, ops.broadcast(ends[None], shape[:2]))


def edit_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The same for NumPy arrays of any number of sequences."""
    at_once = max(1, AT_ONCE // max(1, len(other) * (other.shape[1] + 1)))
    parts = [edit_distance(one[k : k + at_once], other) for k in range(0, len(one), at_once)]
    return np.concatenate(parts) if parts else np.zeros((0, len(other)), np.int32)
