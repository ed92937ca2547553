"""Rows for the values and the gradients of a loss and its terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from twinax.parity._difference import FLOOR, compare
from twinax.parity._differentiate import Gradients, Values
from twinax.parity._hints import BY
from twinax.parity._report import Row


def compare_values(values: Mapping[str, Values], reference: str, tolerance: float) -> Iterator[Row]:
    """Each side's terms, then its loss, against the reference's."""
    for side, ours in values.items():
        if side != reference:
            yield from compare("values", side, reference, ours, values[reference], tolerance)


def compare_gradients(gradients: Mapping[str, Gradients], reference: str, tolerance: float) -> Iterator[Row]:
    """The gradient of each term by each parameter, against the reference's.

    A parameter's entries are judged by their own size, but not finer than a small part of the term's largest gradient:
    an entry that is 0 in exact arithmetic is rounding noise of the others.
    """
    for side, ours in gradients.items():
        if side == reference:
            continue
        for term, theirs in gradients[reference].items():
            if term not in ours:
                continue  # already a row of the values
            largest = max((float(np.abs(g).max(initial=0.0)) for g in theirs.values()), default=0.0)
            named = {f"{term}{BY}{name}": g for name, g in theirs.items()}
            mine = {f"{term}{BY}{name}": g for name, g in ours[term].items()}
            yield from compare("gradients", side, reference, mine, named, tolerance, floor=FLOOR * largest or FLOOR)
