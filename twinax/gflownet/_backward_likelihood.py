"""A backward policy that learns to explain what the forward policy does: trajectory likelihood maximisation."""

from __future__ import annotations

import dataclasses

from twinax import ops
from twinax.gflownet._scores import Scores
from twinax.types import Array, Float


def held_still(s: Scores) -> Scores:
    """The same scores for the objective, to which P_B is given: that of the target networks where there are any."""
    source = s if s.target is None else s.target
    return dataclasses.replace(s, log_pb=ops.stop_gradient(source.log_pb))


def backward_likelihood(s: Scores, fresh: int) -> Float[Array, ""]:
    """-log P_B(tau | x), mean over the first `fresh` trajectories, which the forward policy has drawn.

    Others were drawn by a backward policy: of their own likelihood it would learn nothing.
    """
    return -ops.mean(ops.sum(s.log_pb[:, :fresh], 0))
