"""The first half of an iteration: play the worlds on, and make rows to learn from of what happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from twinax import ops, tree
from twinax.envs import Restarting
from twinax.networks import frozen
from twinax.noise import below
from twinax.ppo._advantages import ADVANTAGES
from twinax.ppo._losses import standardised
from twinax.ppo._networks import to_world
from twinax.ppo._options import Options
from twinax.ppo._records import Carry, Played, Rows
from twinax.ppo._rollout import Rollout, Started, entered, play, started
from twinax.problem import Metrics, State


def play_iteration(ppo: Options, state: State, draws) -> Played:
    """A rollout, what is to be learned from it, and what it leaves behind."""
    before, happened = roll_out(ppo, state, draws)
    carry = carry_on(ppo, state.networks, before, happened, draws, state.step)
    if ppo.observation_statistics == "before_learning":
        # The log-probabilities stay those of the policy that played, which saw by the old statistics.
        before = dataclasses.replace(before, observation=carry.observation, critic=carry.critic)
    rows = make_rows(ppo, state.networks, before, happened, draws)
    if ppo.pipelined:
        carry = dataclasses.replace(carry, waiting=rows)
    shown = {**happened.terms, "truncated": ops.cast(happened.truncated, rows.value)}
    if ppo.hooks is not None:
        shown |= reward_of(ppo, state.networks, happened)[1]
    terms = {name: ops.across_shards(ops.mean(value)) for name, value in shown.items()}
    terms |= {"train_return": carry.score, "train_length": carry.length}
    return Played(carry, rows, happened.recorded, terms)


def roll_out(ppo: Options, state: State, draws: Mapping[str, Any]) -> tuple[Carry, Rollout]:
    """Play on with the policy as it is; statistics stay as they are."""
    carry, agent = state.carry, frozen(state.networks["agent"]).acting()
    own = below(draws, "play")
    if carry.pool is not None:
        own["pick"] = pick_starts(ppo, own["pick"], carry.pool.observation.shape[0])

    def choose(observation, noise):
        policy = agent.policy(ppo.normalised(carry.observation, observation))
        point = policy.point(noise)
        return point, policy.log_prob_at(point), to_world(ppo.world.actions, point, ppo.squashed)

    if isinstance(ppo.world, Restarting):
        playing, lost = entered(ppo.world, carry.playing, below(draws, "enter"))
        running = None if carry.running is None else carry.running * ops.cast(~lost, carry.running)
        carry = dataclasses.replace(carry, playing=playing, running=running)
    record = None if ppo.hooks is None else ppo.hooks.record
    playing, happened = play(ppo.world, choose, carry.playing, own, carry.pool, record)
    return dataclasses.replace(carry, playing=playing), happened


def pick_starts(ppo: Options, uniform: Any, pool: int) -> Any:
    """Places in the pool; each group of worlds has its own part of it."""
    groups = ppo.groups // ops.num_shards()
    part = pool // groups
    place = ops.cast(ops.minimum(uniform * part, ops.full((), part - 1, uniform)), "int32")
    first = ops.arange(uniform.shape[1], uniform) // (uniform.shape[1] // groups) * part
    return place + first


def make_rows(ppo: Options, networks: Any, carry: Carry, happened: Rollout, draws: Mapping[str, Any]) -> Rows:
    """Advantages and targets of a rollout, as rows: groups of worlds first."""
    agent = frozen(networks["agent"])
    see, watch = carry.observation, carry.critic if ppo.world.privileged else carry.observation
    observation = ppo.normalised(see, happened.observation)
    critic = ppo.normalised(watch, happened.critic) if ppo.world.privileged else None
    value = agent.value(observation if critic is None else critic)
    last = happened.next_observation if critic is None else happened.next_critic

    def all_next():
        return agent.value(ppo.normalised(watch, last))

    def only_last():
        end = agent.value(ppo.normalised(watch, last[-1]))
        return ops.concat([value[1:], end[None]])

    # Only a truncated step asks for the value of an observation that no later step has.
    next_value = ops.cond(ops.any(happened.truncated), all_next, only_last)
    reward = ppo.reward_scale * reward_of(ppo, networks, happened)[0]
    if carry.returned is not None:
        reward = ops.clip(reward / ops.sqrt(carry.returned.variance + 1e-8), -10.0, 10.0)
    advantage, target = ADVANTAGES[ppo.advantage](
        reward, value, next_value, happened.terminated, happened.truncated, ppo.gamma, ppo.gae_lambda
    )
    noise = draws["entropy"] if ppo.squashed else None
    whole = Rows(observation, critic, happened.point, happened.log_prob, value, advantage, target, noise)
    rows = tree.map_leaves(partial(by_group, ppo), whole)
    if ppo.standardise == "rollout":
        rows = dataclasses.replace(rows, advantage=standardised(rows.advantage, ppo.advantage_deviation))
    return rows


def reward_of(ppo: Options, networks: Any, happened: Rollout) -> tuple[Any, Metrics]:
    """The world's, or what a hook makes of it."""
    if ppo.hooks is None:
        return happened.reward, {}
    return ppo.hooks.reward(frozen(networks), happened.recorded, happened.reward)


def by_group(ppo: Options, x: Any) -> Any:
    """(time, world, ...) as rows: the first group of worlds, then the next."""
    groups = ppo.groups // ops.num_shards()
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return ops.move_axis(x, 1, 0).reshape(-1, *x.shape[3:])


def carry_on(
    ppo: Options, networks: Any, carry: Carry, happened: Rollout, draws: Mapping[str, Any], step: Any
) -> Carry:
    """Statistics and starts for the next iteration."""

    def flat(x):
        return x.reshape(-1, *x.shape[2:])

    changes: dict[str, Any] = {}
    if carry.observation is not None:
        changes["observation"] = carry.observation.with_rows(flat(happened.observation))
    if carry.critic is not None:
        changes["critic"] = carry.critic.with_rows(flat(happened.critic))
    if carry.returned is not None:

        def discounted(running, now):
            reward, ended = now
            running = ppo.gamma * running + reward
            return running * (1.0 - ops.cast(ended, reward)), running

        reward = ppo.reward_scale * reward_of(ppo, networks, happened)[0]
        running, each = ops.scan(discounted, carry.running, (reward, happened.ended))
        changes |= {"running": running, "returned": carry.returned.with_rows(flat(each))}
    if carry.pool is not None:
        changes["pool"] = renew_pool(ppo, carry.pool, below(draws, "pool"), step)
    ended = ops.cast(happened.ended, happened.reward)
    number = ops.across_shards(ops.sum(ended))
    some = ops.maximum(number, ops.full((), 1e-9, number))
    for name, values in (("score", happened.total), ("length", ops.cast(happened.length, ended))):
        mean = ops.across_shards(ops.sum(values * ended)) / some
        changes[name] = ops.where(number > 0, mean, getattr(carry, name))
    return dataclasses.replace(carry, **changes)


def renew_pool(ppo: Options, pool: Started, draws: Mapping[str, Any], step: Any) -> Started:
    """The pool with an eighth of each group's starts made anew, in turn."""
    fresh = started(ppo.world, draws)
    groups, turn = ppo.groups // ops.num_shards(), ops.cast(step, "int32") % 8

    def one(old, new):
        part, size = old.shape[0] // groups, new.shape[0] // groups
        for g in range(groups):
            old = ops.write_rows(old, turn * size + g * part, new[g * size : (g + 1) * size])
        return old

    return tree.map_leaves(one, pool, fresh)
