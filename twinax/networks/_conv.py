"""Convolutions with PyTorch's names, layout and initial distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks._layers import _in_precision_of
from twinax.types import Array

C = TypeVar("C", bound="_Conv")
Border = tuple[tuple[int, int], ...]
"""(before, after) of each axis of places."""


class _Conv(eqx.Module):
    weight: Array
    """(out, in / groups, *window)"""
    bias: Array | None
    stride: int = eqx.field(static=True, default=1)
    padding: Border | None = eqx.field(static=True, default=None)
    """Zeros around the places; None leaves ceil(size / stride) of them, as `ops.conv2d` says."""
    dilation: int = eqx.field(static=True, default=1)
    groups: int = eqx.field(static=True, default=1)
    channels_last: bool = eqx.field(static=True, default=False)
    """Whether the channels come after the places instead of before them."""

    AXES: ClassVar[int]
    """How many axes of places there are."""

    @classmethod
    def init(
        cls: type[C],
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        window: int | tuple[int, ...],
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        channels_last: bool = False,
    ) -> C:
        """PyTorch's default: weight and bias uniform on +-1/sqrt(inputs of an output)."""
        window = (window,) * cls.AXES if isinstance(window, int) else window
        name = cls.__name__
        sizes = {"inputs": inputs, "outputs": outputs, "stride": stride, "dilation": dilation, "groups": groups}
        if bad := {key: n for key, n in {**sizes, "window": min(window)}.items() if n < 1}:
            raise TwinaxError(f"a {name} has {bad}; every size must be at least 1")
        if inputs % groups or outputs % groups:
            raise TwinaxError(
                f"a {name} from {inputs} to {outputs} channels cannot be parted into {groups} equal groups; take a "
                "divisor of both"
            )
        if padding not in ("same", "valid") and (isinstance(padding, str) or padding < 0):
            raise TwinaxError(f"the padding of a {name} is {padding!r}; give a number of zeros, 'same' or 'valid'")
        zeros = 0 if isinstance(padding, str) else padding
        border = None if padding == "same" else ((zeros, zeros),) * len(window)
        bound = 1 / math.sqrt(inputs // groups * math.prod(window))
        weight = rng.uniform(-bound, bound, (outputs, inputs // groups, *window)).astype(np.float32)
        shift = rng.uniform(-bound, bound, outputs).astype(np.float32) if bias else None
        return cls(weight, shift, stride, border, dilation, groups, channels_last)


class Conv2d(_Conv):
    """A convolution of images (..., channels, height, width), or (..., height, width, channels) if channels are last.

    >>> layer = Conv2d.init(np.random.default_rng(0), inputs=3, outputs=8, window=3, stride=2, padding=1)
    >>> layer(np.zeros((5, 3, 16, 16), np.float32)).shape
    (5, 8, 8, 8)
    """

    AXES: ClassVar[int] = 2

    def __call__(self, x: Any) -> Array:
        return _convolve(self, x, self.weight, self.padding, 2)


class Conv1d(_Conv):
    """A convolution of series (..., channels, length), or (..., length, channels) if channels are last.

    >>> layer = Conv1d.init(np.random.default_rng(0), inputs=3, outputs=8, window=5, padding="same")
    >>> layer(np.zeros((5, 3, 16), np.float32)).shape
    (5, 8, 16)
    """

    AXES: ClassVar[int] = 1

    def __call__(self, x: Any) -> Array:
        border = None if self.padding is None else ((0, 0), *self.padding)
        return _convolve(self, x, self.weight[:, :, None], border, 1)


def _convolve(layer: _Conv, x: Any, weight: Any, border: Border | None, axes: int) -> Array:
    """The layer's convolution of images or, with one axis of places, of series."""
    x = _in_precision_of(weight, x)
    last = layer.channels_last
    rows = x.shape[: -1 - axes]
    if len(rows) != 1:
        x = x.reshape(math.prod(rows), *x.shape[-1 - axes :])
    if axes == 1:
        # A series is an image of height 1.
        x = x[:, None] if last else x[:, :, None]
    y = ops.conv2d(x, weight, layer.bias, layer.stride, border, layer.dilation, layer.groups, last)
    if axes == 1:
        y = y[:, 0] if last else y[:, :, 0]
    return y if len(rows) == 1 else y.reshape(*rows, *y.shape[1:])
