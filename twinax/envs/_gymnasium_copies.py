"""Copies of a Gymnasium environment on the host, and where they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, require


def reason(error: Exception) -> str:
    """The first line of what a stranger's error says, or its kind."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def build(
    id: str,
    factory: Callable[..., Any] | None,
    options: dict[str, Any],
    time_limit: int,
    flatten: bool,
    label: str,
    **more: Any,
) -> Any:
    """One environment, by id or from a factory; `more` are further arguments of it."""
    options = {**options, **more}
    require("gymnasium", "gymnasium", f"env=gymnasium ({label})")
    import gymnasium

    if factory is not None:
        env = factory(**options)
        if not isinstance(env, gymnasium.Env):
            raise TwinaxError(
                f"the factory {label} gives a {type(env).__module__}.{type(env).__name__}, which is no gymnasium.Env"
            )
        env = gymnasium.wrappers.TimeLimit(env, time_limit) if time_limit else env
    else:
        try:
            env = gymnasium.make(id, max_episode_steps=time_limit or None, disable_env_checker=True, **options)
        # A name such as a:b:c is refused by gymnasium with a ValueError, and module:Name runs somebody's module.
        except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError) as error:
            raise TwinaxError(
                f"gymnasium cannot make env.id={id} ({reason(error)}); `gymnasium.pprint_registry()` lists the known "
                "ids, and module:Name-v0 imports a module first"
            ) from error
    return gymnasium.wrappers.FlattenObservation(env) if flatten else env


class Copies:
    """Many environments, stepped together. They are made when their number is first known."""

    def __init__(self, make: Callable[[], Any], processes: bool, observation_size: int, to_env: Callable[[Any], Any]):
        self.make, self.processes, self.observation_size, self.to_env = make, processes, observation_size, to_env
        self.vector: Any = None
        self.observation = np.zeros((0, observation_size))
        self.seed = self.age = np.zeros(0, np.int32)

    def _have(self, number: int) -> None:
        if self.vector is not None and self.vector.num_envs == number:
            return
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

        if self.vector is not None:
            self.vector.close()
        # A fork of a process in which JAX has threads may hang.
        kind = partial(AsyncVectorEnv, context="spawn") if self.processes else SyncVectorEnv
        # Gymnasium's own restarts would take new starts from hidden generators, and hide the last observation.
        self.vector = kind([self.make] * number, autoreset_mode=AutoresetMode.DISABLED)
        self.observation = np.full((number, self.observation_size), np.nan)
        self.seed, self.age = np.zeros(number, np.int32), np.full(number, -1, np.int32)

    def _restart(self, where: np.ndarray, seed: np.ndarray) -> None:
        self.seed, self.age = np.where(where, seed, self.seed), np.where(where, 0, self.age)
        seeds = [int(value) for value in self.seed]
        seen, _ = self.vector.reset(seed=seeds, options={"reset_mask": np.array(where, bool)})
        # Only the rows of restarted copies are new.
        self.observation = np.where(where[:, None], np.array(seen, float), self.observation)

    def reset(self, seed: np.ndarray) -> np.ndarray:
        """All copies at a beginning; what is seen there."""
        self._have(len(seed))
        self._restart(np.ones(len(seed), bool), seed)
        return self.observation

    def enter(
        self, observation: np.ndarray, seed: np.ndarray, age: np.ndarray, spare: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go to a state if that can be: copies are in it, or it is a beginning, which its seed gives again."""
        self._have(len(seed))
        # The arrays of a fresh state are float32, in every run.
        same = (self.observation.astype(np.float32) == observation.astype(np.float32)).all(-1)
        here = same & (self.seed == seed) & (self.age == age)
        lost = ~here & (age > 0)
        if not here.all():
            self._restart(~here, np.where(lost, spare, seed))
        return self.observation, lost

    def step(self, action: np.ndarray, spare: np.ndarray) -> tuple[np.ndarray, ...]:
        """`(last observation, reward, terminated, truncated, observation to go on from)`."""
        if self.vector is None or len(action) != self.vector.num_envs:
            there = 0 if self.vector is None else self.vector.num_envs
            raise TwinaxError(f"{len(action)} actions for {there} copies; call reset or enter first")
        seen, reward, terminated, truncated, _ = self.vector.step(self.to_env(action))
        last = self.observation = np.array(seen, float)
        self.age = self.age + 1
        truncated = truncated & ~terminated
        if (ended := terminated | truncated).any():
            self._restart(ended, spare)
        return last, reward, terminated, truncated, self.observation
