"""Tiny worlds whose value is known exactly, each to expose one mistake of a learner.

A mistake shows as a wrong number, not as a slow curve: train for seconds, compare with `value`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.envs._control import Box, Control, Discrete, Moved
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.types import Array, Bool, Float, Int, Num


@tree.record
class ProbeState:
    """What is seen is all there is."""

    seen: Float[Array, "worlds 1"]


class Probe(Control):
    """A world that shows one number and knows its value."""

    observation_size = 1
    actions = Discrete(1)

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"start": Draw((worlds, 1))}

    def reset(self, draws: Mapping[str, Any]) -> ProbeState:
        """0 is seen."""
        return ProbeState(draws["start"] * 0)

    def observe(self, state: ProbeState) -> Float[Array, "worlds 1"]:
        return state.seen

    @abstractmethod
    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        """The discounted sum of rewards from an observation on, under the best policy and without a time limit."""


@dataclass(frozen=True)
class ConstantReward(Probe):
    """One step that pays 1. Exposes a value taken from beyond an end: it grows to 1 / (1 - gamma).

    >>> ConstantReward().value(np.zeros((2, 1)), 0.9)
    array([1., 1.])
    """

    name = "constant_reward"

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        return Moved(state, _one(state), _ends(state, True), {})

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return np.ones(len(observation))


class _Sides(Probe):
    """One step that begins at -1 or 1 and ends at the other side, so that a row out of place has the wrong sign."""

    def reset(self, draws: Mapping[str, Any]) -> ProbeState:
        """-1 or 1 is seen."""
        start = draws["start"]
        return ProbeState(2 * ops.cast(start > 0.5, start) - 1)

    def _end(self, state: ProbeState, reward: Any) -> Moved:
        return Moved(ProbeState(-state.seen), reward, _ends(state, True), {})


@dataclass(frozen=True)
class SeenReward(_Sides):
    """One step that pays what is seen. Exposes a reward kept beside the observation after it, or a blind critic."""

    name = "seen_reward"

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        return self._end(state, state.seen[:, 0])

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return 1.0 * observation[:, 0]


@dataclass(frozen=True)
class DelayedReward(Probe):
    """Two steps, 0 and then 1, of which the second pays 1. Exposes a discount that is missing or counted twice, and
    ends that are noted a step late."""

    name = "delayed_reward"

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        return Moved(ProbeState(state.seen * 0 + 1), state.seen[:, 0], state.seen[:, 0] > 0.5, {})

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return np.where(observation[:, 0] > 0.5, 1.0, gamma)


@dataclass(frozen=True)
class Endless(Probe):
    """Pays 1 for ever, but is cut off. Exposes a time limit taken for an end: the value is too small."""

    time_limit: int = 5
    """Steps of an episode, after which it is cut off."""
    name = "endless"

    def __post_init__(self):
        _require_limit(self)

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        return Moved(state, _one(state), _ends(state, False), {})

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return np.full(len(observation), 1 / (1 - gamma))


@dataclass(frozen=True)
class RandomEnd(Probe):
    """Pays 1 until it ends by chance. Exposes ends that are ignored among steps that go on: the value is too large."""

    probability: float = 0.25
    """Probability that an episode ends after a step."""
    name = "random_end"

    def __post_init__(self):
        if not 0 < self.probability <= 1:
            raise TwinaxError(
                f"the probability of an end in random_end is {self.probability}; it must be above 0 and at most 1"
            )

    def step_draws(self, worlds: int) -> dict[str, Draw]:
        return {"end": Draw((worlds,))}

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        return Moved(state, _one(state), draws["end"] < self.probability, {})

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        # v = 1 + gamma (1 - p) v
        return np.full(len(observation), 1 / (1 - gamma * (1 - self.probability)))


@dataclass(frozen=True)
class FarRestart(Probe):
    """Begins at -1, where a step costs the toll, and stays at 1, which pays 1 for ever but is cut off. Exposes the
    observation after a restart taken for the one before it: the value at 1 is too small."""

    time_limit: int = 3
    """Steps of an episode, after which it is cut off."""
    toll: float = 5.0
    """Cost of an episode's first step."""
    name = "far_restart"

    def __post_init__(self):
        _require_limit(self)

    def reset(self, draws: Mapping[str, Any]) -> ProbeState:
        """-1 is seen."""
        return ProbeState(draws["start"] * 0 - 1)

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        there = ops.cast(state.seen[:, 0] > 0, state.seen)
        return Moved(ProbeState(state.seen * 0 + 1), there - self.toll * (1 - there), _ends(state, False), {})

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return np.where(observation[:, 0] > 0, 1.0, gamma - self.toll * (1 - gamma)) / (1 - gamma)


@dataclass(frozen=True)
class Choice(_Sides):
    """One step that pays 1 for the action of the side that is seen (0 at -1, 1 at 1), and -1 for the other. Exposes an
    action kept beside another step's observation, or advantages of the wrong sign."""

    name = "choice"
    actions = Discrete(2)

    def step(self, state: ProbeState, action: Int[Array, " worlds"], draws: Mapping[str, Any]) -> Moved:
        return self._end(state, (2 * ops.cast(action, state.seen) - 1) * state.seen[:, 0])

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return np.ones(len(observation))


@dataclass(frozen=True)
class Aim(_Sides):
    """One step that pays 1 less the square of what the action misses: -1.5 at -1, 1.5 at 1. Exposes actions that are
    kept within -1 and 1 instead of their bounds."""

    name = "aim"
    actions = Box((-2.0,), (2.0,))

    def step(self, state: ProbeState, action: Float[Array, "worlds 1"], draws: Mapping[str, Any]) -> Moved:
        missed = (ops.clip(action, -2.0, 2.0) - 1.5 * state.seen)[:, 0]
        return self._end(state, 1 - missed * missed)

    def value(self, observation: Num[np.ndarray, "rows 1"], gamma: float) -> Float[np.ndarray, " rows"]:
        return np.ones(len(observation))


def _one(state: ProbeState) -> Float[Array, " worlds"]:
    return ops.full((state.seen.shape[0],), 1, state.seen)


def _ends(state: ProbeState, value: bool) -> Bool[Array, " worlds"]:
    return ops.full((state.seen.shape[0],), value, state.seen, "bool")


def _require_limit(world: Control) -> None:
    if world.time_limit < 1:
        raise TwinaxError(f"the time limit of {world.name} is {world.time_limit}; it must be at least 1")


PROBES: dict[str, type[Probe]] = {
    kind.name: kind for kind in (ConstantReward, SeenReward, DelayedReward, Endless, RandomEnd, FarRestart, Choice, Aim)
}
"""Probe worlds by name."""
