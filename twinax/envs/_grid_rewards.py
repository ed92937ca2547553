"""Rewards on a grid, as tables and integer tests, so that they are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.types import Array, Float, Int


@checked
@dataclass(frozen=True)
class GridReward:
    """R = R0 + R1 [every coordinate is outer] + R2 [every coordinate is in the band].

    With a = |s/(side-1) - 1/2|, a coordinate is outer if a > 1/4 and in the band if 3/10 < a < 4/10. The
    tests are done in integers: in floating point they go wrong whenever 10 divides side - 1.
    """

    r0: float = 1e-3
    """Reward of every cell."""
    r1: float = 0.5
    """Added in the outer region."""
    r2: float = 2.0
    """Added in the band, which lies in the outer region."""

    def __post_init__(self):
        values = {"r0": self.r0, "r1": self.r1, "r2": self.r2}
        for name, value in values.items():
            if not (isinstance(value, (int, float)) and math.isfinite(value)):
                raise TwinaxError(f"the reward constant {name} is {value}; it must be a finite number")
        for name, total in (("r0", self.r0), ("r0 + r1", self.r0 + self.r1), ("r0 + r1 + r2", sum(values.values()))):
            if total <= 0:
                raise TwinaxError(f"{name} is {total}; every cell needs a reward above 0, or log R is not finite")

    @classmethod
    def easy(cls) -> GridReward:
        """(1e-3, 0.5, 2)."""
        return cls(1e-3, 0.5, 2.0)

    @classmethod
    def hard(cls) -> GridReward:
        """(1e-4, 1, 3)."""
        return cls(1e-4, 1.0, 3.0)

    def tiers(self, position: Int[Array, "*batch dim"], side: int) -> Int[Array, "*batch"]:
        """0 inside, 1 in the outer region, 2 in the band."""
        span = side - 1
        distance = ops.abs(2 * position - span) * 10  # 20 (side-1) a
        outer = ops.all(distance > 5 * span, -1)
        band = ops.all((distance > 6 * span) & (distance < 8 * span), -1)
        return ops.cast(outer, "int32") + ops.cast(band, "int32")

    def num_modes(self, env: Any) -> int:
        """The corner regions of the highest tier."""
        return 2**env.dim

    def mode(self, env: Any, position: Int[Array, "*batch dim"]) -> Int[Array, "*batch"]:
        """Which corner region of the highest tier that the grid has a cell is in, -1 for none."""
        top = int(self.tiers(np.arange(env.side)[:, None], env.side).max())
        return ops.where(self.tiers(position, env.side) == top, corner(position, env.side), -1)

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log R of each position on the grid of a world."""
        require_grid(self, env, state)
        levels = np.log([self.r0, self.r0 + self.r1, self.r0 + self.r1 + self.r2])
        return ops.take(ops.like(levels, state.position), self.tiers(state.position, env.side))


@checked
@dataclass(frozen=True)
class Uniform:
    """The same reward for every object, in any world."""

    value: float = 1.0
    """Reward of every cell, which must be above 0."""

    def __post_init__(self):
        if not (math.isfinite(self.value) and self.value > 0):
            raise TwinaxError(f"the uniform reward is {self.value}; it must be finite and above 0")

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log of the constant."""
        return ops.like(np.full(tuple(state.done.shape), math.log(self.value)), state.done)


@checked
@dataclass(frozen=True)
class Corners:
    """A Gaussian bump in each corner region of the box [-1, 1]^dim on which the cells lie evenly.

    R(x) = N(|x|; mu, sigma I), sigma being the variance of each coordinate.
    """

    mu: float = 0.75
    """Where the bumps are, as a distance from the centre."""
    sigma: float = 0.05
    """Variance of each coordinate."""

    def __post_init__(self):
        if not (math.isfinite(self.mu) and math.isfinite(self.sigma) and self.sigma > 0):
            raise TwinaxError(f"corners have mu={self.mu}, sigma={self.sigma}; both must be finite and sigma above 0")

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log R of each position, summed over coordinates from a table."""
        require_grid(self, env, state)
        x = np.abs(np.linspace(-1.0, 1.0, env.side))
        table = -0.5 * (x - self.mu) ** 2 / self.sigma - 0.5 * math.log(2 * math.pi * self.sigma)
        return ops.sum(ops.take(ops.like(table, state.position), state.position), -1)


def corner(position: Int[Array, "*batch dim"], side: int) -> Int[Array, "*batch"]:
    """The number of the corner that a cell is nearest to: bit i says whether coordinate i is in its upper half."""
    upper = ops.cast(2 * position > side - 1, "int32")
    bits = 2 ** np.arange(position.shape[-1], dtype=np.int32)
    return ops.cast(ops.sum(upper * ops.like(bits, position), -1), "int32")


def require_grid(reward: Any, env: Any, state: Any) -> None:
    if not hasattr(state, "position") or not hasattr(env, "side"):
        world = getattr(env, "env", env)  # one that was given this reward has it inside
        raise TwinaxError(
            f"{type(reward).__name__} pays for positions on a grid, and {type(world).__name__} has none; name a reward "
            "of your own, or Uniform"
        )
