"""From two sets of named arrays to rows of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinax.parity._report import Row

FLOOR = 1e-3
"""Arrays smaller than this are judged as if they were this large: rounding noise around 0 has no relative size."""
WEIGHTS_FLOOR = 0.1
"""The same for trained parameters. One that the loss does not depend on, such as a bias before a softmax, has a
gradient of rounding noise, and Adam divides gradients by their own size."""


def compare(
    rung: str,
    side: str,
    against: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    tolerance: float,
    *,
    floor: float = FLOOR,
) -> Iterator[Row]:
    """One row for each name on either side, in the order of the reference."""
    for name in [*theirs, *(n for n in ours if n not in theirs)]:
        if name not in ours or name not in theirs:
            missing = side if name not in ours else against
            yield Row(rung, name, side, against, math.nan, math.inf, None, False, f"{missing} has no '{name}'")
            continue
        a, b = np.asarray(theirs[name]), np.asarray(ours[name])
        yield difference(rung, name, side, against, b, a, tolerance, floor)


def difference(
    rung: str,
    item: str,
    side: str,
    against: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    tolerance: float,
    floor: float = FLOOR,
) -> Row:
    """The row for one pair of arrays; `theirs` is the reference."""
    if ours.shape != theirs.shape:
        note = f"shape {ours.shape} against {theirs.shape}"
        return Row(rung, item, side, against, math.nan, math.inf, None, False, note)
    if not theirs.size:
        return Row(rung, item, side, against, 0.0, 0.0, None, True)
    a, b = theirs.astype(np.float64), ours.astype(np.float64)
    if np.isnan(a).any() or np.isnan(b).any():
        both = np.isnan(a) & np.isnan(b)
        note = "not a number on both sides" if both.any() else "not a number on one side"
        index = np.argwhere(np.isnan(a) | np.isnan(b))[0]
        return Row(rung, item, side, against, math.nan, math.inf, tuple(map(int, index)), False, note)
    with np.errstate(invalid="ignore"):
        gap = np.where(a == b, 0.0, np.abs(a - b))  # equal infinities have no gap
    place = np.unravel_index(int(np.argmax(gap)), gap.shape)
    absolute = float(gap[place])
    finite = np.abs(a[np.isfinite(a)])
    relative = absolute / max(float(finite.max(initial=0.0)), floor, np.finfo(np.float64).tiny)
    return Row(rung, item, side, against, absolute, relative, tuple(map(int, place)), relative <= tolerance)
