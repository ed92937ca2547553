"""Norms with PyTorch's names: mean 0 and variance 1, then a learned scale and shift."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks._layers import _in_precision_of
from twinax.types import Array


class LayerNorm(eqx.Module):
    """Mean 0 and variance 1 over the last axis, then a learned scale and shift.

    >>> norm = LayerNorm.init(4)
    >>> norm(np.array([[1, 1, 3, 3]], np.float32)).round(3).tolist()
    [[-1.0, -1.0, 1.0, 1.0]]
    """

    weight: Array | None
    bias: Array | None
    eps: float = eqx.field(static=True, default=1e-5)

    @classmethod
    def init(cls, width: int, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True) -> LayerNorm:
        """PyTorch's default: scale 1 and shift 0. Without `elementwise_affine` there is neither of them."""
        if width < 1:
            raise TwinaxError(f"a LayerNorm has {width} inputs; it needs at least 1")
        weight = np.ones(width, np.float32) if elementwise_affine else None
        return cls(weight, np.zeros(width, np.float32) if elementwise_affine and bias else None, eps)

    def __call__(self, x: Any) -> Array:
        weight = self.weight
        return ops.layer_norm(x if weight is None else _in_precision_of(weight, x), weight, self.bias, self.eps)
