"""Landscapes on a grid in which the best cells are hard to come by: waves, a lure in the middle, single points."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._grid_rewards import corner, require_grid
from twinax.errors import TwinaxError
from twinax.types import Array, Float, Int

PEAKS = 9
"""Waves of `Cosine` along a coordinate: cos(50 a) is 1 at a = 0, 2 pi/50, ..., 8 pi/50 to each side."""
MOST_PEAKS = PEAKS**5
"""Combinations of peaks that are looked through for modes; `Cosine` has none marked on grids of more coordinates."""
WHOLE = 2**20
"""A whole number stands for the logarithm of a wave in units of log(0.8) / WHOLE, so that every framework finds the
same modes."""


@checked
@dataclass(frozen=True)
class Cosine:
    """R = R0 + R1 prod_i (cos(50 a_i) + 1) exp(-(5 a_i)^2 / 2) / sqrt(2 pi), where a = |s/(side-1) - 1/2|.

    A cell belongs to a mode if R >= R0 + R1 (0.8 x 2/sqrt(2 pi))^dim; cells whose coordinates are nearest to the same
    waves are one mode. Grids of fewer than about 32 cells along a coordinate have no such cell.

    >>> from twinax.envs import Hypergrid
    >>> Hypergrid(dim=2, side=32, reward=Cosine()).num_modes
    5
    """

    r0: float = 0.1
    """Reward of every cell."""
    r1: float = 0.5
    """Height of the waves, before they are multiplied."""

    def __post_init__(self):
        _above_zero(self, r0=self.r0, r1=self.r1)

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log R of each position."""
        require_grid(self, env, state)
        waves = ops.take(ops.like(_waves(env.side), state.position), state.position)
        return ops.log(self.r0 + self.r1 * ops.prod(waves, -1))

    def num_modes(self, env: Any) -> int:
        """Combinations of waves on which the grid has a cell that is high enough."""
        return int(_numbers(env.side, env.dim).max(initial=-1)) + 1

    def mode(self, env: Any, position: Int[Array, "*batch dim"]) -> Int[Array, "*batch"]:
        """Which of these combinations a cell belongs to, -1 for none."""
        low = ops.take(ops.like(_lowness(env.side, env.dim), position), position)
        peak = ops.take(ops.like(_peaks(env.side), position), position)
        place = ops.cast(ops.sum(peak * ops.like(_radix(env.dim), position), -1), "int32")
        numbers = env.constant("cosine_modes", position)
        high = ops.sum(low, -1) <= env.dim * WHOLE
        return ops.where(high, ops.take(numbers, place), -1)

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """The number of the mode on each combination of waves."""
        return {"cosine_modes": _numbers(env.side, env.dim)}


@checked
@dataclass(frozen=True)
class Deceptive:
    """R = R0 + R1 - R1 [every a_i > 1/10] + R2 [every 3/10 < a_i < 4/10], where a = |s/(side-1) - 1/2|.

    The middle cross lures with R1, and what surrounds the bands in the corners is worth next to nothing. The tests are
    done in integers.

    >>> from twinax.envs import Hypergrid
    >>> Hypergrid(dim=2, side=8, reward=Deceptive()).num_modes
    4
    """

    r0: float = 1e-5
    """Reward of every cell."""
    r1: float = 0.1
    """Added where some coordinate is near the middle."""
    r2: float = 2.0
    """Added in the bands."""

    def __post_init__(self):
        _above_zero(self, r0=self.r0, r1=self.r1, r2=self.r2)

    def tiers(self, position: Int[Array, "*batch dim"], side: int) -> Int[Array, "*batch"]:
        """0 near the middle, 1 outside, 2 in the bands."""
        span = side - 1
        distance = ops.abs(2 * position - span) * 10  # 20 (side-1) a
        outside = ops.all(distance > 2 * span, -1)
        band = ops.all((distance > 6 * span) & (distance < 8 * span), -1)
        return ops.cast(outside, "int32") + ops.cast(band, "int32")

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log R of each position."""
        require_grid(self, env, state)
        levels = np.log([self.r0 + self.r1, self.r0, self.r0 + self.r2])
        return ops.take(ops.like(levels, state.position), self.tiers(state.position, env.side))

    def num_modes(self, env: Any) -> int:
        """The bands in the corners, where the grid has cells in them."""
        return 2**env.dim if (self.tiers(np.arange(env.side)[:, None], env.side) == 2).any() else 0

    def mode(self, env: Any, position: Int[Array, "*batch dim"]) -> Int[Array, "*batch"]:
        """Which corner's band a cell is in, -1 for none."""
        return ops.where(self.tiers(position, env.side) == 2, corner(position, env.side), -1)


