"""The probability that a policy gives to an object, from trajectories that end in it."""

from __future__ import annotations

import math
from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._policy import Networks
from twinax.gflownet._scores import score
from twinax.gflownet._trajectories import undo_draws
from twinax.gflownet._undoing import undo
from twinax.noise import Draw
from twinax.types import Array, Float

ROWS = 16_384
"""States that a network sees at once, about."""


def likelihood_draws(env: Environment, objects: int, rollouts: int) -> Draw:
    """What `log_probabilities` needs; objects come first."""
    steps, _, numbers = undo_draws(env, 1).shape
    return Draw((objects, rollouts, steps, numbers))


def log_probabilities(
    env: Environment,
    networks: Networks,
    kind: str,
    objects: Any,
    uniform: Float[Array, "objects rollouts time numbers"],
) -> tuple[Float[Array, " objects"], Float[Array, " objects"]]:
    """log P(x) of finished states, and the standard error of each, relative to P(x).

    The mean of P_F(tau) / P_B(tau | x) over trajectories tau that are drawn backwards from x is P(x) in expectation;
    its logarithm is a little too low. In a world that is a tree one rollout is exact; in others one says nothing of
    its error, which is then nan.
    """
    number, rollouts = uniform.shape[0], uniform.shape[1]
    unknown = math.nan if rollouts == 1 and env.num_backward_actions > 1 else 0.0
    tile = max(1, min(number, ROWS // (rollouts * (env.max_steps + 1))))

    def of_tile(rows):
        states, draws = rows
        size = draws.shape[0]
        each = ops.cast(ops.arange(size * rollouts, draws) // rollouts, "int32")
        repeated = tree.map_leaves(lambda x: ops.take(x, each), states)
        flat = ops.move_axis(draws.reshape(size * rollouts, *draws.shape[2:]), 0, 1)
        walks = undo(env, networks, kind, repeated, flat)
        scores = score(env, networks, walks, kind)
        gains = ops.sum(scores.log_pf - scores.log_pb, 0).reshape(size, rollouts)
        log_mean = ops.logsumexp(gains, -1) - math.log(rollouts)
        weights = ops.exp(gains - log_mean[:, None])
        error = ops.sqrt(ops.mean(ops.square(weights - 1.0), -1) / max(rollouts - 1, 1))
        return log_mean, error + unknown

    return ops.map_rows(of_tile, (objects, uniform), tile)
