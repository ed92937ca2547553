"""Encoders of observations: images to vectors by convolutions, and states by a perceptron.

Images are (..., height, width, channels) with numbers from 0 to 255; the channels of stacked frames lie side by side.
Every network that reads images has an encoder of its own. It stands outside of ensembles, so the heads of a critic
share one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import LayerNorm
from twinax.offline._networks import NORM_EPS, Bilinear, Encoded, Metric, Perceptron
from twinax.types import Array, Float

Border = tuple[tuple[int, int], tuple[int, int]]
Maker = Callable[[np.random.Generator, Sequence[int]], Any]
"""(generator, shape of an observation) -> encoder"""

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal variable between -2 and 2."""


class Conv(eqx.Module):
    """A convolution with `weight` of shape (out, in, height, width), on images (batch, height, width, in)."""

    weight: Array
    bias: Array | None
    stride: int = eqx.field(static=True, default=1)
    padding: Border | None = eqx.field(static=True, default=None)
    """(before, after) of the height and of the width; None is what `ops.conv2d` calls SAME."""

    @classmethod
    def xavier(cls, rng: np.random.Generator, inputs: int, outputs: int, window: int = 3) -> Conv:
        """Weight uniform on +-sqrt(6 / (fan in + fan out)), bias zero."""
        bound = math.sqrt(6 / ((inputs + outputs) * window**2))
        weight = rng.uniform(-bound, bound, (outputs, inputs, window, window)).astype(np.float32)
        return cls(weight, np.zeros(outputs, np.float32))

    @classmethod
    def kaiming(
        cls,
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        window: int = 3,
        stride: int = 1,
        padding: Border | None = None,
    ) -> Conv:
        """Weight normal with variance 2 / fan in, cut at two standard deviations as Flax does; no bias."""
        z = rng.normal(size=(outputs, inputs, window, window))
        while (far := np.abs(z) > 2).any():
            z[far] = rng.normal(size=int(far.sum()))
        scale = math.sqrt(2 / (inputs * window**2)) / TRUNCATED_STD
        return cls((scale * z).astype(np.float32), None, stride, padding)

    def __call__(self, x: Any) -> Float[Array, "batch height width channels"]:
        return ops.conv2d(x, self.weight, self.bias, self.stride, self.padding)


