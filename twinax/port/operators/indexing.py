"""Operators that read and write by index.

Where PyTorch wants each entry to be written at most once, but does not see to it, the gradient goes to all who wrote,
as PyTorch's does. Indices along an axis that only pick one are comparisons, which fuse with what surrounds them; a
gather and its scattering gradient do not.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from twinax.errors import TwinaxError
from twinax.port._indices import within
from twinax.port._table import leave_out, operator

FEW = 64
"""Up to so many entries, one of them is found by comparing rather than by a gather."""


# Reading


@operator("aten.gather.default")
def gather(x, axis, index, sparse_grad=False):
    if x.ndim == 0:
        within(index, 1)
        return jnp.broadcast_to(x, index.shape)
    if index.ndim == 0:
        return gather(x, 0, index[None])[0]
    axis = axis % x.ndim
    within(index, x.shape[axis])
    x = _cut(x, tuple(old if k == axis else new for k, (old, new) in enumerate(zip(x.shape, index.shape, strict=True))))
    if index.shape[axis] == 1 and 0 < x.shape[axis] <= FEW:
        picked: Any = jnp.where(_hit(x, axis, index), x, jnp.zeros((), x.dtype))
        return jnp.sum(picked, axis, keepdims=True)
    return jnp.take_along_axis(x, index, axis, mode="clip")


@operator("aten.index_select.default")
def index_select(x, axis, index):
    if x.ndim == 0:
        return jnp.broadcast_to(x, (1,) * index.ndim)[()] if index.ndim == 0 else x
    within(index, x.shape[axis])
    return jnp.take(x, jnp.ravel(index), axis, mode="clip")


@operator("aten.index.Tensor")
def index_tensor(x, indices):
    """Integers, which count from the end where they are negative, constant masks, and None for a whole axis."""
    return x.at[_places(x, indices)].get(mode="clip")


@operator("aten.take.default")
def take(x, index):
    return index_tensor(jnp.ravel(x), (index,))


@operator("aten.embedding.default")
def embedding(weight, indices, padding=-1, scale_by_frequency=False, sparse=False):
    """No gradient reaches the row of padding; divided by how often a row is read, if asked for."""
    within(indices, weight.shape[0])
    rows = jnp.take(weight, indices, 0, mode="clip")
    if scale_by_frequency:
        rows = _slower(rows, _frequency(indices, weight.shape[0])[..., None])
    if padding >= 0:
        rows = jnp.where((indices == padding)[..., None], jax.lax.stop_gradient(rows), rows)
    return rows


def _frequency(indices: Any, size: int) -> Any:
    """How often each index comes among all."""
    return jnp.take(jnp.zeros(size, jnp.int32).at[indices].add(1), indices, mode="clip")


@jax.custom_jvp
def _slower(x: Any, times: Any) -> Any:
    """The same numbers, with a gradient divided by `times`."""
    return x


@_slower.defjvp
def _(primals, tangents):
    return primals[0], tangents[0] / primals[1]


@operator("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    weight,
    indices,
    offsets,
    scale_by_frequency=False,
    mode=0,
    sparse=False,
    weights=None,
    include_last_offset=False,
    padding=-1,
):
    """Sums (0), means (1) or largest entries (2) of rows, bag by bag; a bag begins at each offset.

    PyTorch's other results serve its own backward pass, and are not made.
    """
    within(indices, weight.shape[0])
    bags = offsets.shape[0] - include_last_offset
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(indices.shape[0]), side="right") - 1
    counted = indices != padding
    rows = embedding(weight, indices, -1, scale_by_frequency)
    if mode == 2:
        return _largest_of_bags(rows, bag, counted, bags), None, None, None
    if weights is not None:
        rows = rows * weights[:, None]
    total = jnp.zeros((bags, weight.shape[1]), rows.dtype).at[bag].add(jnp.where(counted[:, None], rows, 0))
    if mode == 1:
        total = total / jnp.maximum(jnp.zeros(bags, rows.dtype).at[bag].add(counted), 1)[:, None]
    return total, None, None, None


def _largest_of_bags(rows: Any, bag: Any, counted: Any, bags: int) -> Any:
    """The gradient goes to the first of equal rows; an empty bag has zeros."""
    number, width = rows.shape
    if number == 0:
        return jnp.zeros((bags, width), rows.dtype)
    shown = jnp.where(counted[:, None], jax.lax.stop_gradient(rows), -jnp.inf)
    best = jnp.full((bags, width), -jnp.inf, rows.dtype).at[bag].max(shown)
    winner = counted[:, None] & (shown == best[bag])
    place: Any = jnp.where(winner, jnp.arange(number)[:, None], number)
    first = jnp.full((bags, width), number, place.dtype).at[bag].min(place)
    return jnp.where(first < number, jnp.take_along_axis(rows, first, 0, mode="clip"), 0)


@operator("aten.nonzero_static.default")
def nonzero_static(x, *, size, fill_value=-1):
    return jnp.stack(jnp.nonzero(x, size=size, fill_value=fill_value), -1) if x.ndim else jnp.zeros((size, 0), int)


@operator("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(x, boundaries, *, out_int32=False, right=False):
    return searchsorted(boundaries, x, right=right)


@operator("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(ordered, values, *, out_int32=False, right=False, side=None, sorter=None):
    """Into one row, or row by row into as many as there are of values. Comparing with a few entries fuses."""
    values = jnp.asarray(values)
    if sorter is not None:
        ordered = jnp.take_along_axis(ordered, sorter, -1)
    find = functools.partial(
        jnp.searchsorted,
        side="right" if right or side == "right" else "left",
        method="compare_all" if ordered.shape[-1] <= FEW else "scan",
    )
    if ordered.ndim == 1:
        return find(ordered, values)
    rows = jax.vmap(find)(ordered.reshape(-1, ordered.shape[-1]), values.reshape(-1, values.shape[-1]))
    return rows.reshape(values.shape)


# Writing


@operator("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(x, indices, values, accumulate=False):
    if any(_is_mask(i) and isinstance(i, Tracer) for i in indices):
        return _put_by_mask(x, indices, values, accumulate)
    places = _places(x, indices)
    values = values.astype(x.dtype)
    if accumulate:
        return x.at[places].add(values)
    shape = jax.eval_shape(lambda y: y[places], x).shape
    return _put(x, _without_slices(places), jnp.broadcast_to(values, shape))


def _put_by_mask(x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    """Where a computed mask is True: the values in turn, or the one that there is."""
    named = [k for k, index in enumerate(indices) if index is not None]
    if len(named) != 1:
        raise TwinaxError(
            "a mask that is computed stands beside other indices, so the number of entries is not known beforehand; "
            "choose with torch.where"
        )
    (before,), mask = named, indices[named[0]]
    after = x.ndim - before - mask.ndim
    if values.ndim > after:
        turn = jnp.cumsum(jnp.ravel(mask)) - 1 if values.shape[-after - 1] != 1 else jnp.zeros(mask.size, jnp.int32)
        values = jnp.take(values, turn.reshape(mask.shape), values.ndim - after - 1, mode="clip")
    mask = mask.reshape(mask.shape + (1,) * after)
    values = values.astype(x.dtype)
    return jnp.where(mask, x + values if accumulate else values, x)


@operator("aten.put.default")
def put(x, index, source, accumulate=False):
    return index_put(jnp.ravel(x), (index,), source.reshape(index.shape), accumulate).reshape(x.shape)


@operator("aten.masked_scatter.default")
def masked_scatter(x, mask, source):
    """The source's entries in turn, wherever the mask is True."""
    mask = jnp.broadcast_to(mask, x.shape)
    if source.size == 0:
        return x
    turn = jnp.cumsum(jnp.ravel(mask)).reshape(x.shape) - 1
    return jnp.where(mask, jnp.take(jnp.ravel(source), turn, mode="clip"), x)


