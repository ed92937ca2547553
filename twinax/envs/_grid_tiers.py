"""Rewards on a grid by levels, written as a table of whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._grid_rewards import require_grid
from twinax.errors import TwinaxError
from twinax.types import Array, Float, Int


@checked
@dataclass(frozen=True)
class Tiers:
    """Every cell has a level, a whole number from 0 on, and each level a reward.

    With one level for each of the `side` coordinates, a cell has the least level of its coordinates; that is how
    regions inside regions are written. With one for each of the side^dim cells, the last coordinate running fastest,
    the table can be anything.

    >>> from twinax.envs import Hypergrid
    >>> env = Hypergrid(dim=2, side=4, reward=Tiers(levels=(0, 1, 0, 1), rewards=(0.1, 2.0)))
    >>> np.exp(env.log_reward(env.reset(1))).round(3).tolist(), env.num_modes
    ([0.1], 4)
    """

    levels: tuple[int, ...]
    """The level of each coordinate, `side` of them, or of each cell, side^dim of them."""
    rewards: tuple[float, ...]
    """The reward of each level."""

    def __post_init__(self):
        for level, reward in enumerate(self.rewards):
            if not (math.isfinite(reward) and reward > 0):
                raise TwinaxError(f"rewards gives level {level} the reward {reward}; it must be finite and above 0")
        outside = [level for level in self.levels if not 0 <= level < len(self.rewards)]
        if outside or not self.levels:
            what = f"has the level {outside[0]}" if outside else "is empty"
            raise TwinaxError(f"levels {what}, but rewards has {len(self.rewards)} levels, counted from 0")

    def tiers(self, env: Any, position: Int[Array, "*batch dim"]) -> Int[Array, "*batch"]:
        """The level of each position."""
        levels = env.constant("levels", position)
        if self._by_cell(env):
            radix = (env.side ** np.arange(env.dim - 1, -1, -1)).astype(np.int32)
            return ops.take(levels, ops.cast(ops.sum(position * ops.like(radix, position), -1), "int32"))
        return ops.min(ops.take(levels, position), -1)

    def log_reward(self, env: Any, state: Any) -> Float[Array, "*batch"]:
        """log R of each position."""
        require_grid(self, env, state)
        return ops.take(ops.like(np.log(self.rewards), state.position), self.tiers(env, state.position))

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """The table of levels."""
        return {"levels": np.array(self.levels, np.int32)}

    def num_modes(self, env: Any) -> int:
        """Blocks of the best cells, where levels belong to coordinates: neighbouring coordinates are one block."""
        return 0 if self._by_cell(env) else (int(self._blocks().max()) + 1) ** env.dim

    def mode(self, env: Any, position: Int[Array, "*batch dim"]) -> Int[Array, "*batch"]:
        """Which block a cell is in, -1 for none."""
        blocks = self._blocks()
        radix = ((int(blocks.max()) + 1) ** np.arange(env.dim - 1, -1, -1)).astype(np.int32)
        block = ops.take(ops.like(blocks, position), position)
        number = ops.cast(ops.sum(block * ops.like(radix, position), -1), "int32")
        return ops.where(ops.all(block >= 0, -1), number, -1)

    def _by_cell(self, env: Any) -> bool:
        if len(self.levels) == env.side:
            return False
        if len(self.levels) != env.side**env.dim:
            raise TwinaxError(
                f"levels has {len(self.levels):,} entries on a grid of dim={env.dim}, side={env.side}; give "
                f"{env.side}, one for each coordinate, or {env.side**env.dim:,}, one for each cell"
            )
        return True

    def _blocks(self) -> np.ndarray:
        """The block of neighbouring coordinates of the best level that each coordinate is in, -1 for none."""
        levels = np.array(self.levels)
        present = np.unique(levels)
        best = levels == present[np.argmax(np.array(self.rewards)[present])]
        starts = best & ~np.concatenate([[False], best[:-1]])
        return np.where(best, np.cumsum(starts) - 1, -1).astype(np.int32)
