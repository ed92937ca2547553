"""Playing many worlds side by side for some steps, restarting those that have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.tree_util as jtu

from twinax import ops, tree
from twinax.envs import Control, Restarting
from twinax.noise import below
from twinax.types import Array, Bool, Float, Int


@tree.record
class Started:
    """Worlds in some state, and what is seen there."""

    state: Any
    observation: Float[Array, "world observation"]
    critic: Any
    """What the critic sees; None where that is the observation."""


@tree.record
class Playing:
    """Worlds in the middle of their episodes."""

    now: Started
    clock: Int[Array, " world"]
    """Steps of this episode."""
    total: Float[Array, " world"]
    """Rewards of this episode."""


@tree.record
class Rollout:
    """What happened: time first, or one step. The next observation is the true one, from before any restart."""

    observation: Float[Array, "*time world observation"]
    critic: Any
    point: Array
    """The policy's choice, before it is squashed or limited."""
    log_prob: Float[Array, "*time world"]
    reward: Float[Array, "*time world"]
    terminated: Bool[Array, "*time world"]
    truncated: Bool[Array, "*time world"]
    next_observation: Float[Array, "*time world observation"]
    next_critic: Any
    total: Float[Array, "*time world"]
    """Rewards of the episode so far, this step included."""
    length: Int[Array, "*time world"]
    """Steps of the episode so far, this step included."""
    terms: dict[str, Float[Array, "*time world"]]
    recorded: Any = None
    """What a hook has taken down of each step."""

    @property
    def ended(self) -> Bool[Array, "*time world"]:
        """Whether this was the last step of an episode."""
        return self.terminated | self.truncated


Choose = Callable[[Any, Any], tuple[Any, Any, Any]]
"""(observation, random numbers) -> (point, log-probability, action for the world)"""


def seen(world: Control, state: Any, known: tuple[Any, Any] | None = None) -> Started:
    """A state with its observations, which may be known already."""
    if not world.privileged:
        return Started(state, world.observe(state) if known is None else known[0], None)
    return Started(state, *(world.observe_both(state) if known is None else known))


def started(world: Control, draws: Mapping[str, Any]) -> Started:
    """Worlds at the beginning of an episode."""
    return seen(world, world.reset(draws))


def begin(world: Control, draws: Mapping[str, Any]) -> Playing:
    """All worlds at their first step."""
    now = started(world, draws)
    number = now.observation.shape[0]
    return Playing(now, ops.zeros((number,), now.observation, "int32"), ops.zeros((number,), now.observation))


def entered(world: Restarting, playing: Playing, draws: Mapping[str, Any]) -> tuple[Playing, Any]:
    """Playing on in a world with hidden state, and which episodes were lost and begin anew."""
    state, lost = world.enter(playing.now.state, draws)
    clock, total = (x * ops.cast(~lost, x) for x in (playing.clock, playing.total))
    return Playing(seen(world, state), clock, total), lost


def replaced(where: Any, new: Any, old: Any) -> Any:
    """Leaf by leaf the new rows where asked, else the old ones."""

    def one(a, b):
        return ops.where(where.reshape(where.shape + (1,) * (a.ndim - 1)), a, b)

    return jtu.tree_map(one, new, old)


Record = Callable[[Any, Any], Any]
"""(state before, state after, from before any restart) -> arrays, worlds first"""


def advance(
    world: Control,
    choose: Choose,
    playing: Playing,
    draws: Mapping[str, Any],
    fresh: Started | None,
    record: Record | None = None,
):
    """One step everywhere; worlds that end go on from `fresh`, or as they say if they restart themselves."""
    now = playing.now
    point, log_prob, action = choose(now.observation, draws["policy"])
    moved = world.step(now.state, action, below(draws, "step"))
    after = seen(world, moved.state, moved.seen)
    clock, total = playing.clock + 1, playing.total + moved.reward
    limit = world.time_limit
    if isinstance(world, Restarting):
        truncated = moved.truncated
    else:
        truncated = (clock >= limit) & ~moved.terminated if limit else moved.terminated & ~moved.terminated
    ended = moved.terminated | truncated
    happened = Rollout(
        now.observation,
        now.critic,
        point,
        log_prob,
        moved.reward,
        moved.terminated,
        truncated,
        after.observation,
        after.critic,
        total,
        clock,
        moved.terms,
        None if record is None else record(now.state, moved.state),
    )
    going = ~ended
    onward = seen(world, moved.onward) if fresh is None else replaced(ended, fresh, after)
    return Playing(onward, clock * ops.cast(going, clock), total * ops.cast(going, total)), happened


def play(
    world: Control,
    choose: Choose,
    playing: Playing,
    draws: Mapping[str, Any],
    pool: Started | None = None,
    record: Record | None = None,
) -> tuple[Playing, Rollout]:
    """As many steps as the draws have, time first.

    Ended worlds start anew: by themselves, from `reset/...` draws of that step, or from a pool of starts by `pick`.
    """

    def step(playing: Playing, own: Mapping[str, Any]):
        if isinstance(world, Restarting):
            fresh = None
        elif pool is None:
            fresh = started(world, below(own, "reset"))
        else:
            fresh = tree.map_leaves(lambda x: ops.take(x, own["pick"]), pool)
        return advance(world, choose, playing, own, fresh, record)

    return ops.scan(step, playing, dict(draws))