@operator("aten.scatter.src")
def scatter(x, axis, index, source):
    x, axis, index, source, shape = _along(x, axis, index, source)
    if _picks_one(x, axis, index):
        return jnp.where(_hit(x, axis, index), source, x).reshape(shape)
    return _put(x, _grid(axis, index), source).reshape(shape)


@operator("aten.scatter.value")
def scatter_value(x, axis, index, value):
    return scatter(x, axis, index, jnp.full(index.shape, value, x.dtype))


@operator("aten.scatter_add.default")
def scatter_add(x, axis, index, source):
    x, axis, index, source, shape = _along(x, axis, index, source)
    if _picks_one(x, axis, index):
        return (x + jnp.where(_hit(x, axis, index), source, jnp.zeros((), x.dtype))).reshape(shape)
    return x.at[_grid(axis, index)].add(source).reshape(shape)


REDUCTIONS = {"add": "sum", "multiply": "prod"}


@operator("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_with(x, axis, index, source, *, reduce):
    source = source if hasattr(source, "shape") else jnp.full(index.shape, source, x.dtype)
    return scatter_reduce(x, axis, index, source, REDUCTIONS[reduce])


@operator("aten.scatter_reduce.two")
def scatter_reduce(x, axis, index, source, reduce, *, include_self=True):
    """Sources that share an entry are reduced, with what the entry was before if that is included."""
    x, axis, index, source, shape = _along(x, axis, index, source)
    places = _grid(axis, index)
    return _REDUCED[reduce](x, places, source, include_self).reshape(shape)


def _touched(x: Any, places: Any) -> Any:
    return jnp.zeros(x.shape, bool).at[places].set(True)


def _start(x: Any, places: Any, include_self: bool, neutral: Any) -> Any:
    """What a reduction begins with: an entry that is not included counts for nothing where a source comes."""
    return x if include_self else jnp.where(_touched(x, places), jnp.asarray(neutral, x.dtype), x)


def _sum(x: Any, places: Any, source: Any, include_self: bool) -> Any:
    return _start(x, places, include_self, 0).at[places].add(source)


def _mean(x: Any, places: Any, source: Any, include_self: bool) -> Any:
    number = jnp.full(x.shape, int(include_self), x.dtype).at[places].add(jnp.ones((), x.dtype))
    total, number = _sum(x, places, source, include_self), jnp.maximum(number, 1)
    return total / number if jnp.issubdtype(x.dtype, jnp.inexact) else total // number


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _product(x: Any, places: Any, source: Any, include_self: bool) -> Any:
    return _start(x, places, include_self, 1).at[places].multiply(source)


@_product.defjvp
def _(include_self, primals, tangents):
    """The slope by each factor is the product of the others, also where one of them is zero."""
    (x, places, source), (along_x, _, along_source) = primals, tangents
    start = _start(x, places, include_self, 1)
    zeros = (start == 0).astype(jnp.int32).at[places].add(source == 0)
    others: Any = jnp.where(start == 0, 1, start)
    others = others.at[places].multiply(jnp.where(source == 0, 1, source))

    def slope(factor: Any, zeros: Any, others: Any) -> Any:
        zero = factor == 0
        return jnp.where(zeros == zero, others / jnp.where(zero, 1, factor), 0)

    along_x = _start(along_x, places, include_self, 0) * slope(start, zeros, others)
    along_source = along_source * slope(source, zeros[places], others[places])
    return start.at[places].multiply(source), along_x.at[places].add(along_source)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _extreme(x: Any, places: Any, source: Any, include_self: bool, largest: bool) -> Any:
    """The largest or smallest, whose gradient all who have it share."""
    if jnp.issubdtype(x.dtype, jnp.inexact):
        last = -jnp.inf if largest else jnp.inf
    else:
        limits = jnp.iinfo(x.dtype)
        last = limits.min if largest else limits.max
    entries = _start(x, places, include_self, last).at[places]
    return entries.max(source) if largest else entries.min(source)


@_extreme.defjvp
def _(include_self, largest, primals, tangents):
    (x, places, source), (along_x, _, along_source) = primals, tangents
    found = _extreme(x, places, source, include_self, largest)
    # PyTorch counts an equal entry that was there before also where it is not included.
    own, theirs = x == found, source == found[places]
    sharing = own.astype(x.dtype).at[places].add(theirs.astype(x.dtype))
    along_x = _start(jnp.where(own, along_x, 0), places, include_self, 0)
    return found, along_x.at[places].add(jnp.where(theirs, along_source, 0)) / sharing


_REDUCED = {
    "sum": _sum,
    "prod": _product,
    "mean": _mean,
    "amax": functools.partial(_extreme, largest=True),
    "amin": functools.partial(_extreme, largest=False),
}


# Where things are


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype.kind == "b"


def _places(x: Any, indices: Any) -> tuple[Any, ...]:
    """Indices as JAX takes them, constant masks as the places where they are True."""
    places: list[Any] = []
    for index in indices:
        if index is None:
            places.append(slice(None))
        elif not _is_mask(index):
            within(index, x.shape[len(places)], negative=True)
            places.append(index)
        elif isinstance(index, Tracer):
            raise TwinaxError(
                "a mask that is computed picks a number of entries that is not known beforehand; choose with "
                "torch.where, or multiply by the mask"
            )
        else:
            places.extend(np.nonzero(np.asarray(index)))
    return tuple(places)


def _without_slices(places: tuple[Any, ...]) -> tuple[Any, ...]:
    """Places as a tree of arrays, None for a whole axis."""
    return tuple(None if isinstance(place, slice) else jnp.asarray(place) for place in places)


@jax.custom_jvp
def _put(x: Any, places: Any, values: Any) -> Any:
    """Values written; of several for one entry the last stays."""
    return x.at[_with_slices(places)].set(values)


@_put.defjvp
def _(primals, tangents):
    (x, places, values), (along_x, _, along_values) = primals, tangents
    # The promise that places are unique lets the gradient go back to all values, as PyTorch's does.
    along = along_x.at[_with_slices(places)].set(along_values, unique_indices=True)
    return _put(x, places, values), along


def _with_slices(places: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(slice(None) if place is None else place for place in places)


def _along(x: Any, axis: int, index: Any, source: Any) -> tuple[Any, int, Any, Any, tuple[int, ...]]:
    """Arguments of a scatter with at least one axis each, the source cut to the index; and the shape to go back to."""
    shape = x.shape
    x, index, source = (jnp.reshape(one, one.shape or (1,)) for one in (x, index, source))
    axis = axis % x.ndim
    within(index, x.shape[axis])
    return x, axis, index, _cut(source, index.shape).astype(x.dtype), shape


def _cut(x: Any, shape: tuple[int, ...]) -> Any:
    """The first entries along each axis."""
    return x if x.shape == tuple(shape) else x[tuple(slice(size) for size in shape)]


def _grid(axis: int, index: Any) -> tuple[Any, ...]:
    """Places in every axis: the index in its own, each entry's own place in the others."""
    places: list[Any] = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    return tuple(index if k == axis else jnp.asarray(place.astype(np.int32)) for k, place in enumerate(places))


def _picks_one(x: Any, axis: int, index: Any) -> bool:
    """Whether the index has one entry for each row of x along the axis."""
    return index.shape == (*x.shape[:axis], 1, *x.shape[axis + 1 :])


def _hit(x: Any, axis: int, index: Any) -> Any:
    """Where along the axis the index points."""
    return index == jax.lax.broadcasted_iota(index.dtype, x.shape, axis)


leave_out(
    "how many entries it gives depends on the numbers; choose with torch.where, or multiply by the mask",
    "aten.nonzero.default",
    "aten.masked_select.default",
    "aten.repeat_interleave.Tensor",
    "aten.unique_dim.default",
)
leave_out(
    "a number is taken out of a tensor (.item(), float()), which a compiled function cannot; compute with the tensor, "
    "and return it in the loss's dict if it is to be looked at",
    "aten._local_scalar_dense.default",
)
leave_out(
    "it rewrites the weights in place while they are looked up (max_norm), which a function cannot",
    "aten.embedding_renorm.default",
    "aten.embedding_renorm_.default",
)
