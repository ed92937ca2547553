"""A world that pays by another reward than its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs._black_box import BlackBox
from twinax.envs._environment import Environment
from twinax.errors import TwinaxError
from twinax.parts import Picture, Title
from twinax.types import Array, Bool, Float, Int


def as_reward(reward: Any) -> Any:
    """A record with `log_reward(env, state)`: the one that is given, or a `BlackBox` of something that can be called.

    >>> as_reward(len)
    BlackBox(len)
    """
    if isinstance(reward, type):
        raise TwinaxError(
            f"the reward is the class {reward.__name__} itself; give an object of it, such as {reward.__name__}()"
        )
    if callable(getattr(reward, "log_reward", None)):
        return reward
    if callable(reward):
        return BlackBox(reward)
    kind = type(reward).__name__
    if callable(getattr(reward, "predict", None)):
        raise TwinaxError(f"the reward is a {kind}, which cannot be called; give its method instead: model.predict")
    raise TwinaxError(
        f"the reward is {'None' if reward is None else f'a {kind}'}, which cannot be called; give a function of a "
        "batch of objects, a torch.nn.Module, or a record with log_reward(env, state)"
    )


def with_reward(env: Environment, reward: Any) -> Environment:
    """See `Environment.with_reward`."""
    reward = as_reward(reward)
    # A world that has the field, but computes its reward by rules of its own, would not read the new one.
    reads_it = type(env).log_reward is Environment.log_reward
    if reads_it and dataclasses.is_dataclass(env) and "reward" in {entry.name for entry in dataclasses.fields(env)}:
        return dataclasses.replace(env, reward=reward)  # type: ignore[return-value]
    return Rewarded(env, reward)


@dataclass(frozen=True)
class Rewarded(Environment):
    """The rules of one world with a reward that it does not know of.

    The world's modes are left out: they were those of its own reward.
    """

    env: Environment
    """The world whose rules hold."""
    reward: Any
    """What it pays: a record with `log_reward(env, state)`."""

    def __getattr__(self, name: str) -> Any:
        """What the world has besides, such as its sizes, for a reward that reads it."""
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def titles(self) -> Mapping[str, Title]:  # type: ignore[override]
        return {**self.env.titles, **getattr(self.reward, "titles", {})}

    @property
    def pictures(self) -> Mapping[str, Picture]:  # type: ignore[override]
        return {**self.env.pictures, **getattr(self.reward, "pictures", {})}

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    @property
    def num_backward_actions(self) -> int:
        return self.env.num_backward_actions

    @property
    def max_steps(self) -> int:
        return self.env.max_steps

    @property
    def stops(self) -> bool:
        return self.env.stops

    @property
    def fixed_length(self) -> bool:
        return self.env.fixed_length

    @property
    def action_shape(self) -> tuple[int, ...]:
        return self.env.action_shape

    @property
    def in_order(self) -> bool:
        return self.env.in_order

    @property
    def default_network(self) -> str:
        return self.env.default_network

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.env.files, *getattr(self.reward, "files", ()))

    @property
    def observation_size(self) -> int:
        return self.env.observation_size

    @property
    def num_states(self) -> int | None:
        return self.env.num_states

    def reset(self, batch: int) -> Any:
        return self.env.reset(batch)

    def step(self, state: Any, action: Int[Array, " batch"]) -> Any:
        return self.env.step(state, action)

    def backward_step(self, state: Any, action: Int[Array, " batch"]) -> Any:
        return self.env.backward_step(state, action)

    def forward_mask(self, state: Any) -> Bool[Array, "batch actions"]:
        return self.env.forward_mask(state)

    def backward_mask(self, state: Any) -> Bool[Array, "batch backward_actions"]:
        return self.env.backward_mask(state)

    def observe(self, state: Any) -> Any:
        return self.env.observe(state)

    def backward_action(self, state: Any, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return self.env.backward_action(state, action)

    def forward_action(self, state: Any, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return self.env.forward_action(state, action)

    def log_paths_ratio(self, state: Any) -> Float[Array, "batch backward_actions"] | None:
        return self.env.log_paths_ratio(state)

    def constants(self) -> dict[str, np.ndarray]:
        rules, reward = self.env.constants(), super().constants()
        if both := sorted(rules.keys() & reward.keys()):
            raise TwinaxError(f"{self.env} and its reward {self.reward} both have a constant '{both[0]}'; rename one")
        return {**rules, **reward}

    def given(self, constants: Mapping[str, Any]) -> Any:
        bound = super().given(constants)
        if bound is not self:
            object.__setattr__(bound, "env", self.env.given(constants))
        return bound

    def objects(self, state: Any) -> Any:
        return self.env.objects(state)

    def states_of(self, objects: Any) -> Any:
        return self.env.states_of(objects)

    def text(self, objects: Any, index: int) -> str:
        return self.env.text(objects, index)

    def draw(self, objects: Any, index: int) -> np.ndarray | None:
        return self.env.draw(objects, index)

    def picture(self, states: Any, distribution: np.ndarray) -> np.ndarray | None:
        return self.env.picture(states, distribution)

    def distance(self, one: Any, other: Any) -> np.ndarray:
        return self.env.distance(one, other)

    def measures(self, states: Any, weights: np.ndarray) -> dict[str, Any]:
        own: Any = getattr(self.reward, "measures", None)
        found: Any = own(self, states, weights) if callable(own) else {}
        return {**self.env.measures(states, weights), **found}

    def test_states(self, seed: int) -> Any:
        return self.env.test_states(seed)
