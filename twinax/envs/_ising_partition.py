"""The exact partition function of spins on a small torus, by the transfer matrix, in float64."""

from __future__ import annotations

import functools

import numpy as np

MOST_SIDE = 10
"""A transfer matrix has 2^side rows."""


@functools.lru_cache(maxsize=256)
def torus_log_partition(side: int, sigma: float, field: float = 0.0) -> float:
    """log of the sum over all spins x of exp(sigma x^T A x + field sum(x)); see `Ising` for A.

    Z is the trace of T^side, T[a, b] being what the row a pays with itself and with the row b below it. All entries
    are above 0, so nothing cancels, whatever the sign of sigma.

    >>> round(torus_log_partition(3, 0.1), 9)
    6.669744604
    """
    rows = 2.0 * (np.arange(2**side)[:, None] >> np.arange(side) & 1) - 1
    # On a side of 2 the two neighbours along an axis are one, and are met twice.
    edge = 2 * sigma if side > 2 else sigma
    within = edge * (rows * np.roll(rows, 1, 1)).sum(1) + field * rows.sum(1)
    exponent = edge * (rows @ rows.T) + 0.5 * (within[:, None] + within)
    scale = exponent.max()
    power, log_scale = _power(np.exp(exponent - scale), side)
    with np.errstate(divide="ignore"):
        return float(np.log(np.trace(power)) + log_scale + side * scale)


def _power(matrix: np.ndarray, exponent: int) -> tuple[np.ndarray, float]:
    """A power of a matrix of positive numbers as another one, times e to a number, by squaring."""
    result, log_result, square, log_square = np.eye(len(matrix)), 0.0, matrix, 0.0
    while True:
        if exponent & 1:
            result = result @ square
            result, by = result / result.max(), float(np.log(result.max()))
            log_result += log_square + by
        exponent >>= 1
        if not exponent:
            return result, log_result
        square = square @ square
        square, by = square / square.max(), float(np.log(square.max()))
        log_square = 2 * log_square + by
