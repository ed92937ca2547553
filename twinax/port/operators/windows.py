"""Pooling: each axis in turn, by whole slices, one for each place in the window.

XLA's own windows take one element at a time on the CPU: by slices a maximum is up to four times quicker, and its
gradient, which then is that of `where`, five to thirty times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from twinax.port._table import operator
from twinax.port.operators.convolution import each_axis


@dataclass(frozen=True)
class Window:
    """How windows lie along one axis."""

    size: int
    """Length of the axis."""
    kernel: int
    stride: int
    padding: int
    dilation: int
    out: int
    """How many windows there are."""

    @property
    def borders(self) -> tuple[int, int]:
        """Entries before and after the axis that windows reach into; the latter is negative where some are not read."""
        return self.padding, (self.out - 1) * self.stride + self.covered - self.size - self.padding

    @property
    def covered(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    def taps(self, x, axis, fill):
        """For each place in the window, what all windows have there."""
        before, after = self.borders
        if before or after > 0:
            widths = [(0, 0)] * x.ndim
            widths[axis] = (before, max(after, 0))
            x = jnp.pad(x, widths, constant_values=fill)
        for start in range(0, self.covered, self.dilation):
            yield lax.slice_in_dim(x, start, start + (self.out - 1) * self.stride + 1, self.stride, axis)

    def places(self) -> np.ndarray:
        """Which entry of the axis stands at each place of each window, [window, place]; some lie outside."""
        starts = np.arange(self.out) * self.stride - self.padding
        return starts[:, None] + np.arange(self.kernel) * self.dilation


def windows_of(sizes, kernel, stride, padding, dilation, ceil_mode):
    """The windows of each axis, by PyTorch's rule for those that reach over the end."""
    axes = len(sizes)
    kernel, padding, dilation = (each_axis(one, axes) for one in (kernel, padding, dilation))
    stride = each_axis(stride, axes) if stride not in ((), None) else kernel
    made = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        out = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (out - 1) * s >= n + p:  # a window must begin inside, or in the border before
            out -= 1
        made.append(Window(n, k, s, p, d, out))
    return made


@operator("aten.avg_pool1d.default")
def avg_pool1d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True):
    return average(x, 1, kernel, stride, padding, ceil_mode, count_include_pad, None)


@operator("aten.avg_pool2d.default")
def avg_pool2d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    return average(x, 2, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)


@operator("aten.avg_pool3d.default")
def avg_pool3d(x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    return average(x, 3, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)


def average(x, axes, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    counts = np.ones(())
    for axis, window in enumerate(windows_of(x.shape[-axes:], kernel, stride, padding, 1, ceil_mode), x.ndim - axes):
        x = sums(x, axis, window)
        border = window.padding if count_include_pad else 0
        places = window.places()
        counts = counts[..., None] * ((places >= -border) & (places < window.size + border)).sum(1)
    if divisor is not None or (counts == counts.flat[0]).all():
        return x / (divisor or counts.flat[0])
    return x / jnp.asarray(counts, x.dtype)


def sums(x, axis, window):
    if window.kernel == window.stride and window.borders == (0, 0):  # windows side by side
        return blocks(x, axis, window.out).sum(axis + 1)
    total, *others = window.taps(x, axis, 0)
    for one in others:
        total = total + one
    return total


def blocks(x, axis, number):
    """An axis as a number of equal parts: [..., part, place in it, ...]."""
    return x.reshape(*x.shape[:axis], number, -1, *x.shape[axis + 1 :])


@operator("aten.max_pool2d_with_indices.default")
def max_pool2d_with_indices(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    return largest(x, windows_of(x.shape[-2:], kernel, stride, padding, dilation, ceil_mode))


@operator("aten.max_pool3d_with_indices.default")
def max_pool3d_with_indices(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    return largest(x, windows_of(x.shape[-3:], kernel, stride, padding, dilation, ceil_mode))


def largest(x, windows):
    """Maxima, and where they stand in their plane: the first of equals, or the last NaN."""
    sizes = x.shape[-len(windows) :]
    index = plane(sizes)
    lowest = lowest_of(x)
    for axis in range(-1, -len(windows) - 1, -1):
        window = windows[axis]
        taps = zip(
            window.taps(x, axis % x.ndim, lowest),
            window.taps(index, axis % index.ndim, 0),
            window.places().T,
            strict=True,
        )
        x, index, places = next(taps)
        inside = (places >= 0) & (places < window.size)
        for other, place, places in taps:
            # A window's first entry inside of the image stands even against the border's -inf.
            first = ~inside & (places >= 0) & (places < window.size)
            inside |= first
            x, index = larger(x, index, other, place, first.reshape(-1, *[1] * (-axis - 1)) if first.any() else False)
    return x, jnp.broadcast_to(index, x.shape)


def plane(sizes):
    """The number of each place in a plane."""
    return jnp.arange(math.prod(sizes), dtype=jnp.int32).reshape(sizes)


def lowest_of(x):
    return -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min


def larger(x, index, other, place, anyway=False):
    """The larger of two, and its index; the first of equals. The gradient goes where the value comes from."""
    better = (other > x) | (other != other) | anyway
    return jnp.where(better, other, x), jnp.where(better, place, index)


@operator("aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(x, out):
    return adaptive_average(x, out)


@operator("aten._adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(x, out):
    return adaptive_average(x, out)


@operator("aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(x, out):
    return adaptive_average(x, out)


def adaptive_average(x, out):
    for axis, number in enumerate(out, x.ndim - len(out)):
        x, parts = parts_of(x, axis, number)
        means = [lax.slice_in_dim(x, start, end, axis=axis + 1).mean(axis + 1) for start, end in parts]
        x = rejoined(means, axis)
    return x


@operator("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d(x, out):
    return adaptive_largest(x, out)


@operator("aten.adaptive_max_pool3d.default")
def adaptive_max_pool3d(x, out):
    return adaptive_largest(x, out)


def adaptive_largest(x, out):
    index = jnp.broadcast_to(plane(x.shape[-len(out) :]), x.shape)
    for axis in range(x.ndim - 1, x.ndim - len(out) - 1, -1):
        number = out[axis - x.ndim]
        x, parts = parts_of(x, axis, number)
        index, _ = parts_of(index, axis, number)
        found = []
        for start, end in parts:
            best = x.take(start, axis + 1), index.take(start, axis + 1)
            for k in range(start + 1, end):
                best = larger(*best, x.take(k, axis + 1), index.take(k, axis + 1))
            found.append(best)
        x, index = (rejoined(each, axis) for each in zip(*found, strict=True))
    return x, index


def parts_of(x, axis, number):
    """An axis in the largest number of equal blocks whose windows are alike, and the windows of one of them."""
    size, same = x.shape[axis], math.gcd(x.shape[axis], number)
    size, number = size // same, number // same
    parts = [(k * size // number, -(-(k + 1) * size // number)) for k in range(number)]
    return blocks(x, axis, same), parts


def rejoined(windows, axis):
    """Windows of equal blocks, one array for each window of a block, as one axis."""
    x = jnp.stack(windows, axis + 1)
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
