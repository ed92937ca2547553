"""Agents that do not learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs import World
from twinax.errors import UnknownName
from twinax.noise import Draw
from twinax.ranges import check_counts
from twinax.types import Array, Float, Int


@checked
@dataclass(frozen=True)
class Players:
    """Agents that follow a rule."""

    count: int = 1
    """How many agents."""
    rule: str = "random"
    """random, or seeker: walks to the nearest thing of value that it sees."""

    def __post_init__(self):
        if self.rule not in RULES:
            raise UnknownName("rule of a player", self.rule, RULES)
        check_counts(self, ("count",))

    def act_draws(self, world: World, worlds: int) -> dict[str, Draw]:
        """Random arrays for one epoch."""
        return {"random": Draw((world.turns, self.count, worlds))}

    def choose(self, world: World, view: Any, uniform: Any) -> Int[Array, " worlds"]:
        """An action by the rule."""
        return RULES[self.rule](world, view, uniform)


def random_action(world: World, view: Any, uniform: Float[Array, "*worlds"]) -> Int[Array, "*worlds"]:
    """Every action with the same probability."""
    return ops.clip(ops.cast(uniform * world.num_actions, "int32"), 0, world.num_actions - 1)


def seek(world: World, view: Int[Array, "worlds view"], uniform: Float[Array, " worlds"]) -> Any:
    """Towards the cell in view with the most reward per step of the way, or anywhere if there is none."""
    near = np.arange(-world.radius, world.radius + 1)
    down, right = (x.reshape(-1) for x in np.meshgrid(near, near, indexing="ij"))
    # A product: XLA divides by constants as it likes, and equal prospects would be told apart by rounding.
    share = (1 / np.maximum(abs(down) + abs(right), 1)).astype(np.float32)
    worth = ops.take(ops.like(world.worth, uniform), view) * ops.like(share, uniform)
    best = ops.argmax(worth)
    # The longer side of the way first: up, down, left, right.
    vertical = abs(down) >= abs(right)
    moves = np.where(vertical, np.where(down < 0, 0, 1), np.where(right < 0, 2, 3)).astype(np.int32)
    towards = ops.take(ops.like(moves, uniform), best)
    found = ops.max(worth, -1) > 0
    return ops.where(found, towards, random_action(world, view, uniform))


RULES: dict[str, Callable[[World, Any, Any], Any]] = {"random": random_action, "seeker": seek}
