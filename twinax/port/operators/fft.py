"""Fourier transforms, and complex numbers as pairs of real ones."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator


@operator("aten._fft_r2c.default")
def fft_r2c(x, axes, normalization, onesided):
    transform = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return scaled(transform(x, axes=axes), [x.shape[axis] for axis in axes], normalization)


@operator("aten._fft_c2c.default")
def fft_c2c(x, axes, normalization, forward):
    y = jnp.fft.fftn(x, axes=axes) if forward else jnp.fft.ifftn(x, axes=axes, norm="forward")
    return scaled(y, [x.shape[axis] for axis in axes], normalization)


@operator("aten._fft_c2r.default")
def fft_c2r(x, axes, normalization, last_size):
    sizes = [*(x.shape[axis] for axis in axes[:-1]), last_size]
    return scaled(jnp.fft.irfftn(x, s=sizes, axes=axes, norm="forward"), sizes, normalization)


def scaled(y, sizes, normalization):
    """By nothing, by the root of the number of entries, or by their number."""
    number = math.prod(sizes)
    return y if normalization == 0 else y / (math.sqrt(number) if normalization == 1 else number)


@operator("aten.view_as_real.default")
def view_as_real(x):
    return jnp.stack([x.real, x.imag], -1)


@operator("aten.view_as_complex.default")
def view_as_complex(x):
    return lax.complex(x[..., 0], x[..., 1])
