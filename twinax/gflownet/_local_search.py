"""Local search: some steps back from an object by the backward policy, forward again, and on from what is accepted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs import Environment
from twinax.errors import UnknownName
from twinax.gflownet._policy import Networks
from twinax.gflownet._proposals import RULES, accept_log_ratio, accepted
from twinax.gflownet._scores import score
from twinax.gflownet._trajectories import Given, Trajectories, forward_rollout, rollout_draws, undo_draws
from twinax.gflownet._undoing import undo
from twinax.noise import Draw
from twinax.ranges import check_counts
from twinax.types import Array, Bool, Int

ACCEPT = ("reward", *RULES)


@checked
@dataclass(frozen=True)
class LocalSearchOptions:
    """How fresh objects are varied before an update, which learns from all proposals, accepted or not.

    >>> LocalSearchOptions(rounds=7, steps=4).accept
    'reward'
    """

    rounds: int = 0
    """Proposals that are made one after the other from each fresh object, each from the last that was accepted; 0 makes
    none."""
    steps: int = 4
    """Actions that are undone for a proposal, a stop included. For metropolis and barker, where trajectories have
    several lengths, the number is drawn evenly from 1 to this."""
    accept: str = "reward"
    """When a proposal takes the place of the object: reward (if it is worth as much or more), metropolis or barker (by
    chance, so that objects that follow the reward go on following it)."""

    def __post_init__(self):
        check_counts(self, ("rounds",), least=0)
        check_counts(self, ("steps",))
        if self.accept not in ACCEPT:
            raise UnknownName("way to accept", self.accept, ACCEPT)

    def varied(self, env: Environment) -> bool:
        """Whether the number of steps is drawn: with one number alone, no way back would have another length."""
        return self.accept != "reward" and not env.fixed_length


def search_draws(env: Environment, options: LocalSearchOptions, batch: int, name: str = "search") -> dict[str, Draw]:
    """What `local_search` and `walk` need, rounds first."""
    if not options.rounds:
        return {}
    forward = rollout_draws(env, batch)["action"].shape
    # Where all trajectories have one length, as many steps lead to the end as were undone.
    again = min(options.steps, env.max_steps) if env.fixed_length else env.max_steps
    shapes = {"undo": undo_draws(env, batch).shape, "redo": (again, *forward[1:]), "accept": (batch,)}
    if options.varied(env):
        shapes["steps"] = (batch,)
    return {f"{name}/{key}": Draw((options.rounds, *shape)) for key, shape in shapes.items()}


def local_search(
    env: Environment,
    networks: Networks,
    backward: str,
    options: LocalSearchOptions,
    objects: Any,
    draws: Mapping[str, Any],
    given: Given,
) -> Trajectories:
    """A trajectory to each proposal, round after round."""
    batch = draws["accept"].shape[1]
    _, (states, actions, length), _ = walk(env, networks, backward, options, objects, draws, given)

    def together(x):
        return ops.move_axis(x, 0, 1).reshape(x.shape[1], options.rounds * batch, *x.shape[3:])

    return Trajectories(tree.map_leaves(together, states), together(actions), length.reshape(-1), given)


def walk(
    env: Environment,
    networks: Networks,
    backward: str,
    options: LocalSearchOptions,
    objects: Any,
    draws: Mapping[str, Any],
    given: Given,
) -> tuple[Any, tuple[Any, Array, Array], Bool[Array, "rounds batch"]]:
    """The objects after the last round; states, actions and lengths of all proposals, rounds first; and which of them
    were accepted."""
    env = env.given(given.constants)

    def once(current: Any, own: Mapping[str, Any]):
        old, new, possible = proposal(env, networks, backward, options, current, own)
        if options.accept == "reward":
            better = env.log_reward(new.last) >= env.log_reward(current)
        else:
            constants = Given(given.constants)
            scores = [score(env, networks, dataclasses.replace(one, given=constants), backward) for one in (old, new)]
            better = possible & accepted(accept_log_ratio(*scores), own["accept"], options.accept)
        return _chosen(better, new.last, current), ((new.states, new.actions, new.length), better)

    last, (proposals, better) = ops.scan(once, objects, dict(draws))
    return last, proposals, better


def proposal(
    env: Environment,
    networks: Networks,
    backward: str,
    options: LocalSearchOptions,
    objects: Any,
    draws: Mapping[str, Any],
) -> tuple[Trajectories, Trajectories, Bool[Array, " batch"]]:
    """A trajectory to each object, one that parts from it some steps before its end, and whether the way back from
    there could be proposed as well."""
    old = undo(env, networks, backward, objects, draws["undo"])
    # Where all trajectories have one length, a walk of more steps is one to the source, from everywhere alike.
    most = min(options.steps, env.max_steps) if env.fixed_length else options.steps
    steps = ops.full(old.length.shape, most, old.length)
    if options.varied(env):
        drawn = 1 + ops.cast(draws["steps"] * options.steps, old.length)
        steps = ops.minimum(drawn, steps)
    kept = old.length - ops.minimum(steps, old.length)
    policy = networks.policy.acting()  # type: ignore[attr-defined]
    start = tree.map_leaves(lambda x: _at_time(x, kept[None])[0], old.states)
    again = forward_rollout(
        env, lambda seen: policy(seen).forward_logits, draws["redo"], draws["redo"][..., 0] + 1.0, first=start
    )
    possible = (steps <= old.length) & (again.length <= options.steps)
    return old, _spliced(old, again, kept), possible


def _spliced(one: Trajectories, other: Trajectories, kept: Int[Array, " batch"]) -> Trajectories:
    """The first `kept` actions of one, and then all of another, which begins in the state that they lead to."""
    times = one.actions.shape[0]
    time = ops.arange(times + 1, one.length)[:, None]
    behind = ops.clip(time - kept[None], 0, times)

    def follow(x, y, last):
        index = ops.minimum(behind[: x.shape[0]], ops.broadcast(last[None], behind[: x.shape[0]].shape))
        return _chosen(time[: x.shape[0]] < kept[None], x, _at_time(y, index))

    states = tree.map_leaves(lambda x, y: follow(x, y, other.length), one.states, other.states)
    actions = follow(one.actions, other.actions, other.length * 0 + other.actions.shape[0] - 1)
    return Trajectories(states, actions, kept + other.length)


def _at_time(x: Any, time: Int[Array, "rows batch"]) -> Any:
    """Entries (time, batch) of a tree's leaf by time."""
    flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    return ops.take(flat, ops.cast(time * x.shape[1] + ops.arange(x.shape[1], time)[None], "int32"))


def _chosen(condition: Any, one: Any, other: Any) -> Any:
    """Rows of one tree or the other."""

    def choose(x, y):
        return ops.where(condition.reshape(*condition.shape, *[1] * (x.ndim - condition.ndim)), x, y)

    return tree.map_leaves(choose, one, other)
