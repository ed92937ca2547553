"""Linear layers with PyTorch's layout and initial distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.errors import UnknownName
from twinax.networks._observations import KHot
from twinax.types import Array

ACTIVATIONS: dict[str, Callable] = {
    "relu": ops.relu,
    "leaky_relu": ops.leaky_relu,
    "tanh": ops.tanh,
    "gelu": ops.gelu,
    "gelu_tanh": partial(ops.gelu, approximate=True),
    "elu": ops.elu,
    "silu": lambda x: x * ops.sigmoid(x),
}


def activation(name: str) -> Callable:
    """An activation function by name; unknown names list the known ones."""
    if name not in ACTIVATIONS:
        raise UnknownName("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


def _silu_slope(x):
    s = ops.sigmoid(x)
    return s * (1 + x * (1 - s))


SLOPES: dict[str, Callable] = {
    "relu": lambda x: ops.cast(x > 0, x),
    "tanh": lambda x: 1 - ops.square(ops.tanh(x)),
    "elu": lambda x: ops.where(x > 0, ops.zeros(x.shape, x) + 1, ops.exp(ops.minimum(x, ops.zeros((), x)))),
    "silu": _silu_slope,
}


def activation_slope(name: str) -> Callable:
    """The derivative of an activation function, itself a differentiable function."""
    if name not in SLOPES:
        raise UnknownName("activation with a derivative", name, SLOPES)
    return SLOPES[name]


class Linear(eqx.Module):
    """x W^T + b with `weight` of shape out x in."""

    weight: Array
    bias: Array | None

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, outputs: int, bias: bool = True) -> Linear:
        """PyTorch's default: weight and bias uniform on +-1/sqrt(inputs)."""
        bound = 1.0 / np.sqrt(inputs)

        def uniform(*shape):
            return rng.uniform(-bound, bound, shape).astype(np.float32)

        return cls(uniform(outputs, inputs), uniform(outputs) if bias else None)

    @classmethod
    def xavier(cls, rng: np.random.Generator, inputs: int, outputs: int, scale: float = 1.0) -> Linear:
        """Flax's usual choice: weight uniform on +-sqrt(6 scale / (inputs + outputs)), bias zero."""
        bound = np.sqrt(6.0 * scale / (inputs + outputs))
        weight = rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32)
        return cls(weight, np.zeros(outputs, np.float32))

    def __call__(self, x: Any) -> Array:
        if isinstance(x, KHot):
            return ops.khot_linear(x.indices, self.weight, self.bias)
        return ops.linear(_in_precision_of(self.weight, x), self.weight, self.bias)


def _in_precision_of(weight: Array, x: Array) -> Array:
    # Observations have a dtype of their own; the weights decide in which precision a run is.
    return x if x.dtype == weight.dtype else ops.cast(x, weight)


class ActingLinear(eqx.Module):
    """A `Linear` laid out for many small batches without gradients: the weight turned round, in x out."""

    table: Array
    bias: Array | None

    @property
    def weight(self) -> Array:
        """As a `Linear` has it."""
        return self.table.T

    def __call__(self, x: Any) -> Array:
        sparse = isinstance(x, KHot)
        y = ops.khot_rows(x.indices, self.table) if sparse else _in_precision_of(self.table, x) @ self.table
        return y if self.bias is None else y + self.bias


def acting(layers: Sequence[Linear]) -> tuple[Linear | ActingLinear, ...]:
    """The same layers, laid out for a rollout.

    Looking up rows needs them side by side; XLA's small products are also half as dear in this layout, while
    PyTorch's are not, so there only the first layer changes.
    """
    every = ops.framework(layers[0].weight) == "jax"

    def turned(layer: Linear) -> ActingLinear:
        return ActingLinear(ops.transpose(layer.weight), layer.bias)

    return tuple(turned(layer) if every or i == 0 else layer for i, layer in enumerate(layers))


def laid_out(network: Any) -> Any:
    """A network with its `Linear` layers laid out for a rollout in JAX, wherever they stand; elsewhere as it is."""

    def is_layer(x: Any) -> bool:
        return isinstance(x, Linear)

    def turned(x: Any) -> Any:
        plain = is_layer(x) and x.weight.ndim == 2 and ops.framework(x.weight) == "jax"
        return ActingLinear(ops.transpose(x.weight), x.bias) if plain else x

    return jtu.tree_map(turned, network, is_leaf=is_layer)
