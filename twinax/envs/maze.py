"""A point in a maze: continuous moves in two directions, walls, and a goal to reach.

Positions are in cells: the cell in column c and row r is the square from (c, r) to (c + 1, r + 1).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.ranges import check_range
from twinax.types import Array, Bool, Float, Int

MAZES = {
    "open": "#######\n#.....#\n#.....#\n#.....#\n#.....#\n#.....#\n#######",
    "u": "#####\n#...#\n###.#\n#...#\n#####",
    "medium": "########\n#..##..#\n#..#...#\n##...###\n#..#...#\n#.#..#.#\n#...#..#\n########",
    "large": (
        "############\n#....#.....#\n#.##.#.#.#.#\n#......#...#\n#.####.###.#\n"
        "#..#.#.....#\n##.#.#.#.###\n#..#...#...#\n############"
    ),
}
"""Mazes by name: # is a wall."""
DIRECTIONS = ((0, -1), (0, 1), (-1, 0), (1, 0))


@tree.record
class MazeState:
    """Where the points and their goals are."""

    position: Float[Array, "worlds 2"]
    """(x, y), x to the right and y down."""
    velocity: Float[Array, "worlds 2"]
    """Cells per step; 0 where the point has no inertia."""
    goal: Float[Array, "worlds 2"]
    time: Int[Array, " worlds"]
    """Steps taken."""


