"""The data on which scores and posteriors of graphs are known from independent code."""

from __future__ import annotations

import numpy as np


def samples(number: int) -> np.ndarray:
    """Ten samples of so many variables: X[i, j] = sin(1 + i (j + 1)) + [j > 0] / 2 sin(1 + i j)."""
    i, j = np.arange(10)[:, None], np.arange(number)[None]
    return np.sin(1 + i * (j + 1)) + (j > 0) / 2 * np.sin(1 + i * j)
