"""How far a mean may be off: the one formula for a 95 % confidence interval, wherever one is shown."""

from __future__ import annotations

from typing import Any

import numpy as np


def half_width(values: Any) -> Any:
    """Half of the 95 % confidence interval of the mean over the last axis, by Student's t.

    One value says nothing of how others would scatter, so it has no interval: not a number.

    >>> half_width([1.0, 2.0, 3.0]).round(3)
    np.float64(2.484)
    """
    from scipy.special import stdtrit  # jax brings scipy along; its import takes a while

    values = np.asarray(values, np.float64)
    number = values.shape[-1]
    if number < 2:
        return np.full(values.shape[:-1], np.nan)[()]
    # t(0.975, n - 1) * s / sqrt(n)
    return stdtrit(number - 1, 0.975) * values.std(axis=-1, ddof=1) / np.sqrt(number)
