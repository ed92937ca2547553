"""Images as columns of their patches, and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from twinax.port._table import operator
from twinax.port.operators.windows import windows_of


@operator("aten.im2col.default")
def im2col(x, kernel, dilation, padding, stride):
    """[..., channel, row, column] as [..., channel x place in the window, window]."""
    down, across = windows_of(x.shape[-2:], kernel, stride, padding, dilation, False)
    rows = [jnp.stack(list(across.taps(row, x.ndim - 1, 0)), -3) for row in down.taps(x, x.ndim - 2, 0)]
    patches = jnp.stack(rows, -4)
    return patches.reshape(*x.shape[:-3], -1, down.out * across.out)


@operator("aten.col2im.default")
def col2im(x, size, kernel, dilation, padding, stride):
    """Patches added up where they overlap, which is the transpose of taking them."""
    channels = x.shape[-2] // (kernel[0] * kernel[-1])
    image = jax.ShapeDtypeStruct((*x.shape[:-2], channels, *size), x.dtype)
    return jax.linear_transpose(lambda one: im2col(one, kernel, dilation, padding, stride), image)(x)[0]
