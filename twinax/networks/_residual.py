"""Residual blocks of linear layers."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from twinax.errors import TwinaxError
from twinax.networks._layers import Linear, _in_precision_of, activation
from twinax.networks._norms import LayerNorm
from twinax.types import Array


class ResidualBlock(eqx.Module):
    """x plus what norm, linear, activation, linear make of it.

    >>> block = ResidualBlock.init(np.random.default_rng(0), width=4, hidden=16)
    >>> block(np.zeros((3, 4), np.float32)).shape
    (3, 4)
    """

    norm: LayerNorm
    linear1: Linear
    linear2: Linear
    activation: str = eqx.field(static=True)

    @classmethod
    def init(cls, rng: np.random.Generator, width: int, hidden: int | None = None, act: str = "relu") -> ResidualBlock:
        """Layers begin as PyTorch's; without `hidden` the block is four times as wide inside."""
        activation(act)  # unknown names fail here
        hidden = 4 * width if hidden is None else hidden
        if width < 1 or hidden < 1:
            raise TwinaxError(f"a residual block has width {width} and {hidden} inside; both must be at least 1")
        first, second = Linear.init(rng, width, hidden), Linear.init(rng, hidden, width)
        return cls(LayerNorm.init(width), first, second, act)

    def __call__(self, x: Any) -> Array:
        x = _in_precision_of(self.linear1.weight, x)
        return x + self.linear2(activation(self.activation)(self.linear1(self.norm(x))))


class ResidualMLP(eqx.Module):
    """A linear layer, residual blocks, a norm and a linear layer: an MLP that may be deep.

    >>> net = ResidualMLP.init(np.random.default_rng(0), inputs=6, width=8, blocks=3, outputs=2)
    >>> net(np.zeros((5, 6), np.float32)).shape
    (5, 2)
    """

    first: Linear
    blocks: tuple[ResidualBlock, ...]
    norm: LayerNorm
    last: Linear

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        width: int,
        blocks: int,
        outputs: int,
        hidden: int | None = None,
        act: str = "relu",
    ) -> ResidualMLP:
        """`hidden` is the width inside of a block, four times `width` unless it is given."""
        bad = {"inputs": inputs, "width": width, "blocks": blocks, "outputs": outputs}
        if bad := {name: number for name, number in bad.items() if number < 1}:
            raise TwinaxError(f"a ResidualMLP has {bad}; every size must be at least 1")
        first = Linear.init(rng, inputs, width)
        middle = tuple(ResidualBlock.init(rng, width, hidden, act) for _ in range(blocks))
        return cls(first, middle, LayerNorm.init(width), Linear.init(rng, width, outputs))

    def __call__(self, x: Any) -> Array:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x))