@checked
@dataclass(frozen=True)
class PointMaze:
    """A point that moves by its action, or is pushed by it, and slides along walls.

    >>> maze = PointMaze(walls="u")
    >>> maze.width, maze.height, len(maze.free)
    (5, 5, 7)
    """

    walls: str = "medium"
    """Name of a maze, or its rows as text: # is a wall, anything else is free. The border must be walls."""
    inertia: bool = False
    """Whether actions push the point, so that its velocity is part of what is seen."""
    speed: float = 0.25
    """Cells per step at a full action."""
    friction: float = 0.2
    """Part of the velocity that is lost in a step; the top speed stays the same."""
    margin: float = 0.1
    """How near, in cells, the point comes to a wall that it moves towards."""
    radius: float = 0.5
    """Distance to the goal, in cells, at which it is reached."""
    max_steps: int = 200
    """Steps of an episode."""

    def __post_init__(self):
        rows = self.rows
        if len(rows) < 3 or len({len(row) for row in rows}) != 1 or len(rows[0]) < 3:
            raise TwinaxError(
                f"the maze has rows of {', '.join(str(len(row)) for row in rows)} cells; it must be a "
                f"rectangle of at least 3 x 3, or one of {', '.join(MAZES)}"
            )
        grid = np.array([[cell == "#" for cell in row] for row in rows])
        border = np.ones_like(grid)
        border[1:-1, 1:-1] = False
        if not grid[border].all():
            row, column = np.argwhere(border & ~grid)[0]
            raise TwinaxError(f"the maze is open at row {row}, column {column}; its border must be walls (#)")
        if grid.all():
            raise TwinaxError("the maze has no free cell")
        if not 0 < self.speed <= 0.5:
            raise TwinaxError(f"speed is {self.speed}; it must be above 0 and at most 0.5, so that no wall is skipped")
        for label, low, high in (("friction", 0, 1), ("margin", 0, 0.4), ("radius", 0, math.inf)):
            if not low < getattr(self, label) <= high:
                raise TwinaxError(f"{label} is {getattr(self, label)}; it must be above {low} and at most {high}")
        check_range(self, "at least 1", "max_steps")
        if (self.distances < 0).any():
            a, b = (tuple(self.free[k].tolist()) for k in np.argwhere(self.distances < 0)[0])
            raise TwinaxError(f"no way leads from cell {a} to cell {b} of the maze")

    # The map

    @property
    def rows(self) -> list[str]:
        """The maze as lines of text."""
        return MAZES.get(self.walls, self.walls).strip().splitlines()

    @property
    def width(self) -> int:
        """Columns."""
        return len(self.rows[0])

    @property
    def height(self) -> int:
        """Rows."""
        return len(self.rows)

    @property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        return 4 if self.inertia else 2

    @cached_property
    def solid(self) -> Bool[np.ndarray, " cells"]:
        """Whether each cell is a wall, row by row."""
        return _constant(np.array([cell == "#" for row in self.rows for cell in row]))

    @cached_property
    def free(self) -> Int[np.ndarray, "free 2"]:
        """(column, row) of each free cell."""
        cells = np.flatnonzero(~self.solid)
        return _constant(np.stack([cells % self.width, cells // self.width], -1).astype(np.int32))

    @cached_property
    def number(self) -> Int[np.ndarray, " cells"]:
        """The number of each cell among the free ones; 0 for walls."""
        return _constant(np.where(self.solid, 0, np.cumsum(~self.solid) - 1).astype(np.int32))

    @cached_property
    def distances(self) -> Int[np.ndarray, "free free"]:
        """Cells from each free cell to each other, by breadth-first search; -1 where no way leads."""
        place = {tuple(cell): k for k, cell in enumerate(self.free.tolist())}
        distances = np.full((len(place), len(place)), -1, np.int32)
        for (column, row), k in place.items():
            distances[k, k] = 0
            queue = deque([(column, row)])
            while queue:
                x, y = queue.popleft()
                for dx, dy in DIRECTIONS:
                    there = place.get((x + dx, y + dy))
                    if there is not None and distances[k, there] < 0:
                        distances[k, there] = distances[k, place[x, y]] + 1
                        queue.append((x + dx, y + dy))
        return _constant(distances)

    @cached_property
    def way(self) -> Int[np.ndarray, "free free"]:
        """The free cell to go to next, from each free cell to each other."""
        place = {tuple(cell): k for k, cell in enumerate(self.free.tolist())}
        way = np.repeat(np.arange(len(place), dtype=np.int32)[:, None], len(place), 1)
        for (column, row), k in place.items():
            for dx, dy in DIRECTIONS:
                there = place.get((column + dx, row + dy))
                if there is not None:
                    way[k] = np.where(self.distances[there] < self.distances[k], there, way[k])
        return _constant(way)

    # The rules

    def reset_draws(self, worlds: int) -> Mapping[str, Draw]:
        """What `reset` needs."""
        return {
            "start_cell": Draw((worlds,), "integers", len(self.free)),
            "start_place": Draw((worlds, 2)),
            "goal_cell": Draw((worlds,), "integers", len(self.free)),
            "goal_place": Draw((worlds, 2)),
        }

    def reset(self, draws: Mapping[str, Any]) -> MazeState:
        """Points at rest and goals, anywhere in free cells but not at their edges."""
        position = self.spot(draws["start_cell"], draws["start_place"])
        goal = self.spot(draws["goal_cell"], draws["goal_place"])
        return MazeState(position, position * 0, goal, ops.zeros((position.shape[0],), position, "int32"))

    def spot(self, cell: Int[Array, " worlds"], place: Float[Array, "worlds 2"]) -> Float[Array, "worlds 2"]:
        """A position in the middle half of a free cell, by its number and two uniform numbers."""
        return ops.cast(ops.take(ops.like(self.free, place), cell), place) + 0.25 + 0.5 * place

    def step(
        self, state: MazeState, action: Float[Array, "worlds 2"]
    ) -> tuple[MazeState, Float[Array, " worlds"], Bool[Array, " worlds"], Bool[Array, " worlds"]]:
        """Move; the new state, the reward (0 at the goal, -1 elsewhere), whether the goal is reached, and whether time
        is up. An episode goes on at the goal."""
        action = ops.clip(action, -1.0, 1.0)
        if self.inertia:
            velocity = (1 - self.friction) * state.velocity + self.friction * self.speed * action
        else:
            velocity = self.speed * action
        x, y = state.position[:, 0], state.position[:, 1]
        moved_x = self._slide(x, velocity[:, 0], lambda x: self._solid(x, y))
        moved_y = self._slide(y, velocity[:, 1], lambda y: self._solid(moved_x, y))
        position = ops.stack([moved_x, moved_y], -1)
        # A wall takes the speed towards it.
        kept = position - state.position if self.inertia else velocity * 0
        after = MazeState(position, kept, state.goal, state.time + 1)
        reached = self.reached(position, state.goal)
        return after, self.reward(position, state.goal), reached, after.time >= self.max_steps

    def _slide(self, place: Any, speed: Any, solid: Any) -> Any:
        ahead = place + speed
        feeler = ops.where(speed > 0, ahead + self.margin, ahead - self.margin)
        cell = ops.cast(ops.cast(place, "int32"), place)
        # It stops short of the wall, but is not pushed back if it is nearer already.
        limit = ops.where(
            speed > 0, ops.maximum(cell + (1 - self.margin), place), ops.minimum(cell + self.margin, place)
        )
        blocked = solid(feeler) & (speed != 0)
        return ops.where(blocked, limit, ahead)

    def _solid(self, x: Any, y: Any) -> Any:
        cell = ops.cast(y, "int32") * self.width + ops.cast(x, "int32")
        return ops.take(ops.like(self.solid, x), cell)

    def reached(self, position: Float[Array, "*rows 2"], goal: Float[Array, "... 2"]) -> Bool[Array, "*rows"]:
        """Whether a position is at the goal."""
        return ops.sum(ops.square(position - goal), -1) <= self.radius**2

    def reward(
        self, position: Float[Array, "*rows 2"], goal: Float[Array, "... 2"], reach: float = 0.0, positive: bool = False
    ) -> Float[Array, "*rows"]:
        """1 at the goal and 0 elsewhere, less 1 unless it is to be positive.

        With a reach it falls off like a bell, exp(-d^2 / (2 reach^2)) at a distance of d cells.
        """
        if reach:
            height = ops.exp(-ops.sum(ops.square(position - goal), -1) / (2 * reach**2))
        else:
            height = ops.cast(self.reached(position, goal), position)
        return height if positive else height - 1

    def require_free(self, place: Any) -> Float[np.ndarray, 2]:
        """The place as an array; an error unless it is (x, y) in a free cell."""
        point = np.asarray(place, np.float32)
        if point.shape != (2,) or not (0 <= point[0] < self.width and 0 <= point[1] < self.height):
            raise TwinaxError(
                f"the goal is {point.tolist()}; it must be (x, y) inside the maze of {self.width} x {self.height}"
            )
        if self.solid[int(point[1]) * self.width + int(point[0])]:
            raise TwinaxError(f"the goal is {point.tolist()}, which is in a wall of the maze")
        return point

    def observe(self, state: MazeState) -> Float[Array, "worlds observation"]:
        """The position, and the velocity if there is inertia."""
        return ops.concat([state.position, state.velocity], -1) if self.inertia else state.position

    def observe_goal(self, state: MazeState) -> Float[Array, "worlds observation"]:
        """The goal as it would be seen from there: at rest."""
        return ops.concat([state.goal, state.goal * 0], -1) if self.inertia else state.goal

    # A guide

    def guide(self, state: MazeState, normal: Float[Array, "worlds 2"], noise: float = 0.5) -> Float[Array, "worlds 2"]:
        """Actions towards the next cell on a shortest way to the goal, with Gaussian noise."""
        number, way, free = ops.like((self.number, self.way, self.free), state.position)
        here, there = (ops.take(number, self._cell(x)) for x in (state.position, state.goal))
        following = ops.take(way.reshape(-1), ops.cast(here * len(self.free) + there, "int32"))
        middle = ops.cast(ops.take(free, following), state.position) + 0.5
        target = ops.where((here == there)[:, None], state.goal, middle)
        # With inertia it stops where it is going, not where it is.
        towards = target - state.position - state.velocity * ((1 - self.friction) / self.friction)
        size = ops.sqrt(ops.sum(ops.square(towards), -1))[:, None]
        full = towards / ops.maximum(size, ops.full((1, 1), self.speed, size))
        return ops.clip(full + noise * normal, -1.0, 1.0)

    def _cell(self, position: Any) -> Any:
        return ops.cast(position[:, 1], "int32") * self.width + ops.cast(position[:, 0], "int32")


def _constant(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def require_reach(reach: float) -> None:
    """Refuse what is no distance; see `PointMaze.reward`."""
    if not 0 <= reach < math.inf:
        raise TwinaxError(f"reach is {reach}; it must be a number of cells, at least 0")
