"""The objectives, as pure functions of log-probabilities: `loss, terms = objective(scores)`.

Losses are plain mean squares (no factor 1/2) unless they are given another function of a residual. The parts of the
terms add up to the loss and can be differentiated on their own; parity compares each.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet._residuals import Residual, residual
from twinax.gflownet._scores import Scores
from twinax.problem import Terms
from twinax.registry import Registry
from twinax.types import Array, Float


def trajectory_balance(s: Scores, loss: Residual = ops.square) -> tuple[Array, Terms]:
    """(log Z + sum log P_F - log R - sum log P_B)^2, mean over trajectories."""
    residual = s.log_z + ops.sum(s.log_pf - s.log_pb, 0) - s.log_reward
    return s.mean(loss(residual)), Terms()


def detailed_balance(s: Scores, loss: Residual = ops.square, terminal_weight: float = 1.0) -> tuple[Array, Terms]:
    """(log F(s) + log P_F - log F(s') - log P_B)^2 with F(x) = R(x) at the end, mean over transitions.

    The flow of the next state is that of the target networks, where there are some.
    """
    residual = s.log_flow + s.log_pf - next_log_flow(s) - s.log_pb
    return mean_by_end(loss(residual), s, terminal_weight)


def forward_looking(s: Scores, loss: Residual = ops.square) -> tuple[Array, Terms]:
    """Detailed balance of F(s) = F~(s) exp(energy(s)), where F~ is learned and F(x) = R(x) at the end."""

    def whole(s: Scores) -> Scores:
        log_flow = ops.where(s.valid, s.log_flow + s.state_log_energy, 0.0)
        return dataclasses.replace(s, log_flow=log_flow, target=None)

    total = whole(s)
    target = None if s.target is None else whole(s.target)
    return detailed_balance(dataclasses.replace(total, target=target), loss)


def modified_detailed_balance(s: Scores, loss: Residual = ops.square) -> tuple[Array, Terms]:
    """Detailed balance with F(s) = R(s) / P_F(stop | s): no flow is learned. Every state can stop.

    Mean over the transitions that are not a stop.
    """
    log_flow, later = (x.state_log_reward - x.log_pf_stop for x in (s, s.target or s))
    following = ops.concat([later[1:], later[:1]])
    residual = log_flow + s.log_pf - following - s.log_pb
    return s.mean(loss(residual), s.valid & ~s.terminal), Terms()


def subtrajectory_balance(
    s: Scores, decay: float = 0.9, normalise: str = "batch", loss: Residual = ops.square
) -> tuple[Array, Terms]:
    """Balance of every piece i < j of a trajectory, weighted by decay^(j - i).

    residual(i, j) = log F_i - log F_j + sum over i <= t < j of (log P_F - log P_B), all pairs from one running
    sum. Weights normalised over the batch: decay -> 0 is detailed balance; decay -> infinity keeps the longest pieces
    only, the longest whole trajectories of the batch. Normalised over each trajectory, then averaged: all trajectories
    count alike, and decay -> infinity is trajectory balance of all of them.
    """
    times = s.valid.shape[0]
    length = ops.sum(ops.cast(s.valid, "int32"), 0)
    end = ops.arange(times + 1, length)[:, None]
    # potential_t = log F_t minus what the policy gained up to t, with F = R at the end
    gained = ops.cumsum(s.log_pf - s.log_pb)
    start = ops.zeros((1, s.valid.shape[1]), s.log_pf)
    log_flow = ops.where(end == length[None], s.log_reward[None], ops.concat([s.log_flow, start]))
    potential = log_flow - ops.concat([start, gained])
    residual = potential[:, None] - potential[None]
    piece = ops.arange(times + 1, length)[None] - ops.arange(times + 1, length)[:, None]
    inside = (piece[..., None] > 0) & (end <= length[None])[None]
    # The largest weight in use is 1, whatever the decay: of the batch, or of each trajectory.
    longest = length if normalise == "trajectory" else ops.max(length)
    exponent = math.log(decay) * ops.cast(piece[..., None] - (longest if decay > 1 else 1), s.log_pf)
    weight = ops.where(inside, ops.exp(ops.where(exponent < 0, exponent, 0.0)), 0.0)
    # Pieces that are none have residuals of their own; no function may blow these up.
    residual = ops.where(inside, residual, 0.0)
    sums, weights = ops.sum(weight * loss(residual), (0, 1)), ops.sum(weight, (0, 1))
    whole = s.mean(sums / weights) if normalise == "trajectory" else s.mean(sums, weights)
    return whole, Terms()


def flow_matching(s: Scores, normalise: str = "batch", loss: Residual = ops.square) -> tuple[Array, Terms]:
    """(log inflow - log outflow)^2 of every visited state but the source, and (log inflow - log R)^2 of the end.

    Logits are log edge flows. Mean over all those states of the batch; or over those of each trajectory, then over
    trajectories; or `separate`: the mean over the ends plus the mean over all others.
    """
    inner = ops.concat([s.valid[:1] & False, s.valid[1:]])
    residual = ops.where(inner, s.log_inflow - s.log_outflow, 0.0)
    end = ops.where(s.terminal, s.log_final_flow - s.log_reward[None], 0.0)
    others = ops.sum(ops.cast(inner, residual), 0)
    sums = ops.sum(loss(residual), 0), ops.sum(loss(end), 0)
    if normalise == "trajectory":
        of_others, of_ends = (s.mean(x / (others + 1)) for x in sums)
    else:
        numbers = (others + 1,) * 2 if normalise == "batch" else (others, None)
        of_others, of_ends = (s.mean(x, number) for x, number in zip(sums, numbers, strict=True))
    return of_others + of_ends, Terms({"terminal_loss": of_ends, "inner_loss": of_others})


def log_partition_variance(s: Scores, loss: Residual = ops.square) -> tuple[Array, Terms]:
    """Variance over the batch of log R + sum log P_B - sum log P_F, each an estimate of log Z (VarGrad)."""
    estimate = log_z_estimates(s)
    return s.mean(loss(ops.stop_gradient(s.mean(estimate)) - estimate)), Terms()


def log_z_estimates(s: Scores) -> Float[Array, " batch"]:
    """log R + sum log P_B - sum log P_F of each trajectory; its mean is the ELBO under P_F, the EUBO under P_B."""
    return s.log_reward + ops.sum(s.log_pb - s.log_pf, 0)


def next_log_flow(s: Scores) -> Float[Array, "time batch"]:
    """log F of the state that each action leads to, R at the end; that of the target networks, where there are some."""
    later = (s.target or s).log_flow
    following = ops.concat([later[1:], later[:1]])
    return ops.where(s.terminal, s.log_reward[None], following)


def mean_by_end(losses: Float[Array, "time batch"], s: Scores, weight: float = 1.0) -> tuple[Array, Terms]:
    """The mean over transitions; its parts are what the last transitions, each with a weight, and all others
    contribute to it."""
    ends, others = (ops.where(mask, losses, 0.0) for mask in (s.terminal, s.valid & ~s.terminal))
    parts = {"terminal_loss": weight * s.mean(ends, s.valid), "inner_loss": s.mean(others, s.valid)}
    if weight != 1.0:
        return parts["terminal_loss"] + parts["inner_loss"], Terms(parts)
    return s.mean(losses, s.valid), Terms(parts)


@dataclass(frozen=True)
class Objective(ABC):
    """A loss with its options, as a frozen dataclass: what it needs of the scores, and where it keeps log Z.

    One of your own is a subclass, given to `problem` as it is:

    >>> @dataclass(frozen=True)
    ... class Weighted(Objective):
    ...     weight: float = 2.0
    ...     needs = frozenset({"log_z"})
    ...     def __call__(self, s):
    ...         return self.weight * ops.mean(ops.square(log_z_estimates(s) - s.log_z)), Terms()
    ...     def log_z(self, s):
    ...         return s.log_z
    >>> Weighted(weight=3.0)
    Weighted(residual_loss='squared', linex_slope=1.0, weight=3.0)
    """

    _made_by = "such as tx.gflownet.objectives.SubtrajectoryBalance(decay=0.5), or its name"
    residual_loss: str = field(default="squared", kw_only=True)
    """What is made of each residual: squared, half (of the square), huber, shifted_cosh or linex."""
    linex_slope: float = field(default=1.0, kw_only=True)
    """The number a in (exp(a t) - a t - 1) / a^2, which residual_loss=linex makes of a residual t: above 0, too much
    weighs more than too little."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Optional fields of `Scores` that it reads."""
    prior: ClassVar[bool] = False
    """Whether it reads the scores of the networks that training began with, as `Scores.prior`."""
    reads_target: ClassVar[bool] = False
    """Whether it reads the scores of the target networks, as `Scores.target`, where there are some."""
    of_data: ClassVar[bool] = False
    """Whether it imitates the objects that it is shown, which then must not be only its own fresh ones."""
    rewards_edges: ClassVar[bool] = False
    """Whether it balances edges by `log_flow` and `log_pb`, so that rewards of edges can enter."""
    least_batch: ClassVar[int] = 1
    """Trajectories without which the loss is 0 whatever the policy."""

    def __post_init__(self):
        residual(self.residual_loss, self.linex_slope)  # unknown names fail here

    @abstractmethod
    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        """The loss and its terms."""

    @property
    def of_residual(self) -> Residual:
        """The function that `residual_loss` names."""
        return residual(self.residual_loss, self.linex_slope)

    def log_z(self, s: Scores) -> Float[Array, ""]:
        """Its estimate of log Z; by default the mean over trajectories of log R + sum log P_B - sum log P_F."""
        return s.mean(log_z_estimates(s))

    def log_target(self, log_reward: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
        """To what the learned distribution over objects is to be in proportion, as logarithms: R, unless an objective
        that reads a prior says otherwise. `log_prior` is what the prior gives to each object."""
        return log_reward

    @property
    def name(self) -> str:
        """Its name in settings and reports."""
        own = (name for name, kind in KINDS.items() if kind is type(self) or kind == _code(type(self)))
        return next(own, type(self).__name__)


@dataclass(frozen=True)
class TrajectoryBalance(Objective):
    """See `trajectory_balance`."""

    needs = frozenset({"log_z"})

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return trajectory_balance(s, self.of_residual)

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return s.log_z


@checked
@dataclass(frozen=True)
class DetailedBalance(Objective):
    """See `detailed_balance`."""

    terminal_weight: float = field(default=1.0, kw_only=True)
    """Weight of a trajectory's last transition, at which the reward is; every other has 1."""

    needs = frozenset({"log_flow"})
    reads_target = True
    rewards_edges = True

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return detailed_balance(s, self.of_residual, self.terminal_weight)

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.terminal_weight < math.inf:
            raise TwinaxError(f"terminal_weight is {self.terminal_weight}; it must be finite and not negative")

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return s.log_flow[0, 0]


@checked
@dataclass(frozen=True)
class SubtrajectoryBalance(Objective):
    """See `subtrajectory_balance`."""

    decay: float = 0.9
    """Weight of a piece of a trajectory per unit of its length."""
    normalise: str = "batch"
    """Set over which the weights of pieces are normalised: batch (all of a batch) or trajectory (those of each)."""

    needs = frozenset({"log_flow"})
    rewards_edges = True

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.decay < math.inf:
            raise TwinaxError(f"the decay of subtrajectory balance is {self.decay}; it must be above 0 and finite")
        _known_mean(self, ("batch", "trajectory"))

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return subtrajectory_balance(s, self.decay, self.normalise, self.of_residual)

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return s.log_flow[0, 0]


@checked
@dataclass(frozen=True)
class FlowMatching(Objective):
    """See `flow_matching`."""

    normalise: str = "batch"
    """Over what the mean is taken: batch, each trajectory, or separate (ends, and all other states)."""

    needs = frozenset({"log_inflow"})

    def __post_init__(self):
        super().__post_init__()
        _known_mean(self, ("batch", "trajectory", "separate"))

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return flow_matching(s, self.normalise, self.of_residual)

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return s.log_outflow[0, 0]


@dataclass(frozen=True)
class ForwardLooking(Objective):
    """See `forward_looking`."""

    needs = frozenset({"log_flow", "state_log_energy"})
    reads_target = True

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return forward_looking(s, self.of_residual)

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return s.log_flow[0, 0] + s.state_log_energy[0, 0]


@dataclass(frozen=True)
class ModifiedDetailedBalance(Objective):
    """See `modified_detailed_balance`."""

    needs = frozenset({"state_log_reward", "log_pf_stop"})
    reads_target = True

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return modified_detailed_balance(s, self.of_residual)


@dataclass(frozen=True)
class LogPartitionVariance(Objective):
    """See `log_partition_variance`."""

    least_batch = 2

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        return log_partition_variance(s, self.of_residual)


ALIASES = {
    "tb": "trajectory_balance",
    "trajectorybalance": "trajectory_balance",
    "db": "detailed_balance",
    "detailedbalance": "detailed_balance",
    "subtb": "subtrajectory_balance",
    "fm": "flow_matching",
    "flowmatching": "flow_matching",
    "fl": "forward_looking",
    "fldb": "forward_looking",
    "forwardlooking": "forward_looking",
    "mdb": "modified_detailed_balance",
    "vargrad": "log_partition_variance",
    "lpv": "log_partition_variance",
    "sdqn": "soft_dqn",
    "rtb": "relative_trajectory_balance",
    "mle": "maximum_likelihood",
}
KINDS: dict[str, type[Objective] | str] = {
    "trajectory_balance": TrajectoryBalance,
    "detailed_balance": DetailedBalance,
    "subtrajectory_balance": SubtrajectoryBalance,
    "flow_matching": FlowMatching,
    "forward_looking": ForwardLooking,
    "modified_detailed_balance": ModifiedDetailedBalance,
    "log_partition_variance": LogPartitionVariance,
    "soft_dqn": "twinax.gflownet._soft_dqn:SoftDQN",
    "relative_trajectory_balance": "twinax.gflownet._prior_and_data:RelativeTrajectoryBalance",
    "maximum_likelihood": "twinax.gflownet._prior_and_data:MaximumLikelihood",
}
OBJECTIVES = Registry("objective", KINDS, ALIASES)
"""Objectives by name."""


def objective(name: str | Objective) -> Objective:
    """An objective with its default options by its name, alias or `package.module:Name`, or one as it is.

    >>> objective("subtb")
    SubtrajectoryBalance(residual_loss='squared', linex_slope=1.0, decay=0.9, normalise='batch')
    """
    if isinstance(name, str):
        return OBJECTIVES.find(name)()
    unknown = sorted(set(name.needs) - {entry.name for entry in dataclasses.fields(Scores)})  # type: ignore[arg-type]
    if unknown:
        raise UnknownName("field of Scores", unknown[0], [entry.name for entry in dataclasses.fields(Scores)])  # type: ignore[arg-type]
    return name


def _code(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _known_mean(objective: Any, known: tuple[str, ...]) -> None:
    if objective.normalise not in known:
        raise UnknownName(f"way to normalise {objective.name}", objective.normalise, known)
