"""A residual network of convolutions with group norms: images to vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.networks._conv import Border, Conv2d
from twinax.networks._images import flat_images, image_shape
from twinax.networks._layers import activation
from twinax.networks._norms import GroupNorm
from twinax.types import Array, Float

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal variable between -2 and 2."""
GROUPS = 4
"""Of channels, in each norm."""
SILU = activation("silu")


def _kaiming(
    rng: np.random.Generator,
    inputs: int,
    outputs: int,
    window: int = 3,
    stride: int = 1,
    padding: Border | None = None,
) -> Conv2d:
    """Weight normal with variance 2 / fan in, cut at two standard deviations as Flax does; no bias."""
    z = rng.normal(size=(outputs, inputs, window, window))
    while (far := np.abs(z) > 2).any():
        z[far] = rng.normal(size=int(far.sum()))
    scale = math.sqrt(2 / (inputs * window**2)) / TRUNCATED_STD
    return Conv2d((scale * z).astype(np.float32), None, stride, padding, channels_last=True)


def _norm(width: int) -> GroupNorm:
    return GroupNorm.init(width, GROUPS, channels_last=True)


class ResNetBlock(eqx.Module):
    """conv, norm, swish, conv, norm, plus the input (projected if its shape differs), swish."""

    convs: tuple[Conv2d, Conv2d]
    norms: tuple[GroupNorm, GroupNorm]
    projection: Conv2d | None
    projection_norm: GroupNorm | None

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, width: int, stride: int) -> ResNetBlock:
        convs = _kaiming(rng, inputs, width, stride=stride), _kaiming(rng, width, width)
        norms = _norm(width), _norm(width)
        if inputs == width and stride == 1:
            return cls(convs, norms, None, None)
        return cls(convs, norms, _kaiming(rng, inputs, width, 1, stride), _norm(width))

    def __call__(self, x: Any) -> Float[Array, "batch height width channels"]:
        y = SILU(self.norms[0](self.convs[0](x)))
        y = self.norms[1](self.convs[1](y))
        if self.projection is not None and self.projection_norm is not None:
            x = self.projection_norm(self.projection(x))
        return SILU(x + y)


class ResNet(eqx.Module):
    """Residual blocks with group norms on an image and its coordinates, then the mean over the image.

    >>> net = ResNet.init(np.random.default_rng(0), (16, 16, 3), stages=(1, 1), width=4)
    >>> net(np.zeros((5, 16, 16, 3), np.uint8)).shape, net.width
    ((5, 8), 8)
    """

    first: Conv2d
    first_norm: GroupNorm
    blocks: tuple[ResNetBlock, ...]
    shape: tuple[int, int, int] = eqx.field(static=True)

    @classmethod
    def init(
        cls, rng: np.random.Generator, shape: Sequence[int], stages: Sequence[int] = (3, 4, 6, 3), width: int = 64
    ) -> ResNet:
        """`stages` are numbers of blocks; each stage after the first halves the image and doubles the width."""
        shape = image_shape(shape)
        first = _kaiming(rng, shape[-1] + 2, width, 7, 2, ((3, 3), (3, 3)))
        blocks, inputs = [], width
        for stage, number in enumerate(stages):
            for i in range(number):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(ResNetBlock.init(rng, inputs, width * 2**stage, stride))
                inputs = width * 2**stage
        return cls(first, _norm(width), tuple(blocks), shape)

    @property
    def width(self) -> int:
        """Of the vectors that it makes."""
        return self.blocks[-1].convs[-1].weight.shape[-4]

    @property
    def coordinates(self) -> np.ndarray:
        """How far down and how far across each place is, from -1 to 1: (height, width, 2)."""
        grid = np.meshgrid(*(np.linspace(-1, 1, size) for size in self.shape[:2]), indexing="ij")
        return np.stack(grid, -1)

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        x, rows = flat_images(observations, self.shape)
        x = ops.cast(x, self.first.weight) / 127.5 - 1
        planes = ops.cast(ops.like(self.coordinates, x), x)
        x = ops.concat([x, ops.broadcast(planes, (*x.shape[:-1], 2))], -1)
        x = ops.max_pool(SILU(self.first_norm(self.first(x))), 3, 2)
        for block in self.blocks:
            x = block(x)
        return ops.mean(x, (1, 2)).reshape(*rows, self.width)
