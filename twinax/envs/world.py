"""What a grid world for several agents has to say, and the map that such worlds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.noise import Draw
from twinax.ranges import check_counts
from twinax.types import Array, Float, Int

TURN_RULES = ("sequential", "simultaneous")
BLANK, EMPTY, WALL, OUTSIDE = range(4)
"""Codes that every world has: no picture at all (before an episode), free ground, a wall, and off the map."""


@dataclass(frozen=True)
class World(ABC):
    """A grid with agents on it; many worlds at once, on a leading axis.

    A world holds constants only. Its state is a tree of arrays with a leading world axis; rules are written with
    `ops`, so they run on the arrays that they are given. What a cell shows is a small number, its code; `names` says
    what each code means and `codebook` what a network sees of it. An epoch is `turns` turns. In a turn,
    `begin_turn` changes the world, then the agents act in order, each seeing what those before it did; with the
    simultaneous rule all look first, then all act.
    """

    _made_by = "such as tx.envs.TreasureHunt(), a grid with agents on it"

    height: int = 10
    """Rows of the map, walls included."""
    width: int = 10
    """Columns of the map, walls included."""
    num_agents: int = 5
    """Agents in each world."""
    turns: int = 50
    """Turns of an epoch, in each of which every agent acts once."""
    radius: int = 2
    """Cells that an agent sees to each side: it sees the square of this radius around itself."""
    turn_rule: str = "sequential"
    """Order within a turn: sequential (agents act one after the other) or simultaneous (all choose before anyone
    moves)."""

    def __post_init__(self):
        check_counts(self, ("num_agents", "turns"))
        check_counts(self, ("height", "width", "radius"), least=None)
        if min(self.height, self.width) < 3:
            raise TwinaxError(f"a world of {self.height} x {self.width} has no room inside its walls; make it 3 x 3")
        if not 0 <= self.radius < max(self.height, self.width):
            raise TwinaxError(
                f"the radius of vision is {self.radius}, but the world is {self.height} x {self.width}; "
                f"it must be between 0 and {max(self.height, self.width) - 1}"
            )
        if self.turn_rule not in TURN_RULES:
            raise UnknownName("turn rule", self.turn_rule, TURN_RULES)
        free = (self.height - 2) * (self.width - 2)
        if self.num_agents > free:
            raise TwinaxError(f"{self.num_agents} agents do not fit on {free} free cells; make the world larger")

    # What a world says

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The meaning of each code; the first four are blank, empty, wall and outside."""

    @property
    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """The actions by name."""

    @property
    @abstractmethod
    def codebook(self) -> np.ndarray:
        """What a network sees of each code: (codes, channels)."""

    @property
    def worth(self) -> np.ndarray:
        """The reward for walking onto each code, for players that look for it; none by default."""
        return np.zeros(len(self.names), np.float32)

    @abstractmethod
    def reset_draws(self, worlds: int) -> Mapping[str, Draw]:
        """Random arrays for the start of an epoch."""

    @abstractmethod
    def turn_draws(self, worlds: int) -> Mapping[str, Draw]:
        """Random arrays for one turn."""

    @abstractmethod
    def reset(self, draws: Mapping[str, Any]) -> Any:
        """A fresh state."""

    @abstractmethod
    def begin_turn(self, state: Any, draws: Mapping[str, Any]) -> Any:
        """What happens before anyone acts."""

    @abstractmethod
    def act(self, state: Any, agent: int, action: Int[Array, " worlds"]) -> tuple[Any, Float[Array, " worlds"]]:
        """One agent acts: the state after it, and its reward."""

    @abstractmethod
    def act_together(self, state: Any, actions: list[Any]) -> tuple[Any, list[Any]]:
        """All agents act at once, by the world's rule for conflicts."""

    @abstractmethod
    def show(self, state: Any) -> Int[Array, "worlds cells"]:
        """The code of each cell of the padded map."""

    @abstractmethod
    def place(self, state: Any, agent: int) -> Int[Array, " worlds"]:
        """The padded cell that an agent stands on."""

    # What follows from it

    @property
    def num_actions(self) -> int:
        """How many actions there are."""
        return len(self.actions)

    @property
    def view_cells(self) -> int:
        """Cells that an agent sees."""
        return (2 * self.radius + 1) ** 2

    @property
    def observation_size(self) -> int:
        """Numbers that a network sees of one view."""
        return self.codebook.shape[1] * self.view_cells

    @property
    def margin(self) -> int:
        """Cells added around the map: every view lies inside, and every step stays inside."""
        return max(self.radius, 1)

    @property
    def stride(self) -> int:
        """Cells in a row of the padded map."""
        return self.width + 2 * self.margin

    @cached_property
    def ground(self) -> np.ndarray:
        """The padded map without anything on it: (cells,)."""
        cells = np.full((self.height, self.width), WALL, np.int32)
        cells[1:-1, 1:-1] = EMPTY
        return constant(np.pad(cells, self.margin, constant_values=OUTSIDE).reshape(-1))

    @cached_property
    def inside(self) -> np.ndarray:
        """Padded cells within the walls, row by row."""
        return constant(np.flatnonzero(self.ground == EMPTY).astype(np.int32))

    @cached_property
    def steps(self) -> np.ndarray:
        """By how much up, down, left and right change a padded cell."""
        return constant(np.array([-self.stride, self.stride, -1, 1], np.int32))

    @cached_property
    def offsets(self) -> np.ndarray:
        """By how much the cells of a view differ from its centre, row by row."""
        near = np.arange(-self.radius, self.radius + 1, dtype=np.int32)
        return constant((near[:, None] * self.stride + near).reshape(-1))

    def view(self, state: Any, agent: int) -> Int[Array, "worlds view"]:
        """The codes that an agent sees around itself."""
        cells = self.show(state)
        return ops.gather(cells, self.place(state, agent)[:, None] + ops.like(self.offsets, cells))

    def picture(self, state: Any) -> Int[Array, "worlds height width"]:
        """The codes of the map without its margin."""
        cells, edge = self.show(state), self.margin
        grid = cells.reshape(cells.shape[0], self.height + 2 * edge, self.stride)
        return grid[:, edge : edge + self.height, edge : edge + self.width]


def constant(array: np.ndarray) -> np.ndarray:
    """The array, no longer writeable: `ops.like` then converts it once and not at every call."""
    array.setflags(write=False)
    return array


def put(cells: Int[Array, "worlds cells"], place: Int[Array, " worlds"], code: Any) -> Int[Array, "worlds cells"]:
    """The map with one cell of each world changed; the code may differ between worlds."""
    # A comparison of the whole small map is one quick loop; a scatter is not.
    here = ops.arange(cells.shape[1], cells)[None] == place[:, None]
    return ops.where(here, code if isinstance(code, int) else code[:, None], cells)


def decode(codes: Any, codebook: Any) -> Array:
    """Codes (..., frames, view) as the numbers a network sees, (..., frames * channels * view), channel by channel."""
    seen = ops.channels(codes, codebook)  # (..., frames, channels, view)
    return seen.reshape(*seen.shape[:-3], -1)
