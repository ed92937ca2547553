"""Images read at places that an array names."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
CUBIC = -0.75
"""PyTorch's constant of cubic convolution."""


@operator("aten.grid_sampler_2d.default")
def grid_sampler_2d(x, grid, interpolation, padding, align_corners):
    """`x` is [batch, channel, row, column], the grid [batch, down, across, (column, row)] on [-1, 1]."""
    columns = pixels(grid[..., 0], x.shape[3], align_corners)
    rows = pixels(grid[..., 1], x.shape[2], align_corners)

    def inside(place, size):
        return bounded(place, size, padding, align_corners)

    def read(row, column):
        # The taps of a cubic are brought inside one by one, those of other kinds before.
        if interpolation == BICUBIC:
            row, column = inside(row, x.shape[2]), inside(column, x.shape[3])
        return pixel(x, row, column)

    if interpolation == BICUBIC:
        down, across = cubic(rows), cubic(columns)
    else:
        rows, columns = inside(rows, x.shape[2]), inside(columns, x.shape[3])
        weights = one if interpolation == NEAREST else two
        down, across = weights(rows), weights(columns)
    return sum(sum(read(row, column) * b[:, None] for column, b in across) * a[:, None] for row, a in down)


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
        away = jnp.where(place < low, low - place, place - low)
        turns = lax.stop_gradient(jnp.floor(away / (high - low)))
        rest = away - turns * (high - low)
        place = low + jnp.where(turns % 2 == 0, rest, high - low - rest)
    place = jnp.where(place <= 0, 0, place)
    return jnp.where(place >= size - 1, size - 1, place).astype(place.dtype)


def pixel(x, row, column):
    """Pixels at whole places of each image, zero outside: [batch, channel, down, across]."""
    height, width = x.shape[2:]
    there = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
    index = jnp.where(there, row, 0).astype(jnp.int32) * width + jnp.where(there, column, 0).astype(jnp.int32)
    flat = x.reshape(*x.shape[:2], -1)
    found = jnp.take_along_axis(flat, index.reshape(index.shape[0], 1, -1), -1, mode="clip")
    return jnp.where(there[:, None], found.reshape(*x.shape[:2], *row.shape[1:]), 0)


def one(place):
    return [(jnp.round(lax.stop_gradient(place)), jnp.ones_like(place))]


def two(place):
    before = jnp.floor(lax.stop_gradient(place))
    return [(before, before + 1 - place), (before + 1, place - before)]


def cubic(place):
    before = jnp.floor(lax.stop_gradient(place))
    share = place - before
    return [(before + k, kernel(share - k if k < 1 else k - share, k in (0, 1))) for k in (-1, 0, 1, 2)]


def kernel(distance, near):
    """Cubic convolution at a distance of one pixel at most, or of one to two."""
    if near:
        return ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    return ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
