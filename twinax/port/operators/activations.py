"""Activations, with PyTorch's gradients at their kinks."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from twinax.port._table import operator


@operator("aten.relu.default")
def relu(x):
    return jnp.where(x <= 0, 0, x)


@operator("aten.leaky_relu.default")
def leaky_relu(x, slope=0.01):
    return jnp.where(x > 0, x, x * slope)


@operator("aten._prelu_kernel.default", promote=True)
def prelu(x, slope):
    return jnp.where(x > 0, x, x * slope)


@operator("aten.rrelu_with_noise_functional.default")
def rrelu(x, noise, lower=0.125, upper=1 / 3, training=False, generator=None, *, draw=None):
    """In training the slope of each negative entry is drawn; the second result is what each was multiplied by."""
    if draw is None:
        return leaky_relu(x, (lower + upper) / 2), noise
    slope = jnp.where(x <= 0, lower + (upper - lower) * draw, 1.0)
    return x * slope, slope


@operator("aten.elu.default")
def elu(x, alpha=1, scale=1, input_scale=1):
    negative = jnp.expm1(jnp.where(x > 0, 0, x) * input_scale)
    return jnp.where(x > 0, x * scale, negative * (alpha * scale))


@operator("aten.gelu.default")
def gelu(x, *, approximate="none"):
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@operator("aten.hardtanh.default")
def hardtanh(x, low=-1, high=1):
    """At a bound the gradient is 0."""
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))


@operator("aten.softplus.default")
def softplus(x, beta=1, threshold=20):
    """The identity beyond a threshold."""
    scaled = x * beta
    linear = scaled > threshold
    return jnp.where(linear, x, jnp.log1p(jnp.exp(jnp.where(linear, 0, scaled))) / beta)


@operator("aten.mish.default")
def mish(x):
    return x * jnp.tanh(jax.nn.softplus(x))