class GroupNorm(eqx.Module):
    """Mean 0 and variance 1 over an image and over a group of neighbouring channels, then a scale and a shift."""

    weight: Array
    bias: Array
    groups: int = eqx.field(static=True, default=4)

    @classmethod
    def init(cls, width: int, groups: int = 4) -> GroupNorm:
        if width % groups:
            raise TwinaxError(f"{width} channels cannot be parted into {groups} equal groups; take a multiple")
        return cls(np.ones(width, np.float32), np.zeros(width, np.float32), groups)

    def __call__(self, x: Any) -> Float[Array, "batch height width channels"]:
        batch, height, width, channels = x.shape
        parts = x.reshape(batch, height * width, self.groups, channels // self.groups)
        centred = parts - ops.mean(parts, (1, 3))[:, None, :, None]
        spread = ops.mean(centred * centred, (1, 3))[:, None, :, None]
        return (centred / ops.sqrt(spread + 1e-5)).reshape(x.shape) * self.weight + self.bias


class Stack(eqx.Module):
    """A convolution, a max-pool that halves the image, then residual blocks: relu, conv, relu, conv, plus the input."""

    convs: tuple[Conv, ...]
    """The first, then two for each block."""

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, width: int, blocks: int) -> Stack:
        return cls(tuple(Conv.xavier(rng, width if i else inputs, width) for i in range(1 + 2 * blocks)))

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
    dense: Perceptron
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
        height, width, channels = shape = _image_shape(shape)
        inputs = (channels, *widths)
        stacks = tuple(Stack.init(rng, a, b, blocks) for a, b in zip(inputs[:-1], inputs[1:], strict=True))
        places = math.prod(-(-size // 2 ** len(widths)) for size in (height, width))
        dense = Perceptron.init(rng, places * inputs[-1], hidden, norm=norm)
        return cls(stacks, LayerNorm.init(inputs[-1], NORM_EPS) if norm else None, dense, shape)

    @property
    def width(self) -> int:
        """Of the vectors that it makes."""
        return self.dense.layers[-1].weight.shape[-2]

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        x, rows = _images(observations, self.shape)
        x = ops.cast(x, self.dense.layers[0].weight) / 255
        for stack in self.stacks:
            x = stack(x)
        x = ops.relu(x)
        x = self.norm(x) if self.norm is not None else x
        return self.dense(x.reshape(*rows, math.prod(x.shape[1:])))


class ResidualBlock(eqx.Module):
    """conv, norm, swish, conv, norm, plus the input (projected if its shape differs), swish."""

    convs: tuple[Conv, Conv]
    norms: tuple[GroupNorm, GroupNorm]
    projection: Conv | None
    projection_norm: GroupNorm | None

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, width: int, stride: int) -> ResidualBlock:
        convs = Conv.kaiming(rng, inputs, width, stride=stride), Conv.kaiming(rng, width, width)
        norms = GroupNorm.init(width), GroupNorm.init(width)
        if inputs == width and stride == 1:
            return cls(convs, norms, None, None)
        return cls(convs, norms, Conv.kaiming(rng, inputs, width, 1, stride), GroupNorm.init(width))

    def __call__(self, x: Any) -> Float[Array, "batch height width channels"]:
        y = _swish(self.norms[0](self.convs[0](x)))
        y = self.norms[1](self.convs[1](y))
        if self.projection is not None and self.projection_norm is not None:
            x = self.projection_norm(self.projection(x))
        return _swish(x + y)


class ResNet(eqx.Module):
    """Residual blocks with group norms on an image and its coordinates, then the mean over the image."""

    first: Conv
    first_norm: GroupNorm
    blocks: tuple[ResidualBlock, ...]
    shape: tuple[int, int, int] = eqx.field(static=True)

    @classmethod
    def init(
        cls, rng: np.random.Generator, shape: Sequence[int], stages: Sequence[int] = (3, 4, 6, 3), width: int = 64
    ) -> ResNet:
        """`stages` are numbers of blocks; each stage after the first halves the image and doubles the width."""
        shape = _image_shape(shape)
        first = Conv.kaiming(rng, shape[-1] + 2, width, 7, 2, ((3, 3), (3, 3)))
        blocks, inputs = [], width
        for stage, number in enumerate(stages):
            for i in range(number):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(ResidualBlock.init(rng, inputs, width * 2**stage, stride))
                inputs = width * 2**stage
        return cls(first, GroupNorm.init(width), tuple(blocks), shape)

    @property
    def width(self) -> int:
        """Of the vectors that it makes."""
        return self.blocks[-1].convs[-1].weight.shape[-4]

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        x, rows = _images(observations, self.shape)
        x = ops.cast(x, self.first.weight) / 127.5 - 1
        x = ops.concat([x, ops.broadcast(_coordinates(self.shape, x), (*x.shape[:-1], 2))], -1)
        x = ops.max_pool(_swish(self.first_norm(self.first(x))), 3, 2)
        for block in self.blocks:
            x = block(x)
        return ops.mean(x, (1, 2)).reshape(*rows, self.width)


class StateEncoder(eqx.Module):
    """A perceptron on vectors; its last layer is linear."""

    net: Perceptron

    @classmethod
    def init(
        cls, rng: np.random.Generator, shape: Sequence[int], hidden: Sequence[int] = (512, 512, 512, 512)
    ) -> StateEncoder:
        if len(shape) != 1 or shape[0] < 1:
            raise TwinaxError(
                f"the encoder 'mlp' reads vectors, but an observation has shape {tuple(shape)}; for images take "
                "'impala_small'"
            )
        return cls(Perceptron.init(rng, shape[0], hidden[:-1], hidden[-1]))

    @property
    def width(self) -> int:
        """Of the vectors that it makes."""
        return self.net.layers[-1].weight.shape[-2]

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        wanted = self.net.layers[0].weight.shape[-1]
        if not observations.shape or observations.shape[-1] != wanted:
            raise TwinaxError(
                f"the encoder reads vectors of width {wanted}, but the observations have shape "
                f"{tuple(observations.shape)}"
            )
        return self.net(observations)


ENCODERS: dict[str, Maker] = {
    "impala": Impala.init,
    "impala_small": partial(Impala.init, blocks=1),
    "impala_debug": partial(Impala.init, widths=(4, 4), blocks=1),
    "impala_large": partial(Impala.init, widths=(64, 128, 128), hidden=(1024,)),
    "resnet_34": ResNet.init,
    "mlp": StateEncoder.init,
}
"""Makers of encoders by name; all but `mlp` read images."""


def encoder(name: str) -> Maker:
    """The maker of an encoder by name; unknown names list the known ones.

    >>> encoder("mlp")(np.random.default_rng(0), (3,)).width
    512
    """
    if name not in ENCODERS:
        raise UnknownName("encoder", name, ENCODERS)
    return ENCODERS[name]


def make_encoder(name: str, rng: np.random.Generator, observation_shape: Sequence[int]) -> Any:
    """An encoder with its first weights; `.width` is that of the vectors it makes.

    >>> make_encoder("impala_debug", np.random.default_rng(0), (16, 16, 3)).width
    512
    """
    return encoder(name)(rng, observation_shape)


def with_encoders(net: Any, make: Callable[[], Any], goal: bool = False) -> Any:
    """A network behind encoders of its own, each made by `make`.

    Its first argument is a state, and with `goal` its second one a goal. A bilinear network has one for states and one
    for goals, a metric one for both; the others' further arguments are actions and latents, which are not encoded.
    """
    if isinstance(net, Bilinear):
        return dataclasses.replace(net, phi=Encoded(make(), net.phi), psi=Encoded(make(), net.psi))
    if isinstance(net, Metric):
        return dataclasses.replace(net, phi=Encoded(make(), net.phi))
    return Encoded(make(), net, goal_encoder=make() if goal else None)


def _swish(x: Any) -> Array:
    return x * ops.sigmoid(x)


def _coordinates(shape: tuple[int, int, int], like: Any) -> Array:
    """How far down and how far across each place is, from -1 to 1."""
    grid = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape[:2]), indexing="ij")
    return ops.cast(ops.like(np.stack(grid, -1), like), like)


def _image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape) < 1:
        raise TwinaxError(
            f"an image encoder reads (height, width, channels), but an observation has shape {tuple(shape)}; for "
            "vectors take the encoder 'mlp'"
        )
    height, width, channels = shape
    return int(height), int(width), int(channels)


def _images(x: Any, shape: tuple[int, int, int]) -> tuple[Array, tuple[int, ...]]:
    """Images with one leading axis, and the leading axes that they had."""
    if tuple(x.shape[-3:]) != shape:
        raise TwinaxError(
            f"the encoder reads images of shape {shape}, but the observations have shape {tuple(x.shape)}"
        )
    rows = tuple(x.shape[:-3])
    return x.reshape(math.prod(rows), *shape), rows
