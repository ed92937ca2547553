"""Copies, casts, and where gradients stop."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator


@operator("aten._to_copy.default")
def to_copy(x, *, dtype=None):
    """A float becomes an integer by losing what follows the point."""
    return x if dtype is None else jnp.asarray(x).astype(dtype)


@operator("aten.copy.default")
def copy(x, source):
    """The other's numbers, in the shape and dtype of the first."""
    return jnp.broadcast_to(source, x.shape).astype(x.dtype)


@operator("aten.fill.Scalar", "aten.fill.Tensor")
def fill(x, value):
    return jnp.broadcast_to(jnp.asarray(value, x.dtype), x.shape)


@operator("twinax.stop_gradient.default", "aten.detach.default")
def stop_gradient(x):
    return lax.stop_gradient(x)
