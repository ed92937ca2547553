"""Operators that order entries. NaN is larger than any number, and entries that tie stay in their order."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator
from twinax.port.operators.reduction import amax


@operator("aten.sort.default")
def sort(x, axis=-1, descending=False):
    """Values and where they stood."""
    if not x.ndim:
        return x, jnp.zeros((), int)
    axis = axis % x.ndim
    places = lax.broadcasted_iota(int, x.shape, axis)
    if not descending:
        return lax.sort((x, places), dimension=axis, num_keys=1)
    # Turned around before and after: so ties keep their order though the whole is reversed.
    turned = (jnp.flip(x, axis), jnp.flip(places, axis))
    return tuple(jnp.flip(one, axis) for one in lax.sort(turned, dimension=axis, num_keys=1))


@operator("aten.sort.stable")
def sort_stable(x, *, stable=True, dim=-1, descending=False):
    return sort(x, dim, descending)


@operator("aten.topk.default")
def topk(x, k, axis=-1, largest=True, sorted=True):
    if not x.ndim:
        return x, jnp.zeros((), int)
    if largest:
        values, index = lax.top_k(jnp.moveaxis(x, axis, -1), k)
        return jnp.moveaxis(values, -1, axis), jnp.moveaxis(index, -1, axis)
    values, index = sort(x, axis)
    return lax.slice_in_dim(values, 0, k, axis=axis), lax.slice_in_dim(index, 0, k, axis=axis)


@operator("aten.kthvalue.default")
def kthvalue(x, k, axis=-1, keepdim=False):
    """The k-th smallest, counted from 1."""
    if not x.ndim:
        return x, jnp.zeros((), int)
    return _one_of(sort(x, axis), k - 1, axis, keepdim)


@operator("aten.median.dim")
def median_of_axis(x, axis, keepdim=False):
    """The lower of the two in the middle; NaN if there is one."""
    if not x.ndim:
        return x, jnp.zeros((), int)
    values, index = sort(x, axis)
    middle = _one_of((values, index), (x.shape[axis] - 1) // 2, axis, keepdim)
    last = _one_of((values, index), x.shape[axis] - 1, axis, keepdim)
    spoiled = last[0] != last[0]
    return tuple(jnp.where(spoiled, b, a) for a, b in zip(middle, last, strict=True))


@operator("aten.median.default")
def median(x):
    """Entries that tie share the gradient."""
    found = lax.stop_gradient(median_of_axis(jnp.ravel(x), 0)[0])
    same = (x == found) | ((x != x) & (found != found))
    return amax(jnp.where(same, x, -jnp.inf)) if jnp.issubdtype(x.dtype, jnp.floating) else found


def _one_of(pair: tuple[Any, Any], place: int, axis: int, keepdim: bool) -> tuple[Any, Any]:
    found = (lax.slice_in_dim(one, place, place + 1, axis=axis) for one in pair)
    values, index = found if keepdim else (jnp.squeeze(one, axis) for one in found)
    return values, index
