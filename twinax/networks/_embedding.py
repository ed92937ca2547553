"""A table of vectors for whole numbers: tokens, places, actions."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.types import Array, Float


class Embedding(eqx.Module):
    """The row of a learned table for each index; PyTorch's name and initial distribution.

    >>> table = Embedding.init(np.random.default_rng(0), number=10, width=4)
    >>> table(np.array([[3, 1, 4]])).shape
    (1, 3, 4)
    """

    weight: Array
    padding: int | None = eqx.field(static=True, default=None)
    """The index that stands for nothing: its row is zero at first and receives no gradient."""

    @classmethod
    def init(cls, rng: np.random.Generator, number: int, width: int, padding: int | None = None) -> Embedding:
        """PyTorch's default: standard normal numbers; the row of `padding`, if there is one, is zero."""
        if number < 1 or width < 1:
            raise TwinaxError(f"an embedding has {number} rows of width {width}; it needs at least 1 of each")
        if padding is not None and not 0 <= padding < number:
            raise TwinaxError(f"the padding index is {padding}, but the table has the rows 0 to {number - 1}")
        weight = rng.normal(size=(number, width)).astype(np.float32)
        if padding is not None:
            weight[padding] = 0
        return cls(weight, padding)

    def __call__(self, index: Any) -> Float[Array, "*rows width"]:
        rows = ops.take(self.weight, index)
        if self.padding is None:
            return rows
        return ops.where((index == self.padding)[..., None], ops.stop_gradient(rows), rows)
