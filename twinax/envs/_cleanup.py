"""Cleanup: a river that somebody has to clean, and an orchard that everybody may harvest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs.world import EMPTY, WALL, World, constant, put
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.ranges import check_counts, check_finite, check_range
from twinax.types import Array, Float, Int

RIVER, POLLUTION, GRASS, APPLE, CLEAN_BEAM, ZAP_BEAM, ZAPPED, AGENT = range(4, 12)
"""Codes of this world, rising with what lies on top; from AGENT on there is one for each direction that it may face."""
CLEAN, ZAP = 4, 5
"""The actions after the four moves."""


@tree.record
class Commons:
    """Where everything is."""

    cells: Int[Array, "worlds cells"]
    """Codes of the padded map without agents and beams."""
    places: Int[Array, "worlds agents"]
    """The padded cell of each agent."""
    facing: Int[Array, "worlds agents"]
    """The last move that each agent tried: the direction of its beams."""
    fired: Int[Array, "worlds agents"]
    """The code of the beam that an agent's last action sent out, or 0."""
    out: Int[Array, "worlds agents"]
    """Turns that an agent still loses."""


@checked
@dataclass(frozen=True)
class Cleanup(World):
    """A public-goods dilemma: apples are for whoever takes them, and grow only while somebody cleans the river.

    Before each turn every clean cell of the river, at the top, is polluted with `pollution_prob`; then an apple grows
    on every free cell of grass, at the bottom, with a probability that falls from `apple_prob` in a straight line with
    the polluted share of the river and is 0 from `threshold` on. Walls and agents block and cost nothing.

    An agent faces the way of its last move, also of one that was blocked, and up at the start. Its beams reach
    `beam_length` cells ahead, over agents but not through walls. The clean beam takes pollution away. Whoever is hit by
    a zap beam loses the next `zap_turns` turns; those who lose turns already are not hit again. A beam is seen until
    its agent acts again, and hides what lies below it, as agents do.

    With the simultaneous rule nobody enters a cell on which an agent stood when the turn began, of several who want a
    cell the first in the list gets it, and zap beams hit those who stood there when the turn began; they still act.
    """

    height: int = 12
    """Rows of the map, walls included."""
    width: int = 12
    """Columns of the map, walls included."""
    num_agents: int = 3
    """Agents in each world."""
    radius: int = 3
    """Cells that an agent sees to each side: it sees the square of this radius around itself."""
    river_rows: int = 3
    """Rows of river below the upper wall."""
    orchard_rows: int = 3
    """Rows of grass above the lower wall."""
    pollution_prob: float = 0.02
    """Probability that a clean cell of the river is polluted in a turn."""
    initial_pollution: float = 0.0
    """Probability that a cell of the river is polluted at the start."""
    apple_prob: float = 0.05
    """Probability that an apple grows on a cell of grass in a turn while the river is clean."""
    threshold: float = 0.4
    """Polluted share of the river from which no apple grows."""
    apple_value: float = 1.0
    """Reward of an agent that takes an apple."""
    beam_length: int = 3
    """Cells that the beam of an agent reaches ahead of it."""
    zap_turns: int = 3
    """Turns that an agent loses when a zap beam hits it."""

    def __post_init__(self):
        super().__post_init__()
        check_counts(self, ("river_rows", "orchard_rows", "beam_length", "zap_turns"))
        if self.river_rows + self.orchard_rows > self.height - 2:
            raise TwinaxError(
                f"{self.river_rows} rows of river and {self.orchard_rows} of orchard do not fit into the "
                f"{self.height - 2} rows within the walls; make the world higher"
            )
        check_range(self, "between 0 and 1", "pollution_prob", "initial_pollution", "apple_prob")
        check_range(self, "above 0 and at most 1", "threshold")
        check_finite(self, ("apple_value",))

    @property
    def names(self) -> tuple[str, ...]:
        things = ("river", "pollution", "grass", "grass+apple", "clean_beam", "zap_beam", "zapped_agent")
        return ("blank", "empty", "wall", "outside", *things, *["agent"] * len(self.steps))

    @property
    def actions(self) -> tuple[str, ...]:
        return ("up", "down", "left", "right", "clean", "zap")

    @cached_property
    def codebook(self) -> np.ndarray:
        # Layers of a cell add up; an agent shows which way it faces.
        layers = ["", "", "wall", "wall", "river", "river pollution", "grass", "grass apple", "clean", "zap"]
        layers += ["agent out", *(f"agent {move}" for move in self.actions[: len(self.steps)])]
        channels = list(dict.fromkeys(" ".join(layers).split()))
        return constant(np.array([[channel in layer.split() for channel in channels] for layer in layers], np.float32))

    @cached_property
    def worth(self) -> np.ndarray:
        values = np.zeros(len(self.names), np.float32)
        values[APPLE] = self.apple_value
        return constant(values)

    # Tables: what follows from the sizes alone

    @cached_property
    def land(self) -> np.ndarray:
        """The padded map with river and orchard, both clean and bare: (cells,)."""
        rows = self.ground.reshape(-1, self.stride).copy()
        first, last = self.margin + 1, self.margin + self.height - 1
        for code, part in (
            (RIVER, rows[first : first + self.river_rows]),
            (GRASS, rows[last - self.orchard_rows : last]),
        ):
            part[part == EMPTY] = code
        return constant(rows.reshape(-1))

    @cached_property
    def growth(self) -> np.ndarray:
        """Probability that an apple grows on a cell, by the number of polluted cells."""
        # A table: all frameworks round it alike, and no apple depends on the last bit.
        river = int(np.sum(self.land == RIVER))
        level = np.arange(river + 1) / river
        return constant((self.apple_prob * np.maximum(1 - level / self.threshold, 0)).astype(np.float32))

    @cached_property
    def beams(self) -> np.ndarray:
        """The cells of a beam from each cell in each direction, -1 behind a wall: (cells * directions, length)."""
        length = min(self.beam_length, max(self.height, self.width))  # a wall is never farther
        ahead = self.steps[:, None] * np.arange(1, length + 1)
        cells = np.clip(np.arange(len(self.land))[:, None, None] + ahead, 0, len(self.land) - 1)
        clear = np.logical_and.accumulate(self.land[cells] != WALL, -1)
        return constant(np.where(clear, cells, -1).reshape(-1, length).astype(np.int32))

    # Rules

    def reset_draws(self, worlds: int) -> Mapping[str, Draw]:
        return {"place": Draw((worlds, len(self.inside))), **self.turn_draws(worlds)}

    def turn_draws(self, worlds: int) -> Mapping[str, Draw]:
        return {"spread": Draw((worlds, self.height - 2, self.width - 2))}

    def reset(self, draws: Mapping[str, Any]) -> Commons:
        uniform = draws["place"]
        places = ops.take(ops.like(self.inside, uniform), ops.smallest(uniform, self.num_agents))
        land = ops.broadcast(ops.like(self.land, uniform)[None], (uniform.shape[0], len(self.land)))
        cells = self._pollute(land, self._padded(draws["spread"]), self.initial_pollution)
        none = ops.zeros(places.shape, places)
        return Commons(cells, places, facing=none, fired=none, out=none)

    def begin_turn(self, state: Commons, draws: Mapping[str, Any]) -> Commons:
        # A cell is river or orchard: one number serves both.
        uniform = self._padded(draws["spread"])
        cells = self._pollute(state.cells, uniform, self.pollution_prob)
        rate = ops.take(ops.like(self.growth, cells), _count(cells, POLLUTION))
        grows = (cells == GRASS) & (uniform < rate[:, None]) & ~_covered(state.places, cells)
        return dataclasses.replace(state, cells=ops.where(grows, APPLE, cells))

    def act(self, state: Commons, agent: int, action: Int[Array, " worlds"]) -> tuple[Commons, Float[Array, " worlds"]]:
        return self._act(state, agent, action, state)

    def act_together(self, state: Commons, actions: list[Any]) -> tuple[Commons, list[Any]]:
        after, rewards = state, []
        for agent, action in enumerate(actions):
            after, reward = self._act(after, agent, action, state)
            rewards.append(reward)
        return after, rewards

    def _act(self, state: Commons, agent: int, action: Any, seen: Commons) -> tuple[Commons, Any]:
        """One agent acts; who stood where and who was out is read from what it has `seen`."""
        cells, here, action = state.cells, state.places[:, agent], ops.cast(action, "int32")
        awake = seen.out[:, agent] == 0
        moves = awake & (action < len(self.steps))
        facing = ops.where(moves, action, state.facing[:, agent])
        there = here + ops.take(ops.like(self.steps, cells), facing)
        code = ops.gather(cells, there[:, None])[:, 0]
        taken = ops.any((state.places == there[:, None]) | (seen.places == there[:, None]), 1)
        free = moves & (code != WALL) & ~taken
        eats = free & (code == APPLE)
        cells = ops.where(eats[:, None], put(cells, there, GRASS), cells)

        cleans, zaps = awake & (action == CLEAN), awake & (action == ZAP)
        beam = ops.take(ops.like(self.beams, cells), here * len(self.steps) + facing)
        swept = cleans[:, None] & _covered(beam, cells)
        cells = ops.where(swept & (cells == POLLUTION), RIVER, cells)
        hit = zaps[:, None] & ops.any(seen.places[:, :, None] == beam[:, None, :], 2) & (seen.out == 0)

        me = (ops.arange(self.num_agents, cells) == agent)[None]
        left = state.out - ops.cast(me & ~awake[:, None], "int32")
        fired = ops.cast(cleans, "int32") * CLEAN_BEAM + ops.cast(zaps, "int32") * ZAP_BEAM
        after = Commons(
            cells=cells,
            places=ops.where(me, ops.where(free, there, here)[:, None], state.places),
            facing=ops.where(me, facing[:, None], state.facing),
            fired=ops.where(me, fired[:, None], state.fired),
            out=ops.where(hit, self.zap_turns, left),
        )
        return after, ops.cast(eats, "float32") * self.apple_value

    def show(self, state: Commons) -> Int[Array, "worlds cells"]:
        beams = ops.take(ops.like(self.beams, state.cells), state.places * len(self.steps) + state.facing)
        lit = ops.broadcast(state.fired[:, :, None], beams.shape)
        looks = ops.where(state.out > 0, ZAPPED, state.facing + AGENT)
        worlds = looks.shape[0]
        places = ops.concat([beams.reshape(worlds, -1), state.places], 1)
        codes = ops.concat([lit.reshape(worlds, -1), looks], 1)
        # Codes rise with what lies on top: ground, beams, agents.
        here = places[:, None, :] == ops.arange(len(self.land), places)[None, :, None]
        return ops.maximum(state.cells, ops.max(ops.where(here, codes[:, None, :], 0), 2))

    def place(self, state: Commons, agent: int) -> Int[Array, " worlds"]:
        return state.places[:, agent]

    def pollution(self, state: Commons) -> Float[Array, " worlds"]:
        """The polluted share of the river."""
        return ops.cast(_count(state.cells, POLLUTION), "float32") / (len(self.growth) - 1)

    def _padded(self, inside: Float[Array, "worlds rows columns"]) -> Float[Array, "worlds cells"]:
        """Numbers for the cells within the walls, and 1 for all others."""
        edge = self.margin + 1
        whole = ops.pad(inside, ((0, 0), (edge, edge), (edge, edge)), 1.0)
        return whole.reshape(whole.shape[0], -1)

    def _pollute(self, cells: Any, uniform: Any, chance: float) -> Int[Array, "worlds cells"]:
        return ops.where((cells == RIVER) & (uniform < chance), POLLUTION, cells)


def _count(cells: Int[Array, "worlds cells"], code: int) -> Int[Array, " worlds"]:
    return ops.cast(ops.sum(ops.cast(cells == code, "int32"), 1), "int32")


def _covered(places: Int[Array, "worlds some"], cells: Int[Array, "worlds cells"]) -> Any:
    """Which cells of the map are among some places."""
    return ops.any(places[:, None, :] == ops.arange(cells.shape[1], cells)[None, :, None], 2)
