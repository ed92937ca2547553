"""The treasure hunt: agents walk on sand, gather what lies there, and bump into walls."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs.world import EMPTY, OUTSIDE, WALL, World, constant, put
from twinax.errors import UnknownName
from twinax.noise import Draw
from twinax.ranges import check_finite, check_range
from twinax.types import Array, Float, Int

OBSERVATIONS = ("one_hot", "rgb")
VARIANTS = ("gem", "gem_food_bone")
FIRST_ITEM = 4


@tree.record
class Hunt:
    """Where everything is."""

    cells: Int[Array, "worlds cells"]
    """Codes of the padded map, agents included."""
    places: tuple[Any, ...]
    """The padded cell of each agent, (worlds,) each."""


@checked
@dataclass(frozen=True)
class TreasureHunt(World):
    """Items appear on empty cells with a small probability each turn and stay until an agent walks over them.

    A wall costs 1 and cannot be entered; neither can an agent, at no cost. With the simultaneous rule nobody enters a
    cell on which an agent stood when the turn began, and of several who want a cell the first in the list gets it.
    """

    variant: str = "gem"
    """Items of the world: gem (gems only, five channels) or gem_food_bone (three kinds, six channels)."""
    spawn_prob: float = 0.02
    """Probability that an empty cell gets an item in a turn."""
    gem_value: float = 10.0
    """Reward of an agent that takes a gem."""
    food_value: float = 5.0
    """Reward of an agent that takes food."""
    bone_value: float = -10.0
    """Reward of an agent that takes a bone."""
    observation: str = "one_hot"
    """What a network sees of a cell: one_hot channels, or the rgb colour."""

    def __post_init__(self):
        super().__post_init__()
        if self.variant not in VARIANTS:
            raise UnknownName("variant of the treasure hunt", self.variant, VARIANTS)
        if self.observation not in OBSERVATIONS:
            raise UnknownName("kind of observation", self.observation, OBSERVATIONS)
        check_range(self, "between 0 and 1", "spawn_prob")
        check_finite(self, ("gem_value", "food_value", "bone_value"))

    @property
    def items(self) -> dict[str, float]:
        """The kinds of items and their values."""
        values = {"gem": self.gem_value, "food": self.food_value, "bone": self.bone_value}
        return values if self.variant == "gem_food_bone" else {"gem": self.gem_value}

    @property
    def names(self) -> tuple[str, ...]:
        return ("blank", "empty", "wall", "outside", *self.items, "agent")

    @property
    def actions(self) -> tuple[str, ...]:
        return ("up", "down", "left", "right")

    @property
    def agent(self) -> int:
        """The code of an agent."""
        return FIRST_ITEM + len(self.items)

    @cached_property
    def codebook(self) -> np.ndarray:
        # Channels in the order of the original's entity lists; a cell's layers add up. With gems only, sand lies
        # under everything inside and walls stand on both layers; otherwise the floor is not seen.
        if self.variant == "gem":
            kinds = ("nothing", "wall", "sand", "gem", "agent")
            layers = {"empty": "sand", "wall": "wall wall", "outside": "wall", "gem": "sand gem", "agent": "sand agent"}
        else:
            kinds = ("nothing", "wall", "gem", "bone", "food", "agent")
            layers = {"empty": "", "wall": "wall", "outside": "wall"}
        rows = np.eye(len(kinds))
        rows[0] = 0.0
        if self.observation == "rgb":
            # Evenly spaced hues from red on, nothing being black; bytes without fractions, as in the original.
            hues = np.arange(len(kinds) - 1) / (len(kinds) - 1)
            rows = np.array([(0, 0, 0), *(colorsys.hsv_to_rgb(hue, 1.0, 1.0) for hue in hues)])
            rows = np.floor(255 * rows)
        book = np.zeros((len(self.names), rows.shape[1]))
        for code, name in enumerate(self.names[1:], 1):
            for kind in layers.get(name, name).split():
                book[code] += rows[kinds.index(kind)]
        if self.observation == "rgb":
            book = np.minimum(book, 255) / 255
        return constant(book.astype(np.float32))

    @cached_property
    def worth(self) -> np.ndarray:
        values = np.zeros(len(self.names), np.float32)
        values[[WALL, OUTSIDE]] = -1.0
        values[FIRST_ITEM : self.agent] = list(self.items.values())
        return constant(values)

    def reset_draws(self, worlds: int) -> Mapping[str, Draw]:
        return {"place": Draw((worlds, len(self.inside)))}

    def turn_draws(self, worlds: int) -> Mapping[str, Draw]:
        return {"spawn": Draw((worlds, self.height - 2, self.width - 2))}

    def reset(self, draws: Mapping[str, Any]) -> Hunt:
        uniform = draws["place"]
        chosen = ops.smallest(uniform, self.num_agents)
        places = ops.take(ops.like(self.inside, uniform), chosen)
        cells = ops.broadcast(ops.like(self.ground, uniform)[None], (uniform.shape[0], len(self.ground)))
        each = tuple(places[:, k] for k in range(self.num_agents))
        for place in each:
            cells = put(cells, place, self.agent)
        return Hunt(cells, each)

    def begin_turn(self, state: Hunt, draws: Mapping[str, Any]) -> Hunt:
        edge = self.margin + 1
        uniform = ops.pad(draws["spawn"], ((0, 0), (edge, edge), (edge, edge)), 1.0)
        uniform = uniform.reshape(uniform.shape[0], -1)
        spawns = (state.cells == EMPTY) & (uniform < self.spawn_prob)
        # Given that it is below the probability, a uniform number says the kind as well.
        kinds = len(self.items)
        # Held within the kinds before it is cast: a float beyond the integers has no integer value.
        kind = ops.cast(ops.clip(uniform * (kinds / max(self.spawn_prob, 1e-30)), 0, kinds - 1), "int32")
        return Hunt(ops.where(spawns, kind + FIRST_ITEM, state.cells), state.places)

    def act(self, state: Hunt, agent: int, action: Int[Array, " worlds"]) -> tuple[Hunt, Float[Array, " worlds"]]:
        here = state.places[agent]
        there, free, reward = self._look(state.cells, here, action)
        cells = put(put(state.cells, here, EMPTY), there, self.agent)
        cells = ops.where(free[:, None], cells, state.cells)
        return Hunt(cells, _with(state.places, agent, ops.where(free, there, here))), reward

    def act_together(self, state: Hunt, actions: list[Any]) -> tuple[Hunt, list[Any]]:
        cells, places, rewards = state.cells, state.places, []
        for agent, action in enumerate(actions):
            here = state.places[agent]
            # Cells that were left still look taken, and so do those just entered.
            there, free, reward = self._look(cells, here, action)
            cells = ops.where(free[:, None], put(cells, there, self.agent), cells)
            places = _with(places, agent, ops.where(free, there, here))
            rewards.append(reward)
        for before, after in zip(state.places, places, strict=True):
            cells = ops.where((before != after)[:, None], put(cells, before, EMPTY), cells)
        return Hunt(cells, places), rewards

    def _look(self, cells, here, action):
        there = here + ops.take(ops.like(self.steps, cells), action)
        code = ops.gather(cells, there[:, None])[:, 0]
        free = (code == EMPTY) | ((code >= FIRST_ITEM) & (code < self.agent))
        return there, free, ops.take(ops.like(self.worth, cells), code)

    def show(self, state: Hunt) -> Int[Array, "worlds cells"]:
        return state.cells

    def place(self, state: Hunt, agent: int) -> Int[Array, " worlds"]:
        return state.places[agent]


def _with(places: tuple[Any, ...], agent: int, place: Any) -> tuple[Any, ...]:
    return (*places[:agent], place, *places[agent + 1 :])
