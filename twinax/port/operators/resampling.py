"""Images made larger or smaller: the nearest pixel, or linear between pixels."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from twinax.port._table import operator


@operator("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec")
def upsample_nearest(x, size, factors):
    return nearest(x, *target(x, size, factors))


@operator("aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default")
def upsample_nearest_to(x, size, *factors):
    return nearest(x, size, factors or (None,) * len(size))


@operator("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec")
def upsample_linear(x, size, align_corners, factors):
    return linear(x, *target(x, size, factors), align_corners)


@operator("aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default", "aten.upsample_trilinear3d.default")
def upsample_linear_to(x, size, align_corners, *factors):
    return linear(x, size, factors or (None,) * len(size), align_corners)


def target(x, size, factors):
    """The new sizes and the factors; of the two PyTorch is given one."""
    if size is not None:
        return size, (None,) * len(size)
    return [math.floor(n * f) for n, f in zip(x.shape[-len(factors) :], factors, strict=True)], factors


def nearest(x, sizes, factors):
    for axis, (out, factor) in enumerate(zip(sizes, factors, strict=True), x.ndim - len(sizes)):
        size = x.shape[axis]
        if out == size:
            continue
        if out % size == 0 and factor in (None, out / size):  # a broadcast, whose gradient is a sum
            wide = jnp.broadcast_to(
                jnp.expand_dims(x, axis + 1), (*x.shape[: axis + 1], out // size, *x.shape[axis + 1 :])
            )
            x = wide.reshape(*x.shape[:axis], out, *x.shape[axis + 1 :])
            continue
        scale = np.float32(1 / factor) if factor else np.float32(size) / np.float32(out)  # in single, as PyTorch
        index = np.minimum(np.floor(np.arange(out, dtype=np.float32) * scale), size - 1).astype(np.int32)
        x = jnp.take(x, index, axis, mode="clip", indices_are_sorted=True)
    return x


def linear(x, sizes, factors, align_corners):
    for axis, (out, factor) in enumerate(zip(sizes, factors, strict=True), x.ndim - len(sizes)):
        size = x.shape[axis]
        if out == size:
            continue
        if align_corners:
            place = np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
        else:
            place = np.maximum((np.arange(out) + 0.5) * (1 / factor if factor else size / out) - 0.5, 0)
        before = np.minimum(np.floor(place), size - 1).astype(np.int32)
        after = np.minimum(before + 1, size - 1)
        share = jnp.asarray(np.clip(place - before, 0, 1), x.dtype).reshape(-1, *[1] * (x.ndim - 1 - axis))
        low, high = (jnp.take(x, index, axis, mode="clip", indices_are_sorted=True) for index in (before, after))
        x = (1 - share) * low + share * high
    return x
