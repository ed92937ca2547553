"""Backward policies that learn by a loss of their own, and are held still for the objective."""

from __future__ import annotations

import dataclasses

from twinax import ops
from twinax.envs import Environment
from twinax.gflownet._policy import counts_paths
from twinax.gflownet._scores import Scores
from twinax.types import Array, Float


def held_still(s: Scores) -> Scores:
    """The same scores for the objective, to which P_B is given: that of the target networks where there are any."""
    source = s if s.target is None else s.target
    return dataclasses.replace(s, log_pb=ops.stop_gradient(source.log_pb))


def backward_losses(env: Environment, kind: str, s: Scores, fresh: int, replayed: int) -> dict[str, Float[Array, ""]]:
    """What a backward policy learns by, by the name of that part of the loss; nothing where the objective teaches it,
    or there is nothing to learn. The first `fresh` trajectories are those that the forward policy has drawn, the last
    `replayed` ones come from the replay."""
    number = s.log_pb.shape[1]
    place = ops.arange(number, s.valid)
    if kind == "tlm":
        # Others were drawn by a backward policy: of their own likelihood it would learn nothing.
        return {"backward_loss": -s.mean(ops.sum(s.log_pb, 0), place < fresh)}
    if kind == "pessimistic":
        return {"backward_loss": -s.mean(ops.sum(s.log_pb, 0), place >= number - replayed)}
    if counts_paths(env, kind):
        return {"path_loss": path_loss(env, s)}
    return {}


def path_loss(env: Environment, s: Scores) -> Float[Array, ""]:
    """(log n(s -> s') - log n(s))^2, mean over the transitions that are not a stop.

    n(s) is the number of paths to s, and n(s -> s') what the backward logits of s' say of it. Their sum over all
    parents of s' is n(s'), and n is 1 in the source: detailed balance of a walk back whose reward is 1 there.
    """
    return s.mean(ops.square(s.path_error), s.valid & ~s.terminal if env.stops else s.valid)
