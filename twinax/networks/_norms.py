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


class GroupNorm(eqx.Module):
    """Mean 0 and variance 1 over all places and a group of neighbouring channels, then a learned scale and shift.

    Arrays are (rows, channels, *places), or (rows, height, width, channels) if channels are last.

    >>> norm = GroupNorm.init(channels=8, groups=4)
    >>> norm(np.zeros((5, 8, 16, 16), np.float32)).shape
    (5, 8, 16, 16)
    """

    weight: Array
    bias: Array
    groups: int = eqx.field(static=True)
    eps: float = eqx.field(static=True, default=1e-5)
    channels_last: bool = eqx.field(static=True, default=False)

    @classmethod
    def init(cls, channels: int, groups: int, eps: float = 1e-5, channels_last: bool = False) -> GroupNorm:
        """PyTorch's default: scale 1 and shift 0."""
        if channels < 1 or groups < 1 or channels % groups:
            raise TwinaxError(f"{channels} channels cannot be parted into {groups} equal groups; take a multiple")
        return cls(np.ones(channels, np.float32), np.zeros(channels, np.float32), groups, eps, channels_last)

    def __call__(self, x: Any) -> Array:
        x = _in_precision_of(self.weight, x)
        if not self.channels_last:
            return ops.group_norm(x, self.groups, self.weight, self.bias, self.eps)
        batch, height, width, channels = x.shape
        parts = x.reshape(batch, height * width, self.groups, channels // self.groups)
        centred = parts - ops.mean(parts, (1, 3))[:, None, :, None]
        spread = ops.mean(centred * centred, (1, 3))[:, None, :, None]
        return (centred / ops.sqrt(spread + self.eps)).reshape(x.shape) * self.weight + self.bias
