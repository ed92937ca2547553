"""The second half of an iteration: passes over the rows, and what joins both halves."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from twinax import ops, tree
from twinax.noise import below
from twinax.ppo._playing import by_group
from twinax.ppo._records import Learned, Played, Rows
from twinax.problem import Metrics, State
from twinax.types import Array, Float

if TYPE_CHECKING:
    from twinax.ppo._problem import PPO

PARTS = ("policy_loss", "value_loss", "entropy_loss")
"""What the loss adds up, weights included."""
TERMS = ("loss", *PARTS, "value_error", "entropy", "approx_kl", "clip_fraction", "grad_norm")
"""What an update shows."""


def minibatch_rows(ppo: PPO, uniform: Float[Array, "group rows"]) -> Any:
    """Indices of the rows of each minibatch of a pass: equally many from every group."""
    groups, rows = uniform.shape
    order = ops.shuffled(uniform) + ops.arange(groups, uniform)[:, None] * rows
    parts = order.reshape(groups, ppo.num_minibatches, rows // ppo.num_minibatches)
    return ops.move_axis(parts, 1, 0).reshape(ppo.num_minibatches, -1)


def learn_passes(ppo: PPO, state: State, rows: Rows, draws, update) -> Learned:
    """All passes over some rows."""
    picked = ops.concat([minibatch_rows(ppo, uniform) for uniform in draws["order"]])
    spread = ops.across_shards(ops.mean(ops.square(rows.target - ops.across_shards(ops.mean(rows.target)))))
    missed = ops.across_shards(ops.mean(ops.square(rows.target - rows.value)))

    def learn(known, index):
        networks, moments, stopped = known
        before = dataclasses.replace(state, networks=networks, optimizer=moments)
        batch = tree.map_leaves(lambda x: ops.take(x, index), rows)

        def go():
            after, terms = update(before, ppo.loss, batch, still=ppo.others)
            return (after.networks, after.optimizer), {**terms, "updates": ops.full((), 1.0, rows.value)}

        if not ppo.target_kl:
            (networks, moments), terms = go()
            return (networks, moments, stopped), terms

        def stay():
            blank = ops.zeros((), rows.value)
            return (networks, moments), dict.fromkeys((*TERMS, "updates"), blank)

        (networks, moments), terms = ops.cond(~stopped, go, stay, each=True)
        return (networks, moments, stopped | (terms["approx_kl"] > ppo.target_kl)), terms

    never = ops.zeros((), rows.value, "bool")
    (networks, moments, _), terms = ops.scan(learn, (state.networks, state.optimizer, never), picked)
    done = ops.sum(terms.pop("updates"))
    means = {name: ops.sum(value) / done for name, value in terms.items()}
    means |= {"updates": done, "explained_variance": 1.0 - missed / (spread + 1e-8)}
    if ppo.pipelined:
        # How far the policy has moved since it played what it learns from: before its first update.
        means |= {"policy_lag": ops.full((), 1.0, rows.value), "lag_kl": terms["approx_kl"][0]}
    return Learned(networks, moments, means)


def join_halves(ppo: PPO, state: State, played: Played, learned: Learned, draws, update) -> tuple[State, Metrics]:
    """The state after an iteration, hooks' own updates included."""
    terms = {**learned.terms, **played.terms}
    after = dataclasses.replace(state, networks=learned.networks, optimizer=learned.moments, carry=played.carry)
    if ppo.hooks is None:
        return after, terms
    recorded = tree.map_leaves(partial(by_group, ppo), played.recorded)
    after, kept, more = ppo.hooks.update(after, played.carry.hooks, recorded, below(draws, "hooks"), update)
    return dataclasses.replace(after, carry=dataclasses.replace(played.carry, hooks=kept)), {**terms, **more}
