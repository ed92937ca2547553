"""Convolutions of one, two and three axes, and their transposes."""

from __future__ import annotations

import math

from jax import lax

from twinax.port._table import operator


@operator("aten.convolution.default")
def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """PyTorch's layout is given to XLA as it is: turned round to channels last it was no quicker, nor as products."""
    axes = weight.ndim - 2
    stride, padding, dilation, extra = (each_axis(one, axes) for one in (stride, padding, dilation, output_padding))
    unbatched = x.ndim == weight.ndim - 1
    x = x[None] if unbatched else x
    border, apart = [(n, n) for n in padding], None
    if transposed:
        covered = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        border = [(c - p, c - p + e) for c, p, e in zip(covered, padding, extra, strict=True)]
        weight, stride, apart = mirrored(weight, groups), (1,) * axes, stride
    letters = "DHW"[3 - axes :]
    layout = ("NC" + letters, "OI" + letters, "NC" + letters)
    y = lax.conv_general_dilated(
        x, weight, stride, border, apart, dilation, dimension_numbers=layout, feature_group_count=groups
    )
    y = y if bias is None else y + bias.reshape(-1, *[1] * axes)
    return y[0] if unbatched else y


def mirrored(weight, groups):
    """The weight with which a transposed convolution is one: turned round, inputs for outputs in each group."""
    inputs, outputs, *window = weight.shape
    weight = lax.rev(weight, tuple(range(2, weight.ndim)))
    weight = weight.reshape(groups, inputs // groups, outputs, math.prod(window)).swapaxes(1, 2)
    return weight.reshape(groups * outputs, inputs // groups, *window)


def each_axis(value, axes):
    """One number for each axis, where PyTorch also takes one for all."""
    value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return value * axes if len(value) == 1 else value
