"""Running means and variances, frozen while a rollout and its updates use them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.types import Array, Float

LEAST, MOST = 1e-6, 1e6
"""Between which a deviation is kept where nothing is added to its variance."""


@dataclass(frozen=True)
class Scaling:
    """How rows are scaled by their mean and variance."""

    limit: float = 10.0
    """Where scaled rows are cut off; 0 for nowhere."""
    eps: float = 1e-8
    """Added to the variance; with 0 the deviation is kept between 1e-6 and 1e6 instead, as in Brax."""

    def deviation(self, variance: Any) -> Any:
        """What is divided by."""
        return ops.sqrt(variance + self.eps) if self.eps else ops.clip(ops.sqrt(variance), LEAST, MOST)

    @property
    def bound(self) -> float:
        """The limit as a number, infinite where there is none."""
        return self.limit or math.inf


PLAIN = Scaling()


@tree.record
class RunningMoments:
    """Mean and variance of all rows so far; before the first row 0 and 1, so that nothing changes."""

    mean: Float[Array, "*entry"]
    variance: Float[Array, "*entry"]
    count: Float[Array, ""]

    @classmethod
    def empty(cls, *shape: int) -> RunningMoments:
        """Of no rows; NumPy leaves."""
        return cls(np.zeros(shape, np.float32), np.ones(shape, np.float32), np.zeros((), np.float32))

    def with_rows(self, rows: Any) -> RunningMoments:
        """After more rows (the leading axis), from all shards."""
        mean = ops.across_shards(ops.mean(rows, 0))
        variance = ops.across_shards(ops.mean(ops.square(rows - mean), 0))
        new = float(rows.shape[0] * ops.num_shards())
        total = self.count + new
        weight = new / total
        moved = mean - self.mean
        # Variances add up by their weights, and the distance of the two means is a variance of its own.
        spread = (1 - weight) * self.variance + weight * variance + weight * (1 - weight) * ops.square(moved)
        return RunningMoments(self.mean + weight * moved, spread, total)

    def scaled(self, x: Any, scaling: Scaling = PLAIN) -> Array:
        """Rows with mean 0 and variance 1, cut off where `scaling` says so."""
        x = (x - self.mean) / scaling.deviation(self.variance)
        return ops.clip(x, -scaling.limit, scaling.limit) if scaling.limit else x
