"""Operators that make arrays."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from twinax.port._table import operator


@operator("aten.arange.default")
def arange_to(end, *, dtype=None):
    return arange(0, end, dtype=dtype)


@operator("aten.arange.start", "aten.arange.start_step")
def arange(start, end, step=1, *, dtype=None):
    """Integers are counted where they are needed; fractions are worked out beforehand, in doubles as PyTorch does."""
    if dtype is not None and jnp.issubdtype(dtype, jnp.integer):
        start, end, step = int(start), int(end), int(step)
    number = max(math.ceil((end - start) / step), 0)
    if all(isinstance(x, int) for x in (start, end, step)):
        return start + step * jnp.arange(number)
    return jnp.asarray(start + step * np.arange(number, dtype=np.float64), dtype)


@operator("aten.full.default", "aten.new_full.default")
def full(*given, dtype=None):
    """A size and a value; an array before them only tells the dtype."""
    size, value = given[-2:]
    return jnp.full(size, value, dtype)


@operator("aten.full_like.default")
def full_like(x, value, *, dtype=None):
    return jnp.full(x.shape, value, dtype or x.dtype)


@operator("aten.scalar_tensor.default")
def scalar_tensor(value, *, dtype=None):
    return jnp.asarray(value, dtype)


@operator("aten.zeros.default")
def zeros(size, *, dtype=None):
    return jnp.zeros(size, dtype)


@operator("aten.ones.default")
def ones(size, *, dtype=None):
    return jnp.ones(size, dtype)


@operator("aten.zeros_like.default")
def zeros_like(x, *, dtype=None):
    return jnp.zeros(x.shape, dtype or x.dtype)


@operator("aten.ones_like.default")
def ones_like(x, *, dtype=None):
    return jnp.ones(x.shape, dtype or x.dtype)


@operator("aten.empty.memory_format", "aten.empty_strided.default", "aten.empty_permuted.default")
def empty(size, order=None, *, dtype=None):
    """What PyTorch leaves open is zero here; strides and the order of axes say how it would lie in memory."""
    return jnp.zeros(size, dtype)


@operator(
    "aten.empty_like.default", "aten.new_empty.default", "aten.new_zeros.default", "aten.new_empty_strided.default"
)
def new_empty(x, size=None, strides=None, *, dtype=None):
    return jnp.zeros(x.shape if size is None else size, dtype or x.dtype)


@operator("aten.new_ones.default")
def new_ones(x, size, *, dtype=None):
    return jnp.ones(size, dtype or x.dtype)


@operator("aten.eye.default", "aten.eye.m")
def eye(rows, columns=None, *, dtype=None):
    return jnp.eye(rows, columns, dtype=dtype)


@operator("aten.linspace.default")
def linspace(start, end, steps, *, dtype=None):
    return jnp.asarray(np.linspace(start, end, steps), dtype)


@operator("aten.tril_indices.default")
def tril_indices(rows, columns, offset=0, *, dtype=None):
    return jnp.asarray(np.stack(np.tril_indices(rows, offset, columns)), int)


@operator("aten.triu_indices.default")
def triu_indices(rows, columns, offset=0, *, dtype=None):
    return jnp.asarray(np.stack(np.triu_indices(rows, offset, columns)), int)
