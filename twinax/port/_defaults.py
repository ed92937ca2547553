"""What Flax, Equinox, Optax and JAX do unless they are told otherwise. Tests read it in the libraries themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Default:
    """One setting that somebody who writes the agent again would get differently."""

    where: str
    """Layers by their names, the optimizer, or a line of code."""
    setting: str
    here: Any
    """What it is in PyTorch."""
    library: str
    """Which library does otherwise."""
    default: Any
    """What it does unless it is told otherwise."""
    effect: str
    instead: str
    """What to write there."""


LINEN, NNX, EQUINOX, OPTAX, JAX = "flax.linen", "flax.nnx", "equinox.nn", "optax", "jax"
FLAX = (LINEN, NNX)

DEFAULTS: dict[str, Any] = {
    "flax.linen.LayerNorm.epsilon": 1e-6,
    "flax.nnx.LayerNorm.epsilon": 1e-6,
    "equinox.nn.LayerNorm.eps": 1e-5,
    "flax.linen.RMSNorm.epsilon": 1e-6,
    "flax.nnx.RMSNorm.epsilon": 1e-6,
    "equinox.nn.RMSNorm.eps": 1e-5,
    "flax.linen.GroupNorm.epsilon": 1e-6,
    "flax.nnx.GroupNorm.epsilon": 1e-6,
    "equinox.nn.GroupNorm.eps": 1e-5,
    "flax.linen.BatchNorm.epsilon": 1e-5,
    "flax.nnx.BatchNorm.epsilon": 1e-5,
    "equinox.nn.BatchNorm.eps": 1e-5,
    "flax.linen.LayerNorm.use_fast_variance": True,
    "flax.nnx.LayerNorm.use_fast_variance": True,
    "flax.linen.GroupNorm.use_fast_variance": True,
    "flax.nnx.GroupNorm.use_fast_variance": True,
    "flax.linen.BatchNorm.use_fast_variance": True,
    "flax.nnx.BatchNorm.use_fast_variance": True,
    "flax.linen.BatchNorm.momentum": 0.99,
    "flax.nnx.BatchNorm.momentum": 0.99,
    "equinox.nn.BatchNorm.momentum": 0.99,
    "flax.linen.Conv.padding": "SAME",
    "flax.nnx.Conv.padding": "SAME",
    "flax.linen.ConvTranspose.padding": "SAME",
    "flax.nnx.ConvTranspose.padding": "SAME",
    "flax.linen.ConvTranspose.transpose_kernel": False,
    "flax.nnx.ConvTranspose.transpose_kernel": False,
    "flax.linen.MultiHeadDotProductAttention.broadcast_dropout": True,
    "flax.nnx.MultiHeadAttention.broadcast_dropout": True,
    "equinox.nn.MultiheadAttention.use_query_bias": False,
    "equinox.nn.MultiheadAttention.use_output_bias": False,
    "jax.nn.gelu.approximate": True,
    "jax.numpy.var.ddof": 0,
    "jax.numpy.std.ddof": 0,
    "optax.adam.b1": 0.9,
    "optax.adam.b2": 0.999,
    "optax.adam.eps": 1e-8,
    "optax.adamw.b1": 0.9,
    "optax.adamw.b2": 0.999,
    "optax.adamw.eps": 1e-8,
    "optax.adamw.weight_decay": 1e-4,
    "optax.rmsprop.decay": 0.9,
    "optax.rmsprop.eps": 1e-8,
    "optax.rmsprop.eps_in_sqrt": True,
    "optax.adagrad.eps": 1e-7,
    "optax.adagrad.initial_accumulator_value": 0.1,
    "optax.huber_loss.delta": 1.0,
}
"""By the name of the layer or function and of its argument."""
