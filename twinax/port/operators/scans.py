"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator


@operator("aten.cumsum.default")
def cumsum(x, axis, *, dtype=None):
    return jnp.cumsum(x, axis, dtype=dtype) if x.ndim else x


@operator("aten.cumprod.default")
def cumprod(x, axis, *, dtype=None):
    return jnp.cumprod(x, axis, dtype=dtype) if x.ndim else x


@operator("aten.logcumsumexp.default")
def logcumsumexp(x, axis):
    return lax.cumlogsumexp(x, axis % x.ndim) if x.ndim else x


@operator("aten.cummax.default")
def cummax(x, axis):
    """The largest so far and where it stood last."""
    return _running(x, axis, lambda new, old: new >= old)


@operator("aten.cummin.default")
def cummin(x, axis):
    return _running(x, axis, lambda new, old: new <= old)


def _running(x: Any, axis: int, better: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    if not x.ndim:
        return x, jnp.zeros((), int)
    axis = axis % x.ndim

    def later(old, new):
        (old_value, old_index), (new_value, new_index) = old, new
        chosen = better(new_value, old_value) | (new_value != new_value)
        return jnp.where(chosen, new_value, old_value), jnp.where(chosen, new_index, old_index)

    places = lax.broadcasted_iota(int, x.shape, axis)
    _, index = lax.associative_scan(later, (lax.stop_gradient(x), places), axis=axis)
    return jnp.take_along_axis(x, index, axis), index
