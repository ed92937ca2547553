"""Operators that reduce axes."""

from __future__ import annotations

import jax.numpy as jnp

from twinax.port._table import operator


@operator("aten.sum.dim_IntList")
def sum_axes(x, axes=None, keepdim=False, *, dtype=None):
    return jnp.sum(x, axis=axes or None, keepdims=keepdim, dtype=dtype)


@operator("aten.mean.default")
def mean(x, *, dtype=None):
    return jnp.mean(x, dtype=dtype)
