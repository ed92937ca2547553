"""Rewards for what is new: how far one network is from foretelling what another, which is never trained, makes of a
state (random network distillation)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from twinax import ops
from twinax.envs import Environment
from twinax.gflownet._scores import Scores
from twinax.gflownet.objectives import next_log_flow
from twinax.networks import MLP
from twinax.types import Array, Float


def init_novelty(rng: np.random.Generator, env: Environment, widths: tuple[int, ...]) -> tuple[MLP, MLP]:
    """The network that learns, and the one that it learns to foretell."""
    *hidden, features = widths
    learning, fixed = (MLP.init(rng, env.observation_size, hidden, features) for _ in range(2))
    return learning, fixed


def intrinsic_reward(novelty: Array, scale: Any) -> Array:
    """scale |f(s) - g(s)|, through which nothing is learned."""
    return ops.cast(scale, novelty) * ops.sqrt(ops.stop_gradient(novelty))


def end_novelty(s: Scores) -> Float[Array, " batch"]:
    """That of the finished objects."""
    return ops.sum(ops.where(s.terminal, s.novelty, 0.0), 0)


def novelty_loss(s: Scores, form: str) -> Float[Array, ""]:
    """|f(s) - g(s)|^2, mean over the states that are rewarded: finished objects, or those that an action led to."""
    return s.mean(s.novelty, s.valid) if form == "edge" else s.mean(end_novelty(s))


def rewarded(s: Scores, form: str, scale: Any) -> Scores:
    """The same scores with rewards for what is new; exactly the same where the scale is 0.

    trajectory: R(x) + r(x) in the place of R(x). edge: P_B(s | s') + r(s') / F(s') in the place of P_B, so that each
    edge brings its reward into the flow: F(s) P_F(s' | s) = F(s') P_B(s | s') + r(s').
    """
    if form == "edge":
        log_pb = _log_sum(s.log_pb, intrinsic_reward(s.novelty, scale), next_log_flow(s))
        return dataclasses.replace(s, log_pb=log_pb)
    fields = {"log_reward": _log_sum(s.log_reward, intrinsic_reward(end_novelty(s), scale))}
    if s.state_log_reward is not None:
        # Objectives that read it let a trajectory end in every state.
        fields["state_log_reward"] = _log_sum(s.state_log_reward, intrinsic_reward(s.state_novelty, scale))
    target = None if s.target is None else dataclasses.replace(s.target, **fields)
    return dataclasses.replace(s, target=target, **fields)


def _log_sum(log_value: Array, reward: Array, log_flow: Any = 0.0) -> Array:
    """log(value + reward / flow)."""
    some = reward > 0
    log_reward = ops.log(ops.where(some, reward, 1.0)) - log_flow
    return ops.where(some, ops.logsumexp(ops.stack([log_value, log_reward], -1)), log_value)
