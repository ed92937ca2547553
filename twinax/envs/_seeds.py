"""Seeds for worlds that make their own random numbers, from draws: so their randomness is data as well."""

from __future__ import annotations

from twinax import ops
from twinax.noise import Draw
from twinax.types import Array, Float, Int


def seed_draw(worlds: int) -> Draw:
    """What `seeds` needs. Uniform numbers, not integers: their dtype tells a world the dtype of the run."""
    return Draw((worlds, 2))


def seeds(uniform: Float[Array, "worlds 2"]) -> Int[Array, " worlds"]:
    """Integers below 2^31; equal ones in every framework and precision.

    >>> import numpy as np
    >>> seeds(np.array([[0.5, 0.25]], np.float32)).tolist()
    [1073741888]
    """
    # A draw has 23 random bits, and every one of them is exact in float32.
    high, low = ops.cast(uniform[:, 0] * 2.0**23, "int32"), ops.cast(uniform[:, 1] * 2.0**8, "int32")
    return high * 256 + low
