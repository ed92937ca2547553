"""Brax and Playground environments as worlds; in JAX only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twinax import tree
from twinax.arguments import checked
from twinax.envs._brax_checks import check_brax_env
from twinax.envs._control import Actions, Box, Control, Moved
from twinax.envs._jax_rules import kept, keys, mapped, settled
from twinax.envs._seeds import seed_draw, seeds
from twinax.errors import TwinaxError, UnknownName, require
from twinax.noise import Draw
from twinax.types import Array, Float


@checked
@dataclass(frozen=True, eq=False)
class BraxWorld(Control):
    """A Brax environment by its id, or an `Env` object (Playground's too): single, and not wrapped.

    Its `State` is the world's state, `info` and `metrics` included. `done` is an end; time limits are kept here. Brax's
    models are float32 and its loops refuse anything else, so an environment computes in float32 in every run.

    >>> BraxWorld("fast").actions                                         # doctest: +SKIP
    Box(low=(-1.0,), high=(1.0,))
    """

    id: str = "fast"
    """Name of the environment in Brax's registry."""
    backend: str = ""
    """Physics of Brax: generalized, spring, positional or mjx; empty for the environment's own."""
    time_limit: int = 1000
    """Steps after which an episode is cut off; 0 for never."""
    observation: str = "state"
    """Entry that the agent sees, where an observation is a dictionary."""
    critic: str = ""
    """Entry of a dictionary that the critic sees, such as privileged_state; empty means what the agent sees."""
    env: Any = None
    """An environment, instead of an id."""
    label: str = field(init=False)
    observation_size: int = field(init=False)
    actions: Actions = field(init=False)
    _critic_size: int = field(init=False, repr=False)
    _shapes: Any = field(init=False, repr=False)
    frameworks = ("jax",)

    def __post_init__(self):
        if self.time_limit < 0:
            raise TwinaxError(f"the time limit of {self.id} is {self.time_limit}; it must be at least 0 (never)")
        env = self.env if self.env is not None else make(self.id, self.backend)
        label = type(env).__name__ if self.env is not None else self.id
        shapes = check_brax_env(env)
        size = _row_size(label, shapes.obs, self.observation)
        vars(self).update(
            env=env,
            label=label,
            _shapes=shapes,
            observation_size=size,
            _critic_size=_row_size(label, shapes.obs, self.critic) if self.critic else size,
            actions=Box((-1.0,) * env.action_size, (1.0,) * env.action_size),
        )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The id, or the class's name."""
        return self.label

    @property
    def privileged(self) -> bool:  # type: ignore[override]
        """Whether the critic has an entry of its own."""
        return bool(self.critic)

    @property
    def critic_size(self) -> int:
        return self._critic_size

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"seed": seed_draw(worlds)}

    def reset(self, draws: Mapping[str, Any]) -> Any:
        return settled(mapped(self.env.reset, keys(seeds(draws["seed"])), single=True), draws["seed"])

    def step(self, state: Any, action: Any, draws: Mapping[str, Any]) -> Moved:
        own = tree.map_leaves(lambda x, like: x.astype(like.dtype), state, self._shapes)
        after = kept(mapped(self.env.step, own, action.astype("float32"), single=True), state, self.name)
        # Slashes are for groups of names, and these are names.
        terms = {name.replace("/", "_"): value for name, value in after.metrics.items() if value.ndim == 1}
        return Moved(after, after.reward, after.done > 0.5, terms)

    def observe(self, state: Any) -> Float[Array, "worlds observation"]:
        return _entry(state.obs, self.observation)

    def observe_critic(self, state: Any) -> Float[Array, "worlds observation"]:
        return _entry(state.obs, self.critic or self.observation)


def make(id: str, backend: str) -> Any:
    """The environment of an id."""
    require("brax", "brax", f"env=brax (env.id={id})")
    with warnings.catch_warnings():  # a library that Brax builds upon says that it is no longer maintained
        warnings.simplefilter("ignore", DeprecationWarning)
        from brax import envs
    known = envs._envs
    if id not in known:
        raise UnknownName("env.id", id, known)
    try:
        return envs.get_environment(id, **({"backend": backend} if backend else {}))
    except ValueError as error:
        raise TwinaxError(f"Brax cannot make env.id={id} with env.backend={backend}: {error}") from error


def _entry(seen: Any, name: str) -> Any:
    return seen[name] if isinstance(seen, Mapping) else seen


def _row_size(label: str, seen: Any, name: str) -> int:
    """Numbers in an observation, or in an entry of it."""
    if isinstance(seen, Mapping) and name not in seen:
        raise UnknownName(f"entry of what {label} observes", name, seen)
    shape = tuple(_entry(seen, name).shape)
    if len(shape) != 1:
        raise TwinaxError(
            f"{label} observes arrays of shape {shape}, and a policy here sees a row of numbers: choose another entry "
            "with env.observation, or let the environment flatten it (obs.reshape(-1))"
        )
    return shape[0]
