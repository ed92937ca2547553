"""Copies of a Gymnasium environment on the host, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, require

MOST = float(np.finfo(np.float32).max)


def reason(error: Exception) -> str:
    """The first line of what a stranger's error says, or its kind."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextmanager
def strangers_code(what: str) -> Iterator[None]:
    """Whatever an environment raises becomes one sentence that says where."""
    try:
        yield
    except TwinaxError:
        raise
    except Exception as error:  # nobody knows what a stranger's code raises
        raise TwinaxError(f"{what} ({type(error).__name__}: {reason(error)})") from error


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
        if not callable(factory):
            raise TwinaxError(
                f"the factory of an environment is a {type(factory).__name__}, which cannot be called; give a function "
                "or a class that makes a new environment at each call"
            )
        with strangers_code(f"the factory {label} cannot make an environment"):
            env = factory(**options)
        if not isinstance(env, gymnasium.Env):
            raise TwinaxError(
                f"the factory {label} gives a {type(env).__module__}.{type(env).__name__}, which is no gymnasium.Env"
            )
        env = gymnasium.wrappers.TimeLimit(env, time_limit) if time_limit else env
    else:
        try:
            env = gymnasium.make(id, max_episode_steps=time_limit or None, disable_env_checker=True, **options)
        except Exception as error:  # the environment's own code runs here as well, and module:Name runs a module
            raise TwinaxError(
                f"gymnasium cannot make env.id={id} ({reason(error)}); `gymnasium.pprint_registry()` lists the known "
                "ids, and module:Name-v0 imports a module first"
            ) from error
    if missing := [name for name in ("observation_space", "action_space") if getattr(env, name, None) is None]:
        raise TwinaxError(f"{label} has no {missing[0]}, so nobody knows what a policy for it sees and does; define it")
    return gymnasium.wrappers.FlattenObservation(env) if flatten else env


class Copies:
    """Many environments, stepped together. They are made when their number is first known."""

    def __init__(
        self,
        label: str,
        make: Callable[[], Any],
        processes: bool,
        observation_size: int,
        to_env: Callable[[Any], Any],
    ):
        self.label = label
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
        with strangers_code(f"{number} copies of {self.label} cannot be made"):
            self.vector = kind([self.make] * number, autoreset_mode=AutoresetMode.DISABLED)
        self.observation = np.full((number, self.observation_size), np.nan)
        self.seed, self.age = np.zeros(number, np.int32), np.full(number, -1, np.int32)

    def _restart(self, where: np.ndarray, seed: np.ndarray) -> None:
        self.seed, self.age = np.where(where, seed, self.seed), np.where(where, 0, self.age)
        seeds = [int(value) for value in self.seed]
        with strangers_code(f"{self.label} failed in reset"):
            seen, _ = self.vector.reset(seed=seeds, options={"reset_mask": np.array(where, bool)})
            seen = np.array(seen, float).reshape(len(seeds), self.observation_size)
        # Only the rows of restarted copies are new.
        self.observation = np.where(where[:, None], seen, self.observation)
        self._refuse_non_finite("an observation", self.observation)

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
        action = self.to_env(action)
        with strangers_code(f"{self.label} failed in step"):
            seen, reward, terminated, truncated, _ = self.vector.step(action)
            seen, reward = np.array(seen, float).reshape(self.observation.shape), np.array(reward, float)
        last = self.observation = seen
        self.age = self.age + 1
        self._refuse_non_finite("an observation", last)
        self._refuse_non_finite("a reward", reward[:, None])
        truncated = truncated & ~terminated
        if (ended := terminated | truncated).any():
            self._restart(ended, spare)
        return last, reward, terminated, truncated, self.observation

    def _refuse_non_finite(self, what: str, rows: np.ndarray) -> None:
        """NaN and numbers beyond float32 would become NaN in every weight."""
        good = np.abs(rows) <= MOST
        if not good.all():
            copy, entry = np.argwhere(~good)[0]
            raise TwinaxError(
                f"{self.label} gave {rows[copy, entry]} as entry {entry} of {what}, after step {self.age[copy]} of an "
                "episode; networks learn from finite numbers alone"
            )
