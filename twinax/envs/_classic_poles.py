"""Poles to balance and swing, step by step those of Gymnasium: its constants, its order of integration, its limits.

Fields of a state stand in the order of Gymnasium's `state`. Draws are uniform on (0, 1) and stretched to its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs._control import Box, Control, Discrete, Moved
from twinax.episode import View
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.types import Array, Float, Int


@dataclass(frozen=True)
class Classic(Control):
    """A problem without noise in its steps."""

    time_limit: int = 0
    """Steps after which an episode is cut off; 0 for never."""
    seen: ClassVar[tuple[str, ...]] = ()
    """Names of what is observed."""

    @property
    def layout(self) -> dict[str, int]:
        return dict.fromkeys(self.seen, 1)

    def view(self, states: Any) -> View:
        from twinax.envs._classic_film import film

        return film(self, states)

    def __post_init__(self):
        if self.time_limit < 0:
            raise TwinaxError(f"the time limit of {self.name} is {self.time_limit}; it must be at least 0 (never)")


# CartPole


@tree.record
class CartPoleState:
    """A cart on a rail and the pole on it."""

    position: Float[Array, " worlds"]
    velocity: Float[Array, " worlds"]
    angle: Float[Array, " worlds"]
    """Of the pole, 0 upright."""
    spin: Float[Array, " worlds"]


@checked
@dataclass(frozen=True)
class CartPole(Classic):
    """Push a cart to the left (0) or right (1) so that its pole stays up: CartPole-v1, 1 for each step.

    >>> CartPole(time_limit=200).actions
    Discrete(n=2)
    """

    time_limit: int = 500
    name = "cartpole"
    observation_size = 4
    seen = ("position", "velocity", "angle", "spin")
    seconds = 0.02
    actions = Discrete(2)

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"start": Draw((worlds, 4))}

    def reset(self, draws: Mapping[str, Any]) -> CartPoleState:
        start = 0.1 * draws["start"] - 0.05
        return CartPoleState(start[:, 0], start[:, 1], start[:, 2], start[:, 3])

    def step(self, state: CartPoleState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        # Gravity 9.8, cart 1, pole 0.1 with its centre at 0.5 (mass times length 0.05), force 10, Euler steps of 0.02.
        force = 20.0 * ops.cast(action, state.angle) - 10.0
        sine, cosine = ops.sin(state.angle), ops.cos(state.angle)
        push = (force + 0.05 * state.spin * state.spin * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        after = CartPoleState(
            state.position + 0.02 * state.velocity,
            state.velocity + 0.02 * (push - 0.05 * turn * cosine / 1.1),
            state.angle + 0.02 * state.spin,
            state.spin + 0.02 * turn,
        )
        fallen = self._fallen(after)
        # The step that fails is still paid; only a pole that lay there before earns nothing.
        reward = 1 - ops.cast(fallen & self._fallen(state), state.angle)
        return Moved(after, reward, fallen, {})

    def _fallen(self, state: CartPoleState) -> Any:
        return (ops.abs(state.position) > 2.4) | (ops.abs(state.angle) > math.radians(12))

    def observe(self, state: CartPoleState) -> Float[Array, "worlds 4"]:
        return ops.stack([state.position, state.velocity, state.angle, state.spin], -1)


# Pendulum


@tree.record
class PendulumState:
    """A pendulum; angles are not wrapped."""

    angle: Float[Array, " worlds"]
    """0 upright."""
    spin: Float[Array, " worlds"]


@checked
@dataclass(frozen=True)
class Pendulum(Classic):
    """Swing a pendulum up and hold it: Pendulum-v1. It never ends of its own.

    >>> Pendulum().actions
    Box(low=(-2.0,), high=(2.0,))
    """

    time_limit: int = 200
    gravity: float = 10.0
    """Acceleration of gravity, in metres per second squared."""
    name = "pendulum"
    observation_size = 3
    seen = ("cosine", "sine", "spin")
    seconds = 0.05
    actions = Box((-2.0,), (2.0,))

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"start": Draw((worlds, 2))}

    def reset(self, draws: Mapping[str, Any]) -> PendulumState:
        start = 2 * draws["start"] - 1
        return PendulumState(math.pi * start[:, 0], start[:, 1])

    def step(self, state: PendulumState, action: Float[Array, "worlds 1"], draws: Mapping[str, Any]) -> Moved:
        torque = ops.clip(action[:, 0], -2.0, 2.0)
        # The reward is that of the state before the step.
        away = _wrapped(state.angle)
        terms = {"angle": -away * away, "spin": -0.1 * state.spin * state.spin, "effort": -0.001 * torque * torque}
        # Mass and length are 1; a step is 0.05 seconds, and the new speed moves the angle.
        spin = state.spin + 0.05 * (1.5 * self.gravity * ops.sin(state.angle) + 3 * torque)
        spin = ops.clip(spin, -8.0, 8.0)
        after = PendulumState(state.angle + 0.05 * spin, spin)
        reward = terms["angle"] + terms["spin"] + terms["effort"]
        return Moved(after, reward, ops.zeros(spin.shape, spin, "bool"), terms)

    def observe(self, state: PendulumState) -> Float[Array, "worlds 3"]:
        return ops.stack([ops.cos(state.angle), ops.sin(state.angle), state.spin], -1)


# Acrobot


@tree.record
class AcrobotState:
    """Two links that hang from a point; angles are between -pi and pi."""

    first: Float[Array, " worlds"]
    """Angle of the first link, 0 downwards."""
    second: Float[Array, " worlds"]
    """Angle of the second link to the first."""
    first_spin: Float[Array, " worlds"]
    second_spin: Float[Array, " worlds"]


@checked
@dataclass(frozen=True)
class Acrobot(Classic):
    """Swing the end of two links above a line by a torque of -1, 0 or 1 between them: Acrobot-v1, -1 until it is there.

    >>> Acrobot().observation_size
    6
    """

    time_limit: int = 500
    name = "acrobot"
    observation_size = 6
    seen = ("first_cosine", "first_sine", "second_cosine", "second_sine", "first_spin", "second_spin")
    seconds = 0.2
    actions = Discrete(3)

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"start": Draw((worlds, 4))}

    def reset(self, draws: Mapping[str, Any]) -> AcrobotState:
        start = 0.2 * draws["start"] - 0.1
        return AcrobotState(start[:, 0], start[:, 1], start[:, 2], start[:, 3])

    def step(self, state: AcrobotState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        torque = ops.cast(action, state.first) - 1
        start = ops.stack([state.first, state.second, state.first_spin, state.second_spin])
        # One step of Runge and Kutta over 0.2 seconds.
        k1 = _acrobot_rates(start, torque)
        k2 = _acrobot_rates(start + 0.1 * k1, torque)
        k3 = _acrobot_rates(start + 0.1 * k2, torque)
        k4 = _acrobot_rates(start + 0.2 * k3, torque)
        end = start + 0.2 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        first, second = (ops.where(ops.abs(x) > math.pi, _wrapped(x), x) for x in (end[0], end[1]))
        after = AcrobotState(
            first, second, ops.clip(end[2], -4 * math.pi, 4 * math.pi), ops.clip(end[3], -9 * math.pi, 9 * math.pi)
        )
        reached = -ops.cos(first) - ops.cos(first + second) > 1
        return Moved(after, ops.cast(reached, first) - 1, reached, {})

    def observe(self, state: AcrobotState) -> Float[Array, "worlds 6"]:
        first, second = state.first, state.second
        turns = [ops.cos(first), ops.sin(first), ops.cos(second), ops.sin(second)]
        return ops.stack([*turns, state.first_spin, state.second_spin], -1)


def _acrobot_rates(now: Float[Array, "4 worlds"], torque: Float[Array, " worlds"]) -> Float[Array, "4 worlds"]:
    """Derivatives by Sutton and Barto's book: masses, lengths and inertias 1, centres of mass at 0.5, gravity 9.8."""
    first, second, first_spin, second_spin = now[0], now[1], now[2], now[3]
    sine, cosine = ops.sin(second), ops.cos(second)
    d1 = 3.5 + cosine
    d2 = 1.25 + 0.5 * cosine
    # Gymnasium writes cos(x - pi / 2) for these sines.
    phi2 = 4.9 * ops.sin(first + second)
    phi1 = -sine * second_spin * (0.5 * second_spin + first_spin) + 14.7 * ops.sin(first) + phi2
    lever = d2 / d1
    second_turn = (torque + lever * phi1 - 0.5 * first_spin * first_spin * sine - phi2) / (1.25 - d2 * lever)
    first_turn = -(d2 * second_turn + phi1) / d1
    return ops.stack([first_spin, second_spin, first_turn, second_turn])


def _wrapped(angle: Any) -> Any:
    return (angle + math.pi) % (2 * math.pi) - math.pi
