"""Objectives that learn from more than a reward: a prior policy, or known objects."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.gflownet._scores import Scores
from twinax.gflownet.objectives import Objective
from twinax.problem import Terms
from twinax.types import Array, Float


@checked
@dataclass(frozen=True)
class RelativeTrajectoryBalance(Objective):
    """(log Z + sum log P_F - sum log P_prior - beta log R)^2: the policy becomes the prior, weighted by R^beta.

    The prior is the policy that training begins with, which stays as it was. Z is the prior's mean of R^beta. No
    backward policy enters.
    """

    beta: float = 1.0
    """Exponent of the reward."""

    needs = frozenset({"log_z"})
    prior = True

    def __post_init__(self):
        super().__post_init__()
        if not math.isfinite(self.beta):
            raise TwinaxError(f"beta is {self.beta}; it must be finite")

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        if s.prior is None:
            raise TwinaxError(f"{self.name} reads the scores of a prior policy, and was given none: Scores(prior=...)")
        gain = ops.sum(s.log_pf - ops.stop_gradient(s.prior.log_pf), 0)
        return s.mean(self.of_residual(s.log_z + gain - self.beta * s.log_reward)), Terms()

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return s.log_z

    def log_target(self, log_reward: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
        return log_prior + self.beta * log_reward


@dataclass(frozen=True)
class MaximumLikelihood(Objective):
    """-sum log P_F, mean over trajectories that end in known objects: for batches that come from data alone."""

    of_data = True

    def __post_init__(self):
        super().__post_init__()
        if self.residual_loss != "squared":
            raise TwinaxError(
                f"residual_loss is {self.residual_loss}, but maximum_likelihood has no residual that it could change; "
                "leave it at squared"
            )

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return -s.mean(ops.sum(s.log_pf, 0)), Terms()
