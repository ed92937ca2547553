"""The objectives, as pure functions of log-probabilities: `loss, terms = objective(scores)`.

All losses are plain mean squares (no factor 1/2). The parts of the terms add up to the loss and can be differentiated
on their own; parity compares each.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet._scores import Scores
from twinax.problem import Terms
from twinax.types import Array, Float


def trajectory_balance(s: Scores) -> tuple[Array, Terms]:
    """(log Z + sum log P_F - log R - sum log P_B)^2, mean over trajectories."""
    residual = s.log_z + ops.sum(s.log_pf - s.log_pb, 0) - s.log_reward
    return ops.mean(ops.square(residual)), Terms()


def detailed_balance(s: Scores) -> tuple[Array, Terms]:
    """(log F(s) + log P_F - log F(s') - log P_B)^2 with F(x) = R(x) at the end, mean over transitions."""
    residual = s.log_flow + s.log_pf - _next_log_flow(s) - s.log_pb
    return _mean_square_by_end(residual, s)


def forward_looking(s: Scores) -> tuple[Array, Terms]:
    """Detailed balance of F(s) = F~(s) R(s), where F~ is learned and F~(x) = 1 at the end."""
    total = Scores(
        s.log_pf, s.log_pb, s.log_reward, s.valid, log_flow=ops.where(s.valid, s.log_flow + s.state_log_reward, 0.0)
    )
    return detailed_balance(total)


def modified_detailed_balance(s: Scores) -> tuple[Array, Terms]:
    """Detailed balance with F(s) = R(s) / P_F(stop | s): no flow is learned. Every state can stop.

    Mean over the transitions that are not a stop.
    """
    log_flow = s.state_log_reward - s.log_pf_stop
    following = ops.concat([log_flow[1:], log_flow[:1]])
    residual = log_flow + s.log_pf - following - s.log_pb
    return ops.mean(ops.square(residual), mask=s.valid & ~s.terminal), Terms()


def subtrajectory_balance(s: Scores, decay: float = 0.9, normalise: str = "batch") -> tuple[Array, Terms]:
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
    squares, weights = ops.sum(weight * ops.square(residual), (0, 1)), ops.sum(weight, (0, 1))
    loss = ops.mean(squares / weights) if normalise == "trajectory" else ops.sum(squares) / ops.sum(weights)
    return loss, Terms()


def flow_matching(s: Scores, normalise: str = "batch") -> tuple[Array, Terms]:
    """(log inflow - log outflow)^2 of every visited state but the source, and (log inflow - log R)^2 of the end.

    Logits are log edge flows. Mean over all those states of the batch; or over those of each trajectory, then over
    trajectories; or `separate`: the mean over the ends plus the mean over all others.
    """
    inner = ops.concat([s.valid[:1] & False, s.valid[1:]])
    residual = ops.where(inner, s.log_inflow - s.log_outflow, 0.0)
    end = ops.where(s.terminal, s.log_final_flow - s.log_reward[None], 0.0)
    others, batch = ops.sum(ops.cast(inner, residual), 0), s.valid.shape[1]
    # By what the sum over a trajectory's other states and that over its end are divided
    divisors = {
        "batch": (ops.sum(others) + batch,) * 2,
        "trajectory": ((others + 1) * batch,) * 2,
        "separate": (ops.sum(others) + ops.cast(ops.sum(others) == 0, others), batch),
    }[normalise]
    of_others, of_ends = (
        ops.sum(ops.sum(ops.square(x), 0) / divisor) for x, divisor in zip((residual, end), divisors, strict=True)
    )
    return of_others + of_ends, Terms({"terminal_loss": of_ends, "inner_loss": of_others})


def log_partition_variance(s: Scores) -> tuple[Array, Terms]:
    """Variance over the batch of log R + sum log P_B - sum log P_F, each an estimate of log Z (VarGrad)."""
    estimate = log_z_estimates(s)
    return ops.mean(ops.square(estimate - ops.stop_gradient(ops.mean(estimate)))), Terms()


def log_z_estimates(s: Scores) -> Float[Array, " batch"]:
    """log R + sum log P_B - sum log P_F of each trajectory; its mean is the ELBO under P_F, the EUBO under P_B."""
    return s.log_reward + ops.sum(s.log_pb - s.log_pf, 0)


def _next_log_flow(s: Scores) -> Float[Array, "time batch"]:
    following = ops.concat([s.log_flow[1:], s.log_flow[:1]])
    return ops.where(s.terminal, s.log_reward[None], following)


def _mean_square_by_end(residual: Float[Array, "time batch"], s: Scores) -> tuple[Array, Terms]:
    """The mean over transitions; its parts are what the last transitions and all others contribute to it."""
    square = ops.square(residual)
    number = ops.sum(ops.cast(s.valid, square))
    ends, others = (ops.where(mask, square, 0.0) for mask in (s.terminal, s.valid & ~s.terminal))
    parts = {"terminal_loss": ops.sum(ends) / number, "inner_loss": ops.sum(others) / number}
    return ops.mean(square, mask=s.valid), Terms(parts)


@dataclass(frozen=True)
class Objective:
    """An objective and what it needs."""

    function: Callable[..., tuple[Array, Terms]]
    needs: frozenset[str]
    """Optional fields of `Scores`."""
    log_z: str
    """Where an estimate of log Z is read: log_z, log_flow, log_outflow, forward_looking or samples."""
    least_batch: int = 1
    """Trajectories without which the loss is 0 whatever the policy."""
    options: tuple[str, ...] = ()
    """Fields of the problem that the function takes."""
    normalise: tuple[str, ...] = ("batch",)
    """Over what its mean may be taken."""


OBJECTIVES: dict[str, Objective] = {
    "trajectory_balance": Objective(trajectory_balance, frozenset({"log_z"}), "log_z"),
    "detailed_balance": Objective(detailed_balance, frozenset({"log_flow"}), "log_flow"),
    "subtrajectory_balance": Objective(
        subtrajectory_balance,
        frozenset({"log_flow"}),
        "log_flow",
        options=("decay", "normalise"),
        normalise=("batch", "trajectory"),
    ),
    "flow_matching": Objective(
        flow_matching,
        frozenset({"log_inflow"}),
        "log_outflow",
        options=("normalise",),
        normalise=("batch", "trajectory", "separate"),
    ),
    "forward_looking": Objective(forward_looking, frozenset({"log_flow", "state_log_reward"}), "forward_looking"),
    "modified_detailed_balance": Objective(
        modified_detailed_balance, frozenset({"state_log_reward", "log_pf_stop"}), "samples"
    ),
    "log_partition_variance": Objective(log_partition_variance, frozenset(), "samples", least_batch=2),
}

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
}


def objective(name: str) -> Objective:
    """An objective by its name or alias; unknown names list the known ones."""
    known = OBJECTIVES.get(ALIASES.get(name, name))
    if known is None:
        raise UnknownName("objective", name, OBJECTIVES)
    return known


def register(
    name: str, function: Callable[..., tuple[Array, Terms]], needs: Iterable[str] = (), log_z: str = "samples"
):
    """Make an objective of one's own known by name; `needs` names the optional fields of `Scores` that it reads.

    >>> def mine(s):
    ...     return ops.mean(ops.square(log_z_estimates(s) - s.log_z)), Terms()
    >>> register("mine", mine, needs={"log_z"}, log_z="log_z")
    >>> objective("mine").needs
    frozenset({'log_z'})
    >>> _ = OBJECTIVES.pop("mine")
    """
    if name in OBJECTIVES or name in ALIASES:
        raise TwinaxError(f"an objective is called '{name}' already; choose another name")
    known = {entry.name for entry in dataclasses.fields(Scores)}  # type: ignore[arg-type]
    if unknown := sorted(set(needs) - known):
        raise UnknownName("field of Scores", unknown[0], known)
    if log_z not in (places := ("log_z", "log_flow", "log_outflow", "forward_looking", "samples")):
        raise UnknownName("place of log Z", log_z, places)
    OBJECTIVES[name] = Objective(function, frozenset(needs), log_z)


def check_options(name: str, decay: float, normalise: str) -> None:
    """Refuse options that are out of range, and those that an objective does not read."""
    entry = OBJECTIVES[name]
    if not 0 < decay < float("inf"):
        raise TwinaxError(f"the decay of subtrajectory balance is {decay}; it must be above 0 and finite")
    if decay != DECAY and "decay" not in entry.options:
        raise TwinaxError(f"decay={decay} is an option of subtrajectory_balance; {name} does not read it: leave it out")
    if normalise not in entry.normalise:
        if len(entry.normalise) > 1:
            raise UnknownName(f"way to normalise {name}", normalise, entry.normalise)
        able = " and ".join(other for other, its in OBJECTIVES.items() if normalise in its.normalise)
        raise TwinaxError(
            f"normalise={normalise} is no option of {name}, whose mean is over the batch"
            + (f"; {able} have it" if able else "")
        )


DECAY = 0.9
"""Decay of sub-trajectory balance where none is given."""
