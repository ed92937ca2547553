"""How arrays are turned round between PyTorch's layout and those of other libraries, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Settings = Mapping[str, Any]
"""Of a layer, in PyTorch's words: heads, groups, eps."""


class Turn(NamedTuple):
    """How an array is turned round on the way out of PyTorch's layout, and back."""

    name: str
    out: Callable[[np.ndarray, Settings], np.ndarray]
    back: Callable[[np.ndarray, Settings], np.ndarray]


def _same(array: np.ndarray, settings: Settings) -> np.ndarray:
    return array


SAME = Turn("as it is", _same, _same)


def _swapped(array: np.ndarray, settings: Settings) -> np.ndarray:
    return np.swapaxes(array, -1, -2)


SWAPPED = Turn("transposed", _swapped, _swapped)
"""(..., out, in) and (..., in, out)."""


def channels_last(axes: int) -> Turn:
    """(..., out, in, *window) and (..., *window, in, out), for a window of so many axes."""
    ours, theirs = (-axes - 2, -axes - 1), (-1, -2)

    def out(array: np.ndarray, settings: Settings) -> np.ndarray:
        return np.moveaxis(array, ours, theirs)

    def back(array: np.ndarray, settings: Settings) -> np.ndarray:
        return np.moveaxis(array, theirs, ours)

    return Turn("channels last", out, back)


def _flipped(array: np.ndarray, places: Sequence[int]) -> np.ndarray:
    return np.flip(array, tuple(places))


def _flax_upward(array: np.ndarray, settings: Settings) -> np.ndarray:
    """(in, out, *window) to Flax's (*window, out, in), or flipped to (*window, in, out) without `transpose_kernel`."""
    places = tuple(range(2, array.ndim))
    if settings.get("transpose_kernel"):
        return np.transpose(array, (*places, 1, 0))
    return np.transpose(_flipped(array, places), (*places, 0, 1))


def _flax_downward(array: np.ndarray, settings: Settings) -> np.ndarray:
    places = tuple(range(array.ndim - 2))
    if settings.get("transpose_kernel"):
        return np.transpose(array, (array.ndim - 1, array.ndim - 2, *places))
    return _flipped(np.transpose(array, (array.ndim - 2, array.ndim - 1, *places)), range(2, array.ndim))


def _equinox_upward(array: np.ndarray, settings: Settings) -> np.ndarray:
    """(in, out / groups, *window) to the kernel (out, in / groups, *window) of the convolution that it undoes."""
    groups = settings.get("groups", 1)
    parts = array.reshape(groups, array.shape[0] // groups, *array.shape[1:])
    swapped = np.swapaxes(parts, 1, 2).reshape(-1, array.shape[0] // groups, *array.shape[2:])
    return _flipped(swapped, range(2, array.ndim))


UPWARD = Turn("channels last, flipped unless transpose_kernel", _flax_upward, _flax_downward)
UPWARD_FIRST = Turn("flipped, in and out swapped", _equinox_upward, _equinox_upward)


def _column(array: np.ndarray, settings: Settings) -> np.ndarray:
    return array.reshape(-1, *(1,) * settings["axes"])


COLUMN = Turn("a column", _column, lambda a, settings: a.reshape(-1))
"""The bias of a convolution, with an axis of one for each of the places."""


def _split_rows(array: np.ndarray, settings: Settings) -> np.ndarray:
    heads = settings["heads"]
    return array.T.reshape(array.shape[1], heads, -1)


def _split_columns(array: np.ndarray, settings: Settings) -> np.ndarray:
    return array.T.reshape(settings["heads"], -1, array.shape[0])


BY_HEADS = Turn("transposed, by heads", _split_rows, lambda a, settings: a.reshape(a.shape[0], -1).T)
"""(out, in) and (in, heads, width of a head)."""
FROM_HEADS = Turn("transposed, by heads", _split_columns, lambda a, settings: a.reshape(-1, a.shape[-1]).T)
"""(out, in) and (heads, width of a head, out)."""
HEAD_BIAS = Turn("by heads", lambda a, settings: a.reshape(settings["heads"], -1), lambda a, settings: a.reshape(-1))
