"""Operators that reduce axes, and running sums. Ties and zeros have PyTorch's gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from twinax import ops
from twinax.port._table import operator
from twinax.port.operators.functions import as_floats

Axes = int | Sequence[int] | None


def axes_of(x: Any, axes: Axes) -> tuple[int, ...]:
    """Which axes are reduced: all if none are named. A number on its own may be said to have axis 0 or -1."""
    if axes is None or axes == ():
        return tuple(range(x.ndim))
    named = axes if isinstance(axes, Sequence) else (axes,)
    return tuple(axis % x.ndim for axis in named) if x.ndim else ()


def _as(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.astype(dtype)


@operator("aten.sum.dim_IntList", "aten.sum.default")
def sum_axes(x, axes=None, keepdim=False, *, dtype=None):
    return jnp.sum(_as(x, dtype), axes_of(x, axes), keepdims=keepdim)


@operator("aten.mean.default", "aten.mean.dim")
def mean(x, axes=None, keepdim=False, *, dtype=None):
    return jnp.mean(_as(x, dtype), axes_of(x, axes), keepdims=keepdim)


@operator("aten.prod.default")
def prod(x, *, dtype=None):
    return jnp.prod(_as(x, dtype))


@operator("aten.prod.dim_int")
def prod_axis(x, axis, keepdim=False, *, dtype=None):
    return jnp.prod(_as(x, dtype), axes_of(x, axis), keepdims=keepdim)


@operator("aten.var.correction")
def var(x, axes=None, *, correction=1, keepdim=False):
    return var_mean(x, axes, correction=correction, keepdim=keepdim)[0]


@operator("aten.var.dim")
def var_unbiased(x, axes, unbiased=True, keepdim=False):
    return var(x, axes, correction=int(unbiased), keepdim=keepdim)


@operator("aten.var_mean.correction")
def var_mean(x, axes=None, *, correction=1, keepdim=False):
    """The divisor is never less than 0; over nothing the result is NaN, or infinite."""
    axes = axes_of(x, axes)
    number = 1
    for axis in axes:
        number *= x.shape[axis]
    center = jnp.mean(x, axes, keepdims=True)
    squares = jnp.sum(jnp.square(x - center), axes, keepdims=keepdim)
    divisor = jnp.asarray(max(0.0, number - (1 if correction is None else correction)), squares.dtype)
    return squares / divisor, center if keepdim else jnp.squeeze(center, axes)


@operator("aten.std.correction")
def std(x, axes=None, *, correction=1, keepdim=False):
    """Where nothing varies the gradient is 0, not that of a square root."""
    return _root(var(x, axes, correction=correction, keepdim=keepdim))


@operator("aten.std_mean.correction")
def std_mean(x, axes=None, *, correction=1, keepdim=False):
    variance, center = var_mean(x, axes, correction=correction, keepdim=keepdim)
    return _root(variance), center


def _root(x: Any, order: float = 2) -> Any:
    """With no slope where it would be infinite."""
    settled = (x == 0) | jnp.isinf(x)
    inner = jnp.where(settled, 1, x)
    root = jnp.sqrt(inner) if order == 2 else inner ** (1 / order)
    return jnp.where(settled, lax.stop_gradient(x if order > 0 else 1 / x), root)


@operator("aten.linalg_vector_norm.default")
def vector_norm(x, order=2, axes=None, keepdim=False, *, dtype=None):
    """The norm of nothing but zeros has no slope."""
    x = _as(x, dtype)
    size, axes = ops.abs(x), axes_of(x, axes)
    if order == jnp.inf:
        return amax(size, axes, keepdim)
    if order == -jnp.inf:
        return amin(size, axes, keepdim)
    if order == 0:
        return jnp.sum(x != 0, axes, keepdims=keepdim)
    if order == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    if order == 2:
        return _root(jnp.sum(x * x, axes, keepdims=keepdim))
    zero = size == 0
    powers = jnp.where(zero, 0 if order > 0 else jnp.inf, jnp.where(zero, 1, size) ** order)
    return _root(jnp.sum(powers, axes, keepdims=keepdim), order)


@operator("aten.amax.default", "aten.max.default")
def amax(x, axes=None, keepdim=False):
    """Ties share the gradient."""
    return jnp.max(x, axes_of(x, axes), keepdims=keepdim)


@operator("aten.amin.default", "aten.min.default")
def amin(x, axes=None, keepdim=False):
    return jnp.min(x, axes_of(x, axes), keepdims=keepdim)


@operator("aten.max.dim")
def max_of_axis(x, axis, keepdim=False):
    """The largest and where it stands first, which gets the whole gradient."""
    index = argmax(x, axis, keepdim=True)
    return _picked(x, index, axis, keepdim)


@operator("aten.min.dim")
def min_of_axis(x, axis, keepdim=False):
    index = argmin(x, axis, keepdim=True)
    return _picked(x, index, axis, keepdim)


def _picked(x: Any, index: Any, axis: int, keepdim: bool) -> tuple[Any, Any]:
    """Entries at an index of an axis; a selection fuses with what surrounds it, and a gather does not."""
    if not x.ndim:
        return x, index
    hit = lax.broadcasted_iota(index.dtype, x.shape, axis % x.ndim) == index
    selected = jnp.where(hit, x, jnp.zeros((), x.dtype))
    values = jnp.any(selected, axis) if x.dtype == bool else jnp.sum(selected, axis, dtype=x.dtype)
    return (jnp.expand_dims(values, axis), index) if keepdim else (values, jnp.squeeze(index, axis))


@operator("aten.argmax.default")
def argmax(x, axis=None, keepdim=False):
    """The first of the largest; NaN is larger than any number."""
    return jnp.argmax(x, axis, keepdims=keepdim) if x.ndim else jnp.zeros((), int)


@operator("aten.argmin.default")
def argmin(x, axis=None, keepdim=False):
    return jnp.argmin(x, axis, keepdims=keepdim) if x.ndim else jnp.zeros((), int)


@operator("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_axes(x, axes=None, keepdim=False):
    return jnp.any(x, axes_of(x, axes), keepdims=keepdim)


@operator("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_axes(x, axes=None, keepdim=False):
    return jnp.all(x, axes_of(x, axes), keepdims=keepdim)


@operator("aten.logsumexp.default")
def logsumexp(x, axes, keepdim=False):
    """Of nothing, and of nothing but -inf, it is -inf, with no slope."""
    x, axes = as_floats(x), axes_of(x, axes)
    top = lax.stop_gradient(jnp.max(x, axes, keepdims=True, initial=-jnp.inf))
    top = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(x - top), axes, keepdims=True)
    found = jnp.where(total == 0, -jnp.inf, jnp.log(jnp.where(total == 0, 1, total)) + top)
    return found if keepdim else jnp.squeeze(found, axes)


@operator("aten._softmax.default", "aten.softmax.int")
def softmax(x, axis, half_to_float=False):
    return jax.nn.softmax(x, axes_of(x, axis))


@operator("aten._safe_softmax.default")
def safe_softmax(x, axis, dtype=None):
    """A row of nothing but -inf gives zeros."""
    x = _as(x, dtype)
    empty = jnp.all(x == -jnp.inf, axes_of(x, axis), keepdims=True)
    return jnp.where(empty, 0, softmax(jnp.where(empty, 0, x), axis))


@operator("aten._log_softmax.default", "aten.log_softmax.int")
def log_softmax(x, axis, half_to_float=False):
    return jax.nn.log_softmax(x, axes_of(x, axis))
