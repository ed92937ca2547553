"""A car too weak for the hill before it: with three actions, and with a continuous one, as in Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs._classic_poles import Classic
from twinax.envs._control import Box, Discrete, Moved
from twinax.noise import Draw
from twinax.types import Array, Float, Int


@tree.record
class CarState:
    """A car in the valley between -1.2, where a wall stands, and 0.6."""

    position: Float[Array, " worlds"]
    velocity: Float[Array, " worlds"]


@dataclass(frozen=True)
class _Car(Classic):
    goal_velocity: float = 0.0
    """Speed to the right at which the goal must be reached, or more."""
    observation_size = 2
    seen = ("position", "velocity")

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"start": Draw((worlds,))}

    def reset(self, draws: Mapping[str, Any]) -> CarState:
        start = draws["start"]
        return CarState(0.2 * start - 0.6, start * 0)

    def observe(self, state: CarState) -> Float[Array, "worlds 2"]:
        return ops.stack([state.position, state.velocity], -1)

    def _drive(self, state: CarState, push: Any, goal: float) -> tuple[CarState, Any]:
        """The state after a push, and whether the goal is reached."""
        velocity = ops.clip(state.velocity + push - 0.0025 * ops.cos(3 * state.position), -0.07, 0.07)
        ahead = state.position + velocity
        # The wall at the left takes the speed; the end at the right only holds the car.
        velocity = ops.where((ahead <= -1.2) & (velocity < 0), 0.0, velocity)
        position = ops.clip(ahead, -1.2, 0.6)
        return CarState(position, velocity), (position >= goal) & (velocity >= self.goal_velocity)


@checked
@dataclass(frozen=True)
class MountainCar(_Car):
    """Rock up the hill by pushing left (0), not at all (1) or right (2): MountainCar-v0, -1 for each step.

    >>> MountainCar().actions
    Discrete(n=3)
    """

    time_limit: int = 200
    name = "mountain_car"
    actions = Discrete(3)

    def step(self, state: CarState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        push = 0.001 * (ops.cast(action, state.position) - 1)
        after, reached = self._drive(state, push, 0.5)
        return Moved(after, ops.full(push.shape, -1, push), reached, {})


@checked
@dataclass(frozen=True)
class MountainCarContinuous(_Car):
    """Rock up the hill with little effort: MountainCarContinuous-v0, 100 at the goal.

    >>> MountainCarContinuous().actions
    Box(low=(-1.0,), high=(1.0,))
    """

    time_limit: int = 999
    name = "mountain_car_continuous"
    actions = Box((-1.0,), (1.0,))

    def step(self, state: CarState, action: Float[Array, "worlds 1"], draws: Mapping[str, Any]) -> Moved:
        asked = action[:, 0]
        after, reached = self._drive(state, 0.0015 * ops.clip(asked, -1.0, 1.0), 0.45)
        # The effort is that of the action as it was given, even beyond its bounds.
        terms = {"goal": 100 * ops.cast(reached, asked), "effort": -0.1 * asked * asked}
        return Moved(after, terms["goal"] + terms["effort"], reached, terms)
