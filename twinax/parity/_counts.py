"""The lengths in a batch that a sum or a mean may run over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax import tree


@dataclass(frozen=True)
class Counts:
    """Numbers by meaning."""

    whole: dict[int, str] = field(default_factory=dict)
    """Lengths of axes and sizes of arrays, padding included."""
    used: dict[int, str] = field(default_factory=dict)
    """How many entries a mask lets through, or how many rows are in use."""

    def all_lengths(self) -> Iterator[tuple[int, str]]:
        """Every number with its meaning."""
        yield from self.used.items()
        yield from self.whole.items()

    def masked_pairs(self) -> Iterator[tuple[int, int, str]]:
        """`(used, whole, meaning)` where a whole counts more than is used."""
        for used, label in self.used.items():
            for whole, of in self.whole.items():
                if 0 < used < whole:
                    yield used, whole, f"{of} against {label}"


def counts_of(batch: Any, rows: int | None = None) -> Counts:
    """The lengths in a batch; `rows` is how many rows of its ragged part are in use."""
    whole: dict[int, str] = {}
    used: dict[int, str] = {}
    if rows is not None:
        used[rows] = "the rows in use"
    for name, leaf in tree.named_leaves(batch).items():
        x = np.asarray(leaf)
        name = name or "the batch"
        if x.dtype == bool and x.ndim:
            used.setdefault(int(x.sum()), f"the true entries of '{name}'")
        for axis, n in enumerate(x.shape):
            whole.setdefault(n, f"the length of axis {axis} of '{name}'")
        for axes in range(2, x.ndim + 1):
            whole.setdefault(int(np.prod(x.shape[:axes])), f"the size of the first {axes} axes of '{name}'")
    return Counts(whole, used)
