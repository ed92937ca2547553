"""Rows for the values and the gradients of a loss and its terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from twinax.parity._difference import FLOOR, compare
from twinax.parity._differentiate import LossResult, Values
from twinax.parity._hints import BY, SUM, flat
from twinax.parity._report import Row

ADDED = {"float64": 1e-12, "float32": 1e-5}
"""How far the parts may be from adding up to the loss, relative to the sum of their sizes."""
NOWHERE = "it reaches no parameter on any side, though its value changes with them: nothing of it is learned"
SIMPLE = 1e-6
"""A part that is counted this close to a whole number of times is counted so often."""


def compare_values(sides: Mapping[str, LossResult], reference: str, tolerance: float, dtype: str) -> Iterator[Row]:
    """Each side's parts against the reference's; whether they add up to its loss; then what is shown, and the loss."""
    for of_parts in (True, False):
        for side, ours in sides.items():
            if side != reference:
                mine, theirs = (_of_parts(result, of_parts) for result in (ours, sides[reference]))
                yield from compare("values", side, reference, mine, theirs, tolerance)
        if of_parts:
            yield from (_added_values(side, result, ADDED[dtype]) for side, result in sides.items() if result.parts)


def _of_parts(result: LossResult, wanted: bool) -> Values:
    return {name: value for name, value in result.values.items() if (name in result.parts) == wanted}


def compare_gradients(
    sides: Mapping[str, LossResult], reference: str, tolerance: float, moved: Callable[[], Values]
) -> Iterator[Row]:
    """The gradient of each part by each parameter, against the reference's, then of their sum, then of the loss.

    A parameter's entries are judged by their own size, but not finer than a small part of the term's largest gradient:
    an entry that is 0 in exact arithmetic is rounding noise of the others. `moved` gives values with other parameters:
    whether a part without gradients is a constant.
    """
    sides = {side: result for side, result in sides.items() if result.gradients}
    theirs = sides[reference]
    yield from _unreached(sides, reference, moved)
    for of_loss in (False, True):
        for side, ours in sides.items():
            for term, wanted in theirs.gradients.items():
                # A term that one side lacks is a row of the values already.
                if side == reference or (term == theirs.loss) != of_loss or term not in ours.gradients:
                    continue
                largest = _largest(wanted)
                named = {f"{term}{BY}{name}": g for name, g in wanted.items()}
                mine = {f"{term}{BY}{name}": g for name, g in ours.gradients[term].items()}
                yield from compare("gradients", side, reference, mine, named, tolerance, floor=FLOOR * largest or FLOOR)
        if not of_loss:
            yield from (_added_gradients(side, result, tolerance) for side, result in sides.items() if result.parts)


def _unreached(sides: Mapping[str, LossResult], reference: str, moved: Callable[[], Values]) -> Iterator[Row]:
    """A row with a note for each part whose gradient is 0 everywhere, unless it is a constant."""
    values = sides[reference].values
    still = [
        term for term in sides[reference].gradients if not any(_reached(result, term) for result in sides.values())
    ]
    after = moved() if still else {}
    for term in still:
        if term in after and not np.array_equal(after[term], values[term]):
            for side in sides:
                if side != reference:
                    yield Row("gradients", term, side, reference, 0.0, 0.0, None, True, NOWHERE)


def _reached(result: LossResult, term: str) -> bool:
    return term in result.gradients and bool(_largest(result.gradients[term]))


def _largest(gradients: Mapping[str, np.ndarray]) -> float:
    return max((float(np.abs(g).max(initial=0.0)) for g in gradients.values()), default=0.0)


def _added_values(side: str, result: LossResult, tolerance: float) -> Row:
    """Whether the parts of a side add up to its loss."""
    parts = {name: float(result.values[name]) for name in result.parts}
    missed = float(result.values[result.loss]) - math.fsum(parts.values())
    size = math.fsum(abs(value) for value in parts.values())
    relative = abs(missed) / max(size, np.finfo(np.float64).tiny)
    ok = relative <= tolerance
    note = "" if ok else _blame(result, missed)
    return Row("values", SUM, side, result.loss_of_itself, abs(missed), relative, None, ok, note)


def _added_gradients(side: str, result: LossResult, tolerance: float) -> Row:
    """Whether the gradients of the parts of a side add up to that of its loss."""
    whole, parts = result.gradients[result.loss], [result.gradients[name] for name in result.parts]
    gaps = {name: np.abs(g - sum(part[name] for part in parts)).max(initial=0.0) for name, g in whole.items()}
    worst = max(gaps, key=lambda name: gaps[name])
    size = max(max(_largest(part) for part in parts), _largest(whole))
    relative = float(gaps[worst]) / max(size, FLOOR * size, np.finfo(np.float64).tiny)
    ok = relative <= tolerance
    note = "" if ok else f"{_blame(result, None)}, most of all by '{worst}'"
    return Row("gradients", SUM, side, result.loss_of_itself, float(gaps[worst]), relative, None, ok, note)


def _blame(result: LossResult, missed: float | None) -> str:
    """Which part the loss counts more or less than once, if it is one of them.

    By its gradient, which no other part shares; where there is none, by its value. `missed` is None where values add up
    and gradients do not.
    """
    parts = {name: float(result.values[name]) for name in result.parts}
    if result.gradients:
        flats = {name: flat(result.gradients[name]) for name in (*result.parts, result.loss)}
        gap = flats[result.loss] - sum(flats[name] for name in result.parts)
        weights = {name: _weight(gap, flats[name]) for name in result.parts}
        times = {name: 1 + weight for name, weight in weights.items() if weight is not None}
        # Parts by one and the same parameter have gradients in proportion: a whole number of times is likelier.
        times = {name: round(often) for name, often in times.items() if abs(often - round(often)) < SIMPLE} or times
        if times:
            verb = "counts" if missed is not None else "differentiates"
            return f"the loss {verb} " + " or ".join(f"'{name}' {often:.6g} times" for name, often in times.items())
    if missed is not None:
        for name, value in parts.items():
            often = 1 + missed / value if value else math.nan
            if abs(often - round(often)) < SIMPLE if math.isfinite(often) else False:
                return f"the loss counts '{name}' {round(often)} times"
    what = "loss" if missed is not None else "gradient of the loss"
    return f"the {what} is not the sum of {', '.join(result.parts)}"


def _weight(gap: np.ndarray, part: np.ndarray) -> float | None:
    """The factor of one gradient that another one is, if it is one."""
    if not gap.any() or not part.any():
        return None
    weight = float(gap @ part / (part @ part))
    return weight if np.abs(gap - weight * part).max() <= SIMPLE * np.abs(gap).max() else None
