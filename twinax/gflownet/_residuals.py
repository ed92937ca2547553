"""What is made of a residual: functions that are 0 at 0 and positive elsewhere.

A residual is what the model says minus what it should: log F P_F - log F' P_B. All but `linex` are even.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array

Residual = Callable[[Array], Array]
HIGHEST = 80.0
"""Exponents are cut here, so that their exponentials fit into a float32; what is beyond adds its size, so that the
gradient of a residual that is far too large still leads back."""


def half(t: Array) -> Array:
    """t^2 / 2."""
    return 0.5 * ops.square(t)


def huber(t: Array) -> Array:
    """t^2 / 2 within 1, |t| - 1/2 beyond."""
    return ops.huber(t)


def shifted_cosh(t: Array) -> Array:
    """e^t + e^-t - 2."""
    cut = ops.clip(t, -HIGHEST, HIGHEST)
    return ops.exp(cut) + ops.exp(-cut) - 2.0 + ops.abs(t - cut)


def linex(t: Array, slope: float = 1.0) -> Array:
    """(e^(a t) - a t - 1) / a^2 with the slope a: too much weighs more than too little where a is above 0."""
    exponent = slope * t
    cut = ops.clip(exponent, -HIGHEST, HIGHEST)
    return (ops.exp(cut) - cut - 1.0 + ops.abs(exponent - cut)) / slope**2


RESIDUALS: dict[str, Callable[..., Array]] = {
    "squared": ops.square,
    "half": half,
    "huber": huber,
    "shifted_cosh": shifted_cosh,
    "linex": linex,
}
"""By the names of options."""


def residual(name: str, slope: float = 1.0) -> Residual:
    """The function of that name.

    >>> import numpy as np
    >>> float(residual("shifted_cosh")(np.float64(2.0)).round(6))
    5.524391
    """
    if name not in RESIDUALS:
        raise UnknownName("residual loss", name, RESIDUALS)
    if not 0 < abs(slope) <= HIGHEST:
        raise TwinaxError(f"the slope of linex is {slope}; it must not be 0, and between -{HIGHEST:g} and {HIGHEST:g}")
    return functools.partial(linex, slope=slope) if name == "linex" else RESIDUALS[name]
