"""What an update learns from: fresh trajectories, and backward rollouts from objects of the replay, or the trajectories
that were kept with these, in one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._exploration import Exploration
from twinax.gflownet._policy import PolicyOptions
from twinax.gflownet._replay import ReplayOptions
from twinax.gflownet._trajectories import Given, Trajectories, joined, retraced, undo_draws
from twinax.gflownet._undoing import undo
from twinax.noise import Draw
from twinax.problem import State
from twinax.types import Array, Int


def replay_draws(
    env: Environment, options: ReplayOptions, policy: PolicyOptions, exploration: Exploration
) -> dict[str, Draw]:
    """What the lessons of a step need, updates first."""
    if not options.batch_size:
        return {}
    rows = (options.updates, options.batch_size)
    draws = {"replay/choose": Draw(rows)}
    if exploration.thompson:
        draws["replay/heads"] = Draw((*rows, 1 + exploration.thompson_heads))
    if not policy.keeps_actions:
        draws["replay/undo"] = Draw((options.updates, *undo_draws(env, options.batch_size).shape))
    return draws


def lesson(
    env: Environment,
    state: State,
    options: ReplayOptions,
    policy: PolicyOptions,
    exploration: Exploration,
    fresh: Trajectories | None,
    draws: Mapping[str, Any],
    given: Given,
) -> tuple[Trajectories, Int[Array, " drawn"]]:
    """One batch, the fresh trajectories first, and the slots that the others were drawn from."""
    replay = state.carry.replay
    slots = replay.draw(options, draws["choose"])
    weight, world = replay.weights(options, slots), env.given(given.constants)
    if policy.keeps_actions:
        drawn, stand_in = ops.take(replay.actions, slots), lambda fresh: ops.move_axis(fresh.actions, 0, 1)
    else:
        drawn, stand_in = replay.at(slots), lambda fresh: fresh.last
    if fresh is not None and options.start:
        enough = replay.held >= options.start
        drawn = _if_held(enough, drawn, stand_in(fresh))
        weight = None if weight is None else ops.where(enough, weight, ops.full((), 1.0, weight))
    if policy.keeps_actions:
        replayed = retraced(world, ops.move_axis(drawn, 0, 1))
    else:
        kind = policy.backward if options.backward == "policy" else options.backward
        replayed = undo(world, state.networks, kind, drawn, draws["undo"])
    learners = exploration.heads(draws["heads"])[1] if exploration.thompson else None
    replayed = dataclasses.replace(replayed, weight=weight, learners=learners)
    parts = [replayed] if fresh is None else [fresh, replayed]
    return dataclasses.replace(joined(env, parts), given=given), slots


def _if_held(enough: Any, objects: Any, fresh: Any) -> Any:
    """What was drawn, or what is fresh in turn."""

    def one(drawn, last):
        turn = ops.arange(drawn.shape[0], drawn) % last.shape[0]
        return ops.where(enough, drawn, ops.take(last, turn))

    return tree.map_leaves(one, objects, fresh)
