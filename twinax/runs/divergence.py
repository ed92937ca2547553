"""When a training has run away: arrays that are not finite, or parameters of a size that no training needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax import tree
from twinax.errors import TwinaxError
from twinax.problem import State
from twinax.runs.metrics import Row

GROWTH = 1e6
"""A parameter beyond this many times the largest first one (or beyond this, when that one is below 1) is nonsense.

With Adam a step moves a parameter by about the step size, so useful step sizes stay far below this in any number of
steps, and one of 1e6 or more is beyond it after a few.
"""

LOSS_GROWTH = 1e4
"""A loss that ends this many times above its first value, or above 1, is worth a sentence; sparse rewards may do it."""


class Diverged(TwinaxError):
    """A training that ran away; its text names what went bad, the step and the last good checkpoint."""

    exit_code = 1

    def __init__(self, sentence: str, step: int, term: str, checkpoint: Path | None):
        super().__init__(sentence)
        self.step = step
        self.term = term
        self.checkpoint = checkpoint


class Watch:
    """Looks at a state before it is kept: a loss may stay finite long after the parameters are worth nothing.

    >>> from twinax.problem import State
    >>> state = lambda weight: State({"weight": np.array([weight])}, None, None, None, np.array(1), np.array(0))
    >>> watch = Watch(state(0.5))
    >>> watch.find(state(40.0))
    >>> watch.find(state(6e10))
    ('weight', "the parameter 'weight' has grown to 6e+10, and no training needs one beyond 1e+06")
    >>> watch.find(state(np.nan))[1]
    "the parameter 'weight' is no longer finite"
    """

    def __init__(self, first: State):
        sizes = [_size(leaf) for leaf in tree.named_leaves(first.networks).values()]
        self._limit = GROWTH * max([1.0, *(size for size in sizes if np.isfinite(size))])

    def find(self, state: State) -> tuple[str, str] | None:
        """What is bad in a state, by name and in words; None when all is well."""
        for kind, part in (("parameter", state.networks), ("target", state.targets), ("Adam moment", state.optimizer)):
            for name, leaf in tree.named_leaves(part).items():
                size = _size(leaf)
                if not np.isfinite(size):
                    return name, f"the {kind} '{name}' is no longer finite"
                if kind == "parameter" and size > self._limit:
                    grown = f"has grown to {size:.3g}, and no training needs one beyond {self._limit:.3g}"
                    return name, f"the {kind} '{name}' {grown}"
        return None


def doubt(rows: Sequence[Row]) -> str | None:
    """A sentence about a loss that ended far above its beginning; None when it did not.

    >>> doubt([{"step": 1, "loss": 7.0}, {"step": 9, "loss": 5e8, "loss_mean": 6e8}])
    'the loss ended at 6e+08, far above the 7 of step 1: the learning rate may be too large'
    """
    if not rows or "loss" not in rows[0] or "loss_mean" not in rows[-1]:
        return None
    first, last = rows[0]["loss"], rows[-1]["loss_mean"]
    if not all(isinstance(value, int | float) for value in (first, last)):
        return None
    if abs(last) <= LOSS_GROWTH * max(1.0, abs(first)):
        return None
    beginning = f"the {first:.3g} of step {rows[0]['step']}"
    advice = "the learning rate may be too large"
    return f"the loss ended at {last:.3g}, far above {beginning}: {advice}"


def _size(leaf: Any) -> float:
    """The largest absolute value, without a copy of the array; NaN and infinities come through."""
    array = np.asarray(leaf)
    if array.dtype.kind != "f" or not array.size:
        return 0.0
    return float(np.maximum(array.max(), -array.min()))
