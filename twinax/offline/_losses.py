"""What the offline agents' losses are made of, each once: pure functions of arrays.

Ensembles stand on a leading axis, (members, rows). A value is constant where an agent passes it through a frozen
network or `stop_gradient`; nothing here decides that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from twinax import ops
from twinax.types import Array, Float


def behaviour_cloning(distribution: Any, actions: Any) -> Float[Array, ""]:
    """-E log pi(a | s)."""
    return -ops.mean(distribution.log_prob(actions))


def expectile(difference: Any, k: float, sign: Any = None) -> Array:
    """|k - 1[sign < 0]| difference^2, elementwise; `sign` is the difference itself unless given."""
    above = ops.cast((difference if sign is None else sign) >= 0, difference)
    return ((1 - k) + (2 * k - 1) * above) * difference * difference


def aggregate(members: Float[Array, "members ..."], how: str) -> Array:
    """An ensemble's values as one: their min or mean."""
    return ops.min(members, 0) if how == "min" else ops.mean(members, 0)


def scaled(q: Any, normalise: bool) -> Float[Array, ""]:
    """-E q, perhaps over the constant E |q|."""
    loss = -ops.mean(q)
    return loss * ops.stop_gradient(1 / ops.mean(ops.abs(q))) if normalise else loss


def regression(predicted: Any, wanted: Any) -> Float[Array, ""]:
    """Mean squared error over everything."""
    difference = predicted - wanted
    return ops.mean(difference * difference)


def by_member(errors: Float[Array, "members rows"]) -> Float[Array, ""]:
    """Summed over members, mean over rows."""
    return ops.mean(ops.sum(errors, 0))


# Implicit Q-learning, with or without a latent


def value_loss(q: Float[Array, "members rows"], v: Float[Array, " rows"], k: float) -> Float[Array, ""]:
    """V(s) towards the k-expectile of min Q(s, a)."""
    return ops.mean(expectile(ops.min(q, 0) - v, k))


def td_loss(q: Float[Array, "members rows"], target: Float[Array, " rows"]) -> Float[Array, ""]:
    """(Q(s, a) - y)^2, summed over members."""
    difference = q - target[None]
    return by_member(difference * difference)


def advantage_weights(advantage: Float[Array, " rows"], alpha: float) -> Float[Array, " rows"]:
    """min(exp(alpha advantage), 100), constant."""
    weights = ops.exp(alpha * advantage)
    return ops.stop_gradient(ops.minimum(weights, ops.full((), 100.0, weights)))


def goal_value_loss(
    v: Float[Array, "members rows"],
    now: Float[Array, "members rows"],
    following: Float[Array, "members rows"],
    rewards: Float[Array, " rows"],
    masks: Float[Array, " rows"],
    discount: float,
    k: float,
) -> Float[Array, ""]:
    """V(s, g) towards an expectile of r + discount V'(s', g) without actions (HILP, GCIVL, HIQL).

    `now` and `following` are the target's values at s and s'. The sign of one advantage, of the smaller next value
    against the mean of now, decides the weight for all members.
    """
    advantage = rewards + discount * masks * ops.min(following, 0) - ops.mean(now, 0)
    wanted = ops.stop_gradient(rewards + discount * masks * following)
    return by_member(expectile(wanted - v, k, sign=advantage[None]))


# ReBRAC


def noisy_action(mode: Any, noise: Any, scale: float, limit: float) -> Array:
    """The mode with clipped normal noise, within the box."""
    return ops.clip(mode + ops.clip(scale * noise, -limit, limit), -1, 1)


def squared_distance(a: Any, b: Any) -> Array:
    """Summed over the last axis."""
    return ops.sum((a - b) * (a - b), -1)


# Contrast: which goal follows which state


def row_entropy(logits: Float[Array, "members rows goals"]) -> Float[Array, "members rows"]:
    """-log softmax over goals of the goal on the diagonal."""
    return -ops.einsum("eii->ei", ops.log_softmax(logits))


def info_nce(logits: Float[Array, "members rows goals"], symmetric: bool, penalty: float = 0.01) -> Float[Array, ""]:
    """Rows against goals with a penalty on the squared log partition, or rows and columns without one."""
    if symmetric:
        return ops.mean(row_entropy(logits) + row_entropy(ops.swap_last(logits)))
    size = ops.logsumexp(logits, -1)
    return ops.mean(row_entropy(logits) + penalty * size * size)


def density_ratio(logits: Float[Array, "rows goals"]) -> Float[Array, " rows"]:
    """How much likelier row i's own goal is after it than after the goals of the batch at large."""
    return ops.exp(ops.einsum("ii->i", logits) - ops.logsumexp(logits, -1) + math.log(logits.shape[0]))


def off_diagonal(square: Float[Array, "*members rows rows"]) -> Array:
    """The same with zeros on the diagonal."""
    n = square.shape[-1]
    row = ops.arange(n, square)
    return ops.where(row[:, None] == row[None], 0.0, square)


# Latents on a sphere, and flows


def on_sphere(z: Any) -> Array:
    """Rows scaled to the norm sqrt(width)."""
    return math.sqrt(z.shape[-1]) * z / ops.sqrt(ops.sum(z * z, -1))[..., None]


def standard_normal_kl(mean: Any, log_std: Any) -> Float[Array, ""]:
    """KL(N(mean, std^2) || N(0, 1)), mean over rows and coordinates."""
    return -0.5 * ops.mean(1 + 2 * log_std - mean * mean - ops.exp(2 * log_std))


def euler(field: Callable[[Any, float], Any], noise: Any, steps: int, low: Any = None, high: Any = None) -> Array:
    """Follow a velocity field from time 0 to 1, within bounds if there are any."""
    x = noise
    for i in range(steps):
        x = x + field(x, i / steps) / steps
        if low is not None:
            x = ops.minimum(ops.maximum(x, low), high)
    return x
