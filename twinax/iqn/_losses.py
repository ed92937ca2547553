"""Losses of distributional Q-learning as pure functions: one value for each row, so that a caller can weigh rows.

A prediction is the output of a network for the actions that were taken, (rows, quantiles) or (rows, atoms).
Discounts are those of the whole step, gamma^n (1 - terminated).
"""

from __future__ import annotations

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array, Float, Int

REDUCTIONS = ("mean", "sum")


def quantile_huber(
    predicted: Float[Array, "rows n"],
    target: Float[Array, "rows m"],
    taus: Float[Array, "rows n"],
    kappa: float = 1.0,
    reduction: str = "mean",
) -> Float[Array, " rows"]:
    """|tau_i - 1(d_ij < 0)| huber_kappa(d_ij) / kappa with d_ij = target_j - predicted_i, mean over j.

    Over the predicted quantiles i: their "mean", or their "sum" as in the papers on QR-DQN and IQN.

    >>> import numpy as np
    >>> quantile_huber(np.array([[0.0]]), np.array([[2.0, -0.5]]), np.array([[0.9]])).round(5).tolist()
    [0.68125]
    """
    if not 0 < kappa < float("inf"):
        raise TwinaxError(f"the kappa of the quantile Huber loss is {kappa}; it must be above 0 and finite")
    if reduction not in REDUCTIONS:
        raise UnknownName("reduction", reduction, REDUCTIONS)
    error = target[:, None, :] - predicted[:, :, None]
    # The weight is a choice of side, not a function to be differentiated.
    weight = ops.stop_gradient(ops.abs(ops.cast(taus, error)[:, :, None] - ops.cast(error < 0, error)))
    each = ops.mean(weight * ops.huber(error, kappa), 2) / kappa
    return ops.mean(each, 1) if reduction == "mean" else ops.sum(each, 1)


def priorities(predicted: Float[Array, "rows n"], target: Float[Array, "rows m"]) -> Float[Array, " rows"]:
    """Mean over i and j of |target_j - predicted_i|, without gradient: how much a row has left to teach.

    For atoms the loss itself serves.
    """
    error = ops.stop_gradient(target)[:, None, :] - ops.stop_gradient(predicted)[:, :, None]
    return ops.mean(ops.abs(error), (1, 2))


def of_actions(values: Float[Array, "rows n actions"], actions: Int[Array, " rows"]) -> Float[Array, "rows n"]:
    """The quantiles or atoms of one action for each row."""
    return ops.take_along(values, ops.broadcast(actions[:, None], values.shape[:2]))


def greedy(values: Float[Array, "rows n actions"]) -> Int[Array, " rows"]:
    """The action (int32) whose mean over quantiles is largest; the first of equals."""
    return ops.argmax(ops.mean(values, 1))


def double_q_target(
    online_next: Float[Array, "rows n actions"],
    target_next: Float[Array, "rows m actions"],
    rewards: Float[Array, " rows"],
    discounts: Float[Array, " rows"],
) -> Float[Array, "rows m"]:
    """r + discount * target_next[a*] with a* = greedy(online_next), without gradient."""
    following = of_actions(target_next, greedy(online_next))
    return ops.stop_gradient(rewards[:, None] + discounts[:, None] * following)


def categorical_cross_entropy(
    log_probs: Float[Array, "rows atoms"], target_probs: Float[Array, "rows atoms"]
) -> Float[Array, " rows"]:
    """-sum over atoms of p_target log p."""
    return -ops.sum(target_probs * log_probs, 1)


def project_categorical(
    probs: Float[Array, "rows atoms"],
    rewards: Float[Array, " rows"],
    discounts: Float[Array, " rows"],
    support: Float[Array, " atoms"],
) -> Float[Array, "rows atoms"]:
    """The distribution of r + discount * z put back on the support, without gradient (C51).

    A moved atom at position b, counted in steps of the support and held within its ends, gives max(0, 1 - |b - j|)
    of its probability to atom j. The support is evenly spaced.
    """
    atoms = support.shape[0]
    step = (support[-1] - support[0]) / (atoms - 1)
    moved = rewards[:, None] + discounts[:, None] * support
    position = ops.clip((moved - support[0]) / step, 0.0, float(atoms - 1))
    # Whole numbers as atoms: the two shares of one atom add up to 1 whatever the rounding of the support.
    share = ops.relu(1 - ops.abs(position[:, :, None] - ops.cast(ops.arange(atoms, position), position)))
    return ops.stop_gradient(ops.sum(probs[:, :, None] * share, 1))
