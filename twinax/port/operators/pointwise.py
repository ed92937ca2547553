"""Elementwise operators. Gradients at kinks and ties are PyTorch's, as in `twinax.ops`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from twinax import ops
from twinax.port._table import operator


@operator("aten.add.Tensor", "aten.add.Scalar", promote=True)
def add(x, y, alpha=1):
    return x + alpha * y


@operator("aten.sub.Tensor", "aten.sub.Scalar", promote=True)
def sub(x, y, alpha=1):
    return x - alpha * y


@operator("aten.mul.Tensor", "aten.mul.Scalar", promote=True)
def mul(x, y):
    return x * y


@operator("aten.tanh.default", promote=True)
def tanh(x):
    return jnp.tanh(x)


@operator("aten.relu.default", promote=True)
def relu(x):
    return jax.nn.relu(x)


@operator("aten.abs.default", promote=True)
def absolute(x):
    return ops.abs(x)


@operator("twinax.stop_gradient.default", "aten.detach.default")
def stop_gradient(x):
    return jax.lax.stop_gradient(x)
