"""The convolutional encoder of IMPALA: images to vectors by stacks of residual convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.networks._conv import Conv2d
from twinax.networks._images import flat_images, image_shape
from twinax.networks._mlp import FLAX_EPS, MLP
from twinax.networks._norms import LayerNorm
from twinax.types import Array, Float

WINDOW = 3


def _xavier(rng: np.random.Generator, inputs: int, outputs: int) -> Conv2d:
    """Flax's usual choice: weight uniform on +-sqrt(6 / (fan in + fan out)), bias zero; a border keeps the size."""
    bound = math.sqrt(6 / ((inputs + outputs) * WINDOW**2))
    weight = rng.uniform(-bound, bound, (outputs, inputs, WINDOW, WINDOW)).astype(np.float32)
    return Conv2d(weight, np.zeros(outputs, np.float32), channels_last=True)


class Stack(eqx.Module):
    """A convolution, a max-pool that halves the image, then residual blocks: relu, conv, relu, conv, plus the input."""

    convs: tuple[Conv2d, ...]
    """The first, then two for each block."""

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, width: int, blocks: int) -> Stack:
        return cls(tuple(_xavier(rng, width if i else inputs, width) for i in range(1 + 2 * blocks)))

    def __call__(self, x: Any) -> Float[Array, "batch height width channels"]:
        x = ops.max_pool(self.convs[0](x), 3, 2)
        for first, second in zip(self.convs[1::2], self.convs[2::2], strict=True):
            x = x + second(ops.relu(first(ops.relu(x))))
        return x


class Impala(eqx.Module):
    """Stacks of convolutions, then a dense layer with GELU.

    >>> net = Impala.init(np.random.default_rng(0), (16, 16, 3), widths=(4, 4), blocks=1, hidden=(8,))
    >>> net(np.zeros((5, 16, 16, 3), np.uint8)).shape, net.width
    ((5, 8), 8)
    """

    stacks: tuple[Stack, ...]
    norm: LayerNorm | None
    """Over the channels of each place, or None."""
    dense: MLP
    shape: tuple[int, int, int] = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        shape: Sequence[int],
        widths: Sequence[int] = (16, 32, 32),
        blocks: int = 2,
        hidden: Sequence[int] = (512,),
        norm: bool = False,
    ) -> Impala:
        """`shape` is (height, width, channels); with `norm` the dense layers have a LayerNorm after their GELU, too."""
        height, width, channels = shape = image_shape(shape)
        inputs = (channels, *widths)
        stacks = tuple(Stack.init(rng, a, b, blocks) for a, b in zip(inputs[:-1], inputs[1:], strict=True))
        places = math.prod(-(-size // 2 ** len(widths)) for size in (height, width))
        dense = MLP.xavier(rng, places * inputs[-1], hidden, norm=norm)
        return cls(stacks, LayerNorm.init(inputs[-1], FLAX_EPS) if norm else None, dense, shape)

    @property
    def width(self) -> int:
        """Of the vectors that it makes."""
        return self.dense.layers[-1].weight.shape[-2]

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        x, rows = flat_images(observations, self.shape)
        x = ops.cast(x, self.dense.layers[0].weight) / 255
        for stack in self.stacks:
            x = stack(x)
        x = ops.relu(x)
        x = self.norm(x) if self.norm is not None else x
        return self.dense(x.reshape(*rows, math.prod(x.shape[1:])))
