"""Trajectories to given objects, by a backward policy."""

from __future__ import annotations

from typing import Any

from twinax.envs import Environment
from twinax.gflownet._policy import Networks, backward_log_probs, is_fixed
from twinax.gflownet._trajectories import Trajectories, backward_rollout
from twinax.types import Array, Float


def undo(
    env: Environment, networks: Networks, kind: str, objects: Any, uniform: Float[Array, "time batch numbers"]
) -> Trajectories:
    """A trajectory to each of some finished objects, drawn by one of the backward policies."""

    fixed = is_fixed(env, kind)

    def logits(states):
        if fixed:
            return backward_log_probs(env, kind, states, None, uniform)
        out = networks.policy(env.observe(states))
        return backward_log_probs(env, kind, states, out.backward_logits, out.forward_logits)

    return backward_rollout(env, logits, objects, uniform)
