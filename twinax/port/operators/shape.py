"""Operators that arrange numbers anew: axes, slices, joins and padding. Where a slice does, nothing is gathered."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from twinax.errors import TwinaxError
from twinax.port._table import leave_out, operator


@operator(
    "aten.view.default",
    "aten.view_copy.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten._reshape_alias.default",
)
def view(x, shape, strides=None):
    return jnp.reshape(x, shape)


@operator("aten.permute.default", "aten.permute_copy.default")
def permute(x, axes):
    return jnp.transpose(x, axes)


@operator("aten.transpose.int")
def transpose(x, first, second):
    return jnp.swapaxes(x, first, second) if x.ndim else x


@operator("aten.t.default")
def t(x):
    return x.T


@operator("aten.expand.default")
def expand(x, shape):
    """-1 keeps an axis; axes that are new stand in front."""
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(old if new == -1 else new for old, new in zip(own, shape, strict=True)))


@operator("aten.squeeze.default")
def squeeze(x):
    return jnp.squeeze(x)


@operator("aten.squeeze.dim", "aten.squeeze.dims")
def squeeze_axes(x, axes):
    """An axis that is longer than one stays."""
    axes = axes if isinstance(axes, tuple) else (axes,)
    return jnp.squeeze(x, tuple(axis for axis in axes if x.ndim and x.shape[axis] == 1))


@operator("aten.unsqueeze.default")
def unsqueeze(x, axis):
    return jnp.expand_dims(x, axis)


@operator("aten.cat.default")
def cat(arrays, axis=0):
    """An array of shape (0,) joins whatever the others' axes are."""
    kept = [x for x in arrays if x.shape != (0,)] or [arrays[0]]
    dtype = jnp.result_type(*arrays)
    return jnp.concatenate([x.astype(dtype) for x in kept], axis)


@operator("aten.stack.default")
def stack(arrays, axis=0):
    return jnp.stack(arrays, axis)


