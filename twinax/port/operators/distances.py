"""Distances between rows. PyTorch gives them no gradient where they are zero."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from twinax import ops
from twinax.port._table import operator


@operator("aten._cdist_forward.default")
def cdist(x, y, p, compute_mode=None):
    return length(x[..., :, None, :] - y[..., None, :, :], p)


@operator("aten._pdist_forward.default")
def pdist(x, p=2.0):
    first, second = np.triu_indices(x.shape[0], 1)
    return length(x[first] - x[second], p)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def length(difference, p):
    """The p-norm of the last axis."""
    size = jnp.abs(difference)
    if p == 0:
        return jnp.sum((size != 0).astype(size.dtype), -1)
    if p == 1:
        return jnp.sum(size, -1)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, -1))
    if p == float("inf"):
        return jnp.max(size, -1, initial=0)
    return jnp.sum(size**p, -1) ** (1 / p)


@length.defjvp
def _length_tangent(p, primals, tangents):
    (difference,), (tangent,) = primals, tangents
    found = length(difference, p)
    return found, jnp.sum(slope(difference, found[..., None], p) * tangent, -1)


def slope(difference, found, p):
    """The derivative of the p-norm by each entry: zero where the norm or, for p below one, the entry is."""
    sign, size = jnp.sign(difference), jnp.abs(difference)
    if p == 0:
        return jnp.zeros_like(difference)
    if p == 1:
        return sign
    if p == float("inf"):  # all that reach the maximum have the whole slope
        return ops.where(size == found, sign, 0)
    none = (found == 0) | (size == 0) if p < 1 else found == 0
    safe = ops.where(none, 1, found)
    if p == 2:
        return ops.where(none, 0, difference / safe)
    return ops.where(none, 0, sign * (ops.where(none, 1, size) / safe) ** (p - 1))
