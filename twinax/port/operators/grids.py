"""Images read at places that an array names."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from twinax import ops
from twinax.port._table import operator

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
CUBIC = -0.75
"""PyTorch's constant of cubic convolution."""


@operator("aten.grid_sampler_2d.default")
def grid_sampler_2d(x, grid, interpolation, padding, align_corners):
    """`x` is [batch, channel, row, column], the grid [batch, down, across, (column, row)] on [-1, 1]."""
    sizes, places = x.shape[2:], (grid[..., 1], grid[..., 0])
    taps = []
    for size, place in zip(sizes, places, strict=True):
        place = pixels(place, size, align_corners)
        if interpolation == BICUBIC:  # here what is read is brought inside, for other kinds where it is read around
            read, weights = cubic(place)
            read = bounded(read, size, padding, align_corners)
        else:
            read, weights = (one if interpolation == NEAREST else two)(bounded(place, size, padding, align_corners))
        taps.append((read, weights))
    (rows, down), (columns, across) = taps
    weights = down[:, None] * across
    return jnp.sum(pixel(x, *jnp.broadcast_arrays(rows[:, None], columns)) * weights[:, :, :, None], (0, 1))


def pixels(place, size, align_corners):
    """Places on [-1, 1] in pixels: -1 is the middle of the first one if corners are aligned, else its edge."""
    return (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2


def bounded(place, size, padding, align_corners):
    """A place brought inside of the image, with no gradient where it was outside; zeros are put in later."""
    if padding == ZEROS:
        return place
    if padding == REFLECTION:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        if high <= low:
            return jnp.zeros_like(place)
        away = ops.where(place < low, low - place, place - low)
        turns = lax.stop_gradient(jnp.floor(away / (high - low)))
        rest = away - turns * (high - low)
        place = low + ops.where(turns % 2 == 0, rest, high - low - rest)
    place = ops.where(place <= 0, 0.0, place)
    return ops.where(place >= size - 1, size - 1.0, place)


def pixel(x, row, column):
    """Pixels at whole places [tap, tap, batch, down, across], with channels after batch; zero outside."""
    height, width = x.shape[2:]
    there = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
    row, column = (ops.where(there, place, 0.0) for place in (row, column))
    index = row.astype(jnp.int32) * width + column.astype(jnp.int32)
    flat = x.reshape(*x.shape[:2], -1)
    by_image = jnp.moveaxis(index, 2, 0).reshape(x.shape[0], 1, -1)
    found = jnp.take_along_axis(flat, by_image, -1, mode="clip").reshape(*x.shape[:2], *row.shape[:2], *row.shape[3:])
    return ops.where(there[:, :, :, None], jnp.moveaxis(found, (2, 3), (0, 1)), 0)


def one(place):
    """What is read for a place, along a new first axis, and how much each of it counts."""
    return jnp.round(lax.stop_gradient(place))[None], jnp.ones_like(place)[None]


def two(place):
    before = jnp.floor(lax.stop_gradient(place))
    return jnp.stack([before, before + 1]), jnp.stack([before + 1 - place, place - before])


def cubic(place):
    before = jnp.floor(lax.stop_gradient(place))
    share = place - before
    weights = [kernel(share + 1, False), kernel(share, True), kernel(1 - share, True), kernel(2 - share, False)]
    return jnp.stack([before + k for k in (-1, 0, 1, 2)]), jnp.stack(weights)


def kernel(distance, near):
    """Cubic convolution at a distance of one pixel at most, or of one to two."""
    if near:
        return ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    return ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