@checked
@dataclass(frozen=True)
class Sparse:
    """R = 1 + R0 in the 2^dim - 1 cells whose coordinates are 1 or side - 2, but not all of them 1, and R0 elsewhere.

    >>> from twinax.envs import Hypergrid
    >>> Hypergrid(dim=2, side=8, reward=Sparse()).num_modes
    3
    """

    r0: float = 1e-6
    """Reward of every cell."""

    def __post_init__(self):
        _above_zero(self, r0=self.r0)

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log R of each position."""
        require_grid(self, env, state)
        point = ops.cast(self.mode(env, state.position) >= 0, "int32")
        return ops.take(ops.like(np.log([self.r0, 1 + self.r0]), state.position), point)

    def num_modes(self, env: Any) -> int:
        """Each of the cells is a mode."""
        if env.side < 4:
            raise TwinaxError(
                f"Sparse pays at coordinates 1 and side - 2, and side is {env.side}; make it at least 4, so that both "
                "are inner cells and not the same"
            )
        return 2**env.dim - 1

    def mode(self, env: Any, position: Int[Array, "*batch dim"]) -> Int[Array, "*batch"]:
        """Which of the cells this is, -1 for none."""
        last = env.side - 2
        inside = ops.all((position == 1) | (position == last), -1)
        return ops.where(inside, corner(position, env.side) - 1, -1)


def _above_zero(reward: Any, **values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise TwinaxError(f"{name} of {type(reward).__name__} is {value}; it must be finite and above 0")


def _offsets(side: int) -> np.ndarray:
    """a of each coordinate, with its sign."""
    return (2 * np.arange(side) - (side - 1)) / (2 * (side - 1))


def _waves(side: int) -> np.ndarray:
    a = np.abs(_offsets(side))
    return (np.cos(50 * a) + 1) * np.exp(-((5 * a) ** 2) / 2) / math.sqrt(2 * math.pi)


def _lowness(side: int, dim: int) -> np.ndarray:
    """How far below the highest point a wave is at each coordinate: 0 at the top, WHOLE at 0.8 of it."""
    least = 0.8 ** (dim + 1)  # what is lower is in no mode, whatever the other coordinates are
    share = np.maximum(_waves(side) * math.sqrt(2 * math.pi) / 2, least)
    return np.ceil(np.log(share) / math.log(0.8) * WHOLE).astype(np.int32)


def _peaks(side: int) -> np.ndarray:
    """The nearest wave of each coordinate, 0 to PEAKS - 1."""
    return (np.rint(50 * _offsets(side) / (2 * math.pi)) + PEAKS // 2).astype(np.int32)


@functools.lru_cache(maxsize=8)
def _numbers(side: int, dim: int) -> np.ndarray:
    """The number of the mode on each combination of waves, -1 for none; asked for in every step."""
    if PEAKS**dim > MOST_PEAKS:
        return np.full(1, -1, np.int32)
    low, peak = _lowness(side, dim), _peaks(side)
    lowest = [int(low[peak == k].min(initial=(dim + 1) * WHOLE)) for k in range(PEAKS)]
    high = [sum(chosen) <= dim * WHOLE for chosen in itertools.product(lowest, repeat=dim)]
    return np.where(high, np.cumsum(high) - 1, -1).astype(np.int32)


def _radix(dim: int) -> np.ndarray:
    few = PEAKS**dim <= MOST_PEAKS
    return (PEAKS ** np.arange(dim - 1, -1, -1)).astype(np.int32) if few else np.zeros(dim, np.int32)
