"""The hypergrid: walk up the axes of a cube of cells, stop anywhere, be paid for where you stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._environment import Environment
from twinax.envs._grid_rewards import GridReward
from twinax.envs._rewarded import as_reward
from twinax.errors import TwinaxError
from twinax.networks import KHot
from twinax.types import Array, Bool, Float, Int

WIDEST = 4096
"""Grids of more cells along a coordinate make no picture."""


class GridState(NamedTuple):
    """Where each walker is, and whether it has stopped."""

    position: Int[Array, "batch dim"]
    done: Bool[Array, " batch"]


@checked
@dataclass(frozen=True)
class Hypergrid(Environment):
    """side^dim cells from the origin; action i adds one to coordinate i, action `dim` stops.

    >>> Hypergrid(dim=2, side=8).max_steps
    15
    """

    dim: int = 4
    """Number of coordinates of a cell: the dimension of the grid."""
    side: int = 20
    """Cells along each coordinate."""
    reward: Any = GridReward()
    """What a cell pays: `GridReward`, `Uniform`, `Corners`, `Cosine`, `Deceptive`, `Sparse`, `Tiers`, any function of
    cells, or a record of one's own."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        for name, least in (("dim", 1), ("side", 2)):
            if (value := getattr(self, name)) < least:
                raise TwinaxError(f"{name} is {value}; it must be at least {least}")
        # Tiers, observations and the numbers of modes are counted in int32.
        if 20 * self.dim * self.side >= 2**31:
            raise TwinaxError(
                f"a hypergrid has dim={self.dim}, side={self.side}; dim x side must be below {2**31 // 20:,}"
            )
        if self.num_modes > 2**30:
            raise TwinaxError(
                f"a hypergrid of dim={self.dim} has 2^{self.num_modes.bit_length() - 1} modes under {self.reward}, too "
                "many to mark; make dim at most 30, or take a reward without modes such as Uniform or Corners"
            )

    @property
    def num_actions(self) -> int:
        return self.dim + 1

    @property
    def num_backward_actions(self) -> int:
        return self.dim

    @property
    def max_steps(self) -> int:
        return self.dim * (self.side - 1) + 1

    def reset(self, batch: int) -> GridState:
        return GridState(np.zeros((batch, self.dim), np.int32), np.zeros((batch,), bool))

    def step(self, state: GridState, action: Int[Array, " batch"]) -> GridState:
        move = self._unit(action) * ops.cast(~state.done, "int32")[..., None]
        return GridState(state.position + move, state.done | (action == self.dim))

    def backward_step(self, state: GridState, action: Int[Array, " batch"]) -> GridState:
        move = self._unit(action) * ops.cast(~state.done, "int32")[..., None]
        return GridState(state.position - move, state.done & False)

    def _unit(self, action: Int[Array, " batch"]) -> Int[Array, "batch dim"]:
        return ops.one_hot(action, self.dim, "int32")  # the stop action gives zeros

    def forward_mask(self, state: GridState) -> Bool[Array, "batch actions"]:
        room = state.position < self.side - 1
        return ops.concat([room & ~state.done[..., None], ~state.done[..., None]], -1)

    def backward_mask(self, state: GridState) -> Bool[Array, "batch dim"]:
        return (state.position > 0) & ~state.done[..., None]

    def observe(self, state: GridState) -> KHot:
        offsets = ops.arange(self.dim, state.position) * self.side
        return KHot(state.position + offsets, self.dim * self.side)

    @property
    def observation_size(self) -> int:
        return self.dim * self.side

    def objects(self, state: GridState) -> Int[Array, "batch dim"]:
        return state.position

    def states_of(self, objects: np.ndarray) -> GridState:
        return GridState(np.asarray(objects, np.int32), np.ones(len(objects), bool))

    def log_paths_ratio(self, state: GridState) -> Float[Array, "batch dim"]:
        # Paths to s: (sum s)! / prod s_i!, so those to the parent s - e_i are in proportion to s_i.
        counts = np.log(np.maximum(np.arange(self.side), 0.5))
        return ops.take(ops.like(counts, state.position), state.position)

    @property
    def num_states(self) -> int:
        return 2 * self.side**self.dim

    @property
    def num_modes(self) -> int:
        """As many as the reward defines; one without modes, such as Uniform or Corners, defines none."""
        count: Any = getattr(self.reward, "num_modes", None)
        return count(self) if callable(count) else 0  # type: ignore[return-value]

    def mode(self, state: GridState) -> Int[Array, " batch"]:
        return self.reward.mode(self, state.position)

    def picture(self, states: GridState, distribution: np.ndarray) -> np.ndarray | None:
        """The distribution of the first two coordinates."""
        if self.side > WIDEST:
            return None
        first, second = states.position[:, 0], states.position[:, min(1, self.dim - 1)]
        if self.dim == 1:
            return np.bincount(first, distribution, minlength=self.side)[None]
        cells = first.astype(np.int64) * self.side + second
        return np.bincount(cells, distribution, minlength=self.side**2).reshape(self.side, self.side)
