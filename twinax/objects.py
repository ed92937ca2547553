"""Finished objects for people: as arrays, with their rewards, and in human form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Objects:
    """A batch of objects, as NumPy arrays.

    >>> found = Objects({"bits": np.array([[0, 1], [1, 1]])}, np.array([0.5, -1.0]), ["01", "11"])
    >>> len(found), list(found)[0]
    (2, ('01', 0.5))
    """

    states: Any
    """The world's own states, a tree of arrays with the objects on the leading axis."""
    log_rewards: np.ndarray
    """log R of each."""
    texts: list[str]
    """Each in human form: by the world's own `text`, or its numbers."""

    def __len__(self) -> int:
        return len(self.log_rewards)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Each object's text and log reward."""
        return zip(self.texts, map(float, self.log_rewards), strict=True)
