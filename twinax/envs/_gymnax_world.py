"""Gymnax environments as worlds; in JAX only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax import tree
from twinax.arguments import checked
from twinax.envs._control import Actions, Box, Control, Discrete, Moved
from twinax.envs._jax_rules import kept, keys, mapped, settled
from twinax.envs._seeds import seed_draw, seeds
from twinax.errors import MissingExtra, TwinaxError, UnknownName, require
from twinax.noise import Draw
from twinax.types import Array, Float

NEVER = 2**30
"""Steps that no episode reaches."""


@tree.record
class GymnaxState:
    """A state of gymnax, and what was seen when it came about: that may have been random."""

    inner: Any
    observation: Float[Array, "worlds observation"]


@checked
@dataclass(frozen=True, eq=False)
class GymnaxWorld(Control):
    """A gymnax environment by its id, or an object.

    Gymnax takes its limit of steps for an end and restarts at once, so that the last observation is lost. Here its
    rules for ends have a limit out of reach and its own restart is left out; who plays cuts episodes off. What is seen
    and paid follows the true limit, which some observations show.

    >>> GymnaxWorld("CartPole-v1").time_limit                             # doctest: +SKIP
    500
    """

    id: str = "CartPole-v1"
    """Id of the gymnax environment, one of gymnax.registered_envs."""
    time_limit: int = 0
    """Steps after which an episode is cut off; 0 means as the environment's parameters say."""
    flatten: bool = False
    """Whether observations that are images are made a row of numbers."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of the gymnax environment to change, such as {gravity: 9.0}; {} for none."""
    env: Any = None
    """A gymnax environment, instead of an id."""
    label: str = field(init=False)
    observation_size: int = field(init=False)
    actions: Actions = field(init=False)
    _given: Any = field(init=False, repr=False)
    _endless: Any = field(init=False, repr=False)
    frameworks = ("jax",)

    def __post_init__(self):
        if self.time_limit < 0:
            raise TwinaxError(f"the time limit of {self.id} is {self.time_limit}; it must be at least 0 (its own)")
        env = self.env if self.env is not None else make(self.id)
        label, given = self.id if self.env is None else type(env).__name__, env.default_params
        known = set(vars(given))
        for name in self.parameters:
            if name not in known:
                raise UnknownName(f"parameter of {label}", name, known)
        given = given.replace(**self.parameters)
        own, endless = 0, given
        if "max_steps_in_episode" in known:
            own, endless = int(given.max_steps_in_episode), given.replace(max_steps_in_episode=NEVER)
        vars(self).update(
            env=env,
            label=label,
            time_limit=self.time_limit or own,
            observation_size=_row_size(label, env, given, self.flatten),
            actions=_actions(label, env.action_space(given)),
            _given=given,
            _endless=endless,
        )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The id, or the class's name."""
        return self.label

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"seed": seed_draw(worlds)}

    step_draws = reset_draws

    def reset(self, draws: Mapping[str, Any]) -> GymnaxState:
        def one(key):
            observation, inner = self.env.reset_env(key, self._given)
            return GymnaxState(inner, _row(observation))

        return settled(mapped(one, keys(seeds(draws["seed"]))), draws["seed"])

    def step(self, state: GymnaxState, action: Any, draws: Mapping[str, Any]) -> Moved:
        shape = self.env.action_space(self._given).shape

        def one(key, inner, action):
            action = action.reshape(shape)
            observation, _, reward, _, _ = self.env.step_env(key, inner, action, self._given)
            # Once more without the limit, which may be part of the state as well; what both share is compiled once.
            _, inner, _, done, _ = self.env.step_env(key, inner, action, self._endless)
            return GymnaxState(inner, _row(observation)), reward, done.astype(bool)

        after, reward, done = mapped(one, keys(seeds(draws["seed"])), state.inner, action)
        return Moved(kept(after, state, self.name), reward.astype(draws["seed"].dtype), done, {})

    def observe(self, state: GymnaxState) -> Float[Array, "worlds observation"]:
        return state.observation


def make(id: str) -> Any:
    """The environment of an id."""
    require("gymnax", "gymnax", f"env=gymnax (env.id={id})")
    try:
        import gymnax
    except ModuleNotFoundError as error:  # gymnax 0.0.9 needs six, and does not say so
        raise MissingExtra(str(error.name), "gymnax", "gymnax") from error

    if id not in gymnax.registered_envs:
        raise UnknownName("env.id", id, gymnax.registered_envs)
    return gymnax.make(id)[0]


def _row(observation: Any) -> Any:
    return observation.reshape(-1) * 1.0  # some are made of booleans


def _row_size(label: str, env: Any, given: Any, flatten: bool) -> int:
    """Numbers in an observation."""
    import jax

    seen, _ = jax.eval_shape(lambda: env.reset_env(jax.random.PRNGKey(0), given))
    shape = getattr(seen, "shape", None)
    if shape is None:
        raise TwinaxError(
            f"{label} observes {type(seen).__name__}, and a policy here sees a row of numbers: let its get_obs join "
            "them with jnp.concatenate"
        )
    if len(shape) != 1 and not flatten:
        raise TwinaxError(
            f"{label} observes arrays of shape {shape}, and a policy here sees a row of numbers: set env.flatten=true"
        )
    return int(np.prod(shape))


def _actions(label: str, space: Any) -> Actions:
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind != "Box":
        raise TwinaxError(f"{label} takes actions from {kind}, and a policy here gives one number or a row (Box)")
    low, high = (np.broadcast_to(np.asarray(bound, float), space.shape).ravel() for bound in (space.low, space.high))
    return Box(tuple(low.tolist()), tuple(high.tolist()))