@operator("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
def split_with_sizes(x, sizes, axis=0):
    ends = np.cumsum(sizes).tolist()
    return tuple(lax.slice_in_dim(x, end - size, end, axis=axis) for size, end in zip(sizes, ends, strict=True))


@operator("aten.split.Tensor", "aten.split_copy.Tensor")
def split(x, size, axis=0):
    """Parts of one size, of which the last may be smaller; there is always one."""
    whole = x.shape[axis]
    return tuple(
        lax.slice_in_dim(x, start, min(start + size, whole), axis=axis) for start in range(0, max(whole, 1), size or 1)
    )


@operator("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x, axis=0):
    return tuple(select(x, axis, index) for index in range(x.shape[axis]))


@operator("aten.repeat.default")
def repeat(x, times):
    return jnp.tile(x, times)


@operator("aten.flip.default")
def flip(x, axes):
    return lax.rev(x, tuple(axis % x.ndim for axis in axes if x.ndim))


@operator("aten.select.int", "aten.select_copy.int")
def select(x, axis, index):
    return lax.index_in_dim(x, index, axis, keepdims=False)


@operator("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_axis(x, axis=0, start=None, end=None, step=1):
    start, end, step = bounds(x.shape[axis], start, end, step)
    return lax.slice_in_dim(x, start, end, step, axis)


@operator("aten.narrow_copy.default")
def narrow(x, axis, start, length):
    start = start + x.shape[axis] if start < 0 else start
    return lax.slice_in_dim(x, start, start + length, axis=axis)


def bounds(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int, int]:
    """Where a slice begins and ends in an axis of this size: ends beyond it are its ends, as in Python."""
    start, end, step = slice(start, end, step).indices(size)
    return start, max(start, end), step


@operator("aten.slice_scatter.default")
def slice_scatter(x, source, axis=0, start=None, end=None, step=1):
    """The source spread over the axis, then chosen where it lies: no scatter, whatever the step."""
    axis, size = axis % x.ndim, x.shape[axis]
    start, end, step = bounds(size, start, end, step)
    number = len(range(start, end, step))
    if number == 0:
        return x
    if step == 1:
        return lax.dynamic_update_slice_in_dim(x, jnp.broadcast_to(source, _resized(x, axis, number)), start, axis)
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (start, size - start - (number - 1) * step - 1, step - 1)
    spread = lax.pad(jnp.broadcast_to(source, _resized(x, axis, number)), jnp.zeros((), source.dtype), widths)
    written = np.isin(np.arange(size), range(start, end, step))
    return jnp.where(written.reshape([-1 if k == axis else 1 for k in range(x.ndim)]), spread, x)


@operator("aten.select_scatter.default")
def select_scatter(x, source, axis, index):
    axis = axis % x.ndim
    return lax.dynamic_update_index_in_dim(x, source, index % x.shape[axis], axis)


def _resized(x: Any, axis: int, size: int) -> tuple[int, ...]:
    return (*x.shape[:axis], size, *x.shape[axis + 1 :])


@operator("aten.diagonal.default")
def diagonal(x, offset=0, first=0, second=1):
    """In a matrix that is written out row by row, a diagonal is a slice."""
    x = jnp.moveaxis(x, (first, second), (-2, -1))
    rows, columns = x.shape[-2:]
    start, number = _diagonal(rows, columns, offset)
    flat = jnp.reshape(x, (*x.shape[:-2], rows * columns))
    if number == 0:
        return flat[..., :0]
    return lax.slice_in_dim(flat, start, start + (number - 1) * (columns + 1) + 1, columns + 1, -1)


@operator("aten.diagonal_scatter.default")
def diagonal_scatter(x, source, offset=0, first=0, second=1):
    moved = jnp.moveaxis(x, (first, second), (-2, -1))
    rows, columns = moved.shape[-2:]
    start, number = _diagonal(rows, columns, offset)
    row, column = np.divmod(start + np.arange(number) * (columns + 1), max(columns, 1))
    return jnp.moveaxis(moved.at[..., row, column].set(source, unique_indices=True), (-2, -1), (first, second))


def _diagonal(rows: int, columns: int, offset: int) -> tuple[int, int]:
    """Where a diagonal starts in a matrix written out, and how long it is."""
    number = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return (offset if offset >= 0 else -offset * columns), max(number, 0)


@operator("aten.unfold.default")
def unfold(x, axis, size, step):
    """Windows along an axis, their entries on a new last axis: as many slices as there are of the fewer."""
    if x.ndim == 0:
        return jnp.broadcast_to(x, (size,))
    axis = axis % x.ndim
    number = (x.shape[axis] - size) // step + 1
    if size <= number:
        slices = [lax.slice_in_dim(x, k, k + (number - 1) * step + 1, step, axis) for k in range(size)]
        return jnp.stack(slices, -1) if slices else jnp.zeros((*_resized(x, axis, number), 0), x.dtype)
    windows = [jnp.moveaxis(lax.slice_in_dim(x, k * step, k * step + size, axis=axis), axis, -1) for k in range(number)]
    return jnp.stack(windows, axis)


@operator("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(x, shape, strides, offset=None):
    """Of an array that is written out row by row, which is how JAX's are seen."""
    steps = [np.arange(size) * stride for size, stride in zip(shape, strides, strict=True)]
    places = np.full(tuple(shape), offset or 0)
    for axis, step in enumerate(steps):
        places = places + step.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    if places.size and places.max() >= math.prod(x.shape):
        raise TwinaxError(
            f"as_strided reads entry {places.max()} of an array of {math.prod(x.shape)}, which lies outside of it in "
            "PyTorch's memory; take a slice of the whole array, or index it"
        )
    return jnp.take(jnp.ravel(x), places.astype(np.int32), mode="clip")


@operator("aten.constant_pad_nd.default")
def constant_pad(x, widths, value=0):
    """Widths come in pairs, the last axis first; negative ones cut off."""
    pairs = list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    kept = [(0, 0, 0)] * (x.ndim - len(pairs))
    return lax.pad(x, jnp.asarray(value, x.dtype), kept + [(before, after, 0) for before, after in pairs])


@operator(
    "aten.clone.default",
    "aten.alias.default",
    "aten.lift.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
)
def same(x):
    return x


@operator("aten.sym_size.int")
def sym_size(x, axis):
    return x.shape[axis]


@operator("aten.sym_numel.default")
def sym_numel(x):
    return math.prod(x.shape)


leave_out(
    "it asks how an array lies in memory, which an array of JAX does not say",
    "aten.sym_stride.int",
    "aten.sym_storage_offset.default",
    "aten.sym_is_contiguous.default",
)
leave_out(
    "it gives a tensor other memory in place, which an array of JAX cannot have",
    "aten.resize_.default",
    "aten.resize.default",
    "aten.as_strided_scatter.default",
)
leave_out(
    "it reads the bits of a number as another's, and a float may have another width in JAX",
    "aten.view.dtype",
    "aten.view_copy.dtype",
)
