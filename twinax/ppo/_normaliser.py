"""Running means and variances, frozen while a rollout and its updates use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.types import Array, Float

LIMIT, EPS = 10.0, 1e-8
"""Where scaled rows are cut off, and what is added to a variance."""


@tree.record
class Moments:
    """Mean and variance of all rows so far; before the first row 0 and 1, so that nothing changes."""

    mean: Float[Array, "*entry"]
    variance: Float[Array, "*entry"]
    count: Float[Array, ""]

    @classmethod
    def empty(cls, *shape: int) -> Moments:
        """Of no rows; NumPy leaves."""
        return cls(np.zeros(shape, np.float32), np.ones(shape, np.float32), np.zeros((), np.float32))

    def with_rows(self, rows: Any) -> Moments:
        """After more rows (the leading axis), from all shards."""
        mean = ops.across_shards(ops.mean(rows, 0))
        variance = ops.across_shards(ops.mean(ops.square(rows - mean), 0))
        new = float(rows.shape[0] * ops.num_shards())
        total = self.count + new
        weight = new / total
        moved = mean - self.mean
        # Variances add up by their weights, and the distance of the two means is a variance of its own.
        spread = (1 - weight) * self.variance + weight * variance + weight * (1 - weight) * ops.square(moved)
        return Moments(self.mean + weight * moved, spread, total)

    def scaled(self, x: Any, limit: float = LIMIT, eps: float = EPS) -> Array:
        """Rows with mean 0 and variance 1, cut off at `limit`."""
        return ops.clip((x - self.mean) / ops.sqrt(self.variance + eps), -limit, limit)
