"""Any Gymnasium environment as a world of many copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs._control import Actions, Box, Discrete, Moved, Restarting
from twinax.envs._gymnasium_copies import Copies, build
from twinax.envs._gymnasium_film import Filmed
from twinax.envs._seeds import seed_draw, seeds
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.types import Array, Float, Int


@tree.record
class Hidden:
    """What is known of environments whose state is hidden."""

    observation: Float[Array, "worlds observation"]
    seed: Int[Array, " worlds"]
    """With which this episode began."""
    age: Int[Array, " worlds"]
    """Steps of this episode."""


@checked
@dataclass(frozen=True, eq=False)
class GymnasiumWorld(Restarting):
    """A Gymnasium environment by its id, or from a factory; PyTorch calls it, and JAX calls it back.

    >>> GymnasiumWorld("CartPole-v1").actions                             # doctest: +SKIP
    Discrete(n=2)
    """

    id: str = "CartPole-v1"
    """Id of the Gymnasium environment; module:Name-v0 imports a module of yours that registers it."""
    time_limit: int = 0
    """Steps after which an episode is cut off; 0 means as the environment says."""
    flatten: bool = False
    """Whether dictionaries, images and the like are made a row of numbers (gymnasium's FlattenObservation)."""
    processes: bool = False
    """Whether each copy runs in a process of its own (AsyncVectorEnv), for environments that take long to step."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments that gymnasium.make gives to the environment, such as {gravity: 9.0}; {} for none."""
    factory: Callable[..., Any] | None = None
    """What makes an environment, instead of an id."""
    label: str = field(init=False)
    observation_size: int = field(init=False)
    actions: Actions = field(init=False)
    _copies: dict[int, Copies] = field(init=False, repr=False, default_factory=dict)
    """Those of each shard of a program: every device, and so every process, steps its own."""
    _some: Callable[[], Copies] = field(init=False, repr=False)
    _filmed: Callable[..., Filmed] = field(init=False, repr=False)
    _apart: list[GymnasiumWorld] = field(init=False, repr=False, default_factory=list)
    _failed: list[TwinaxError] = field(init=False, repr=False, default_factory=list)
    """The first call from within a JAX program that failed."""

    def __post_init__(self):
        if not isinstance(self.time_limit, int) or self.time_limit < 0:
            limit = f"the time limit of {self.id} is {self.time_limit!r}"
            raise TwinaxError(f"{limit}; it must be a whole number of at least 0 (its own)")
        if not isinstance(self.options, Mapping):
            raise TwinaxError(f"the options of {self.id} are {self.options!r}; give a dictionary of arguments by name")
        label = getattr(self.factory, "__name__", repr(self.factory)) if self.factory else self.id
        make = partial(build, self.id, self.factory, dict(self.options), self.time_limit, self.flatten, label)
        one = make()
        try:
            size, (actions, to_env) = _row_size(label, one.observation_space), _actions(label, one.action_space)
            own = one.spec.max_episode_steps if one.spec is not None else None
        finally:
            one.close()
        vars(self).update(
            label=label,
            time_limit=self.time_limit or own or 0,
            observation_size=size,
            actions=actions,
            _some=partial(Copies, label, make, self.processes, size, to_env),
            _filmed=partial(Filmed, make=make, to_env=to_env),
        )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The id, or the factory's name."""
        return self.label

    def apart(self) -> GymnasiumWorld:
        if not self._apart:
            twin = GymnasiumWorld(self.id, self.time_limit, self.flatten, self.processes, self.options, self.factory)
            self._apart.append(twin)
        return self._apart[0]

    def watch(self, logs: Mapping[str, Any]) -> None:
        if self._failed:
            raise self._failed.pop()

    def on_host(self) -> Filmed:
        return self._filmed(self)

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"seed": seed_draw(worlds)}

    step_draws = reset_draws

    def reset(self, draws: Mapping[str, Any]) -> Hidden:
        seed = seeds(draws["seed"])
        row = ops.zeros((seed.shape[0], self.observation_size), draws["seed"])
        return Hidden(self._call(Copies.reset, row, row, seed), seed, seed * 0)

    def enter(self, state: Hidden, draws: Mapping[str, Any]) -> tuple[Hidden, Any]:
        spare, row = seeds(draws["seed"]), state.observation
        seen, lost = self._call(Copies.enter, row, (row, state.age < 0), row, state.seed, state.age, spare)
        return Hidden(seen, *_begun(lost, spare, state.seed, state.age)), lost

    def step(self, state: Hidden, action: Any, draws: Mapping[str, Any]) -> Moved:
        spare, row, flag = seeds(draws["seed"]), state.observation, state.age < 0
        last, reward, terminated, truncated, onward = self._call(
            Copies.step, row, (row, row[:, 0], flag, flag, row), action, spare
        )
        begun = _begun(terminated | truncated, spare, state.seed, state.age + 1)
        return Moved(Hidden(last, state.seed, state.age + 1), reward, terminated, {}, truncated, Hidden(onward, *begun))

    def observe(self, state: Hidden) -> Float[Array, "worlds observation"]:
        return state.observation

    def copies(self, shard: int = 0) -> Copies:
        """The environments of a shard, here on the host; the only ones where a program is not shared out."""
        if shard not in self._copies:
            self._copies[shard] = self._some()
        return self._copies[shard]

    def _call(self, method: Callable[..., Any], seen: Any, results: Any, *arrays: Any) -> Any:
        """A method of this shard's copies, after the call that gave what is `seen`."""

        def call(shard, _, *arrays):
            return method(self.copies(int(shard)), *arrays)

        if ops.framework(seen) == "jax":
            call = self._told_later(call, results)
        return ops.host_call(call, results, ops.shard_index(seen), seen, *arrays, ordered=True)

    def _told_later(self, call: Callable[..., Any], results: Any) -> Callable[..., Any]:
        """The call, which does not raise: JAX would bury the sentence under its own traceback. `watch` raises it."""
        shapes = tree.map_leaves(lambda x: np.zeros(x.shape, x.dtype), results)

        def quiet(*arrays):
            if not self._failed:
                try:
                    return call(*arrays)
                except TwinaxError as error:
                    self._failed.append(error)
            return shapes

        return quiet


def _begun(where: Any, spare: Any, seed: Any, age: Any) -> tuple[Any, Any]:
    """Seed and age after some episodes began."""
    return ops.where(where, spare, seed), ops.where(where, age * 0, age)


def _row_size(label: str, space: Any) -> int:
    """Numbers in an observation."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0]:
        return space.shape[0]
    raise TwinaxError(
        f"{label} observes {space}, and a policy here sees a row of numbers: set env.flatten=true, or wrap it with "
        "gymnasium.wrappers.FlattenObservation"
    )


def _actions(label: str, space: Any) -> tuple[Actions, Callable[[np.ndarray], np.ndarray]]:
    """Actions of a space, and the way to Gymnasium's own arrays."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n)), lambda action: action + space.start
    if not isinstance(space, spaces.Box):
        raise TwinaxError(
            f"{label} takes actions from {space}, and a policy here gives one number (Discrete) or a row (Box): "
            "wrap it with gymnasium.wrappers.TransformAction"
        )
    low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))

    def to_env(action: np.ndarray) -> np.ndarray:
        if action.shape[1:] != (len(low),):
            raise TwinaxError(f"{label} takes actions of {len(low)} numbers, but was given {action.shape[1:]}")
        # Rounding to the space's dtype must not leave its bounds.
        return np.clip(action.reshape(-1, *space.shape).astype(space.dtype), space.low, space.high)

    return Box(low, high), to_env
