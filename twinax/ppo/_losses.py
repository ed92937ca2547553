"""Proximal policy optimisation's losses, each for a batch of rows."""

from __future__ import annotations

from twinax import ops
from twinax.types import Array, Float


def policy_loss(
    log_ratio: Float[Array, " rows"], advantage: Float[Array, " rows"], clip: float
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """-min(ratio A, clip(ratio, 1 - eps, 1 + eps) A), its mean; with the estimated divergence and the clipped share."""
    ratio = ops.exp(log_ratio)
    gain = ops.minimum(ratio * advantage, ops.clip(ratio, 1 - clip, 1 + clip) * advantage)
    ratio, log_ratio = ops.stop_gradient(ratio), ops.stop_gradient(log_ratio)
    clipped = ops.cast(ops.abs(ratio - 1.0) > clip, ratio)
    return -ops.mean(gain), {"approx_kl": ops.mean(ratio - 1.0 - log_ratio), "clip_fraction": ops.mean(clipped)}


def value_loss(
    value: Float[Array, " rows"], old: Float[Array, " rows"], target: Float[Array, " rows"], clip: float
) -> Float[Array, ""]:
    """Half the mean squared error; with a clip, the larger of it and that of a value within reach of the old one."""
    error = ops.square(value - target)
    if clip:
        near = old + ops.clip(value - old, -clip, clip)
        error = ops.maximum(error, ops.square(near - target))
    return 0.5 * ops.mean(error)


DEVIATIONS = {"sample": 1, "population": 0}
"""By what a deviation is named, to what its sum of squares is divided by less than the number of rows."""


def standardised(x: Float[Array, " rows"], deviation: str = "sample", eps: float = 1e-8) -> Float[Array, " rows"]:
    """Mean 0 and standard deviation 1, over all shards of a batch; of the sample (N - 1) or the population (N)."""
    mean = ops.across_shards(ops.mean(x))
    size = x.shape[0] * ops.num_shards()
    variance = ops.across_shards(ops.mean(ops.square(x - mean))) * (size / max(size - DEVIATIONS[deviation], 1))
    return (x - mean) / (ops.sqrt(variance) + eps)
