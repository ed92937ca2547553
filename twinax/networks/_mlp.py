"""Multi-layer perceptrons and ensembles of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import equinox as eqx
import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.errors import TwinaxError
from twinax.networks._layers import ActingLinear, Linear, activation, activation_slope
from twinax.networks._norms import LayerNorm
from twinax.networks._observations import flat
from twinax.types import Array

M = TypeVar("M", bound=eqx.Module)


FLAX_EPS = 1e-6
"""What Flax adds to the variance in a LayerNorm."""


class MLP(eqx.Module):
    """Linear layers with an activation between them; names as in PyTorch: `layers.0.weight`.

    It reads one array, or several side by side; `None` among them is left out.

    >>> net = MLP.init(np.random.default_rng(0), inputs=80, hidden=(256, 256), outputs=9)
    >>> net(np.zeros((16, 80), np.float32)).shape
    (16, 9)
    """

    layers: tuple[Linear | ActingLinear, ...]
    activation: str = eqx.field(static=True)
    norms: tuple[LayerNorm, ...] = ()
    """One after each activation, or none at all."""
    final: bool = eqx.field(static=True, default=False)
    """Whether the last layer is activated (and normed) as well."""

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, hidden: Sequence[int], outputs: int, act: str = "relu") -> MLP:
        """Weights from a NumPy generator, so that every engine starts from the same numbers."""
        sizes = (inputs, *hidden, outputs)
        bad = [n for n in sizes if n < 1]
        if bad:
            raise TwinaxError(f"an MLP has layer sizes {sizes}; every size must be at least 1")
        activation(act)  # unknown names fail here
        return cls(tuple(Linear.init(rng, a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)), act)

    @classmethod
    def xavier(
        cls,
        rng: np.random.Generator,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | None = None,
        norm: bool = True,
    ) -> MLP:
        """The usual choice of agents in Flax: `Linear.xavier`, GELU by its tanh form, and with `norm` a LayerNorm after
        each. Without `outputs` the last hidden layer is the output, activated.

        >>> MLP.xavier(np.random.default_rng(0), 3, (8, 8), 2)(np.zeros((5, 3), np.float32)).shape
        (5, 2)
        """
        sizes = [inputs, *hidden, *([] if outputs is None else [outputs])]
        layers = tuple(Linear.xavier(rng, a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        norms = tuple(LayerNorm.init(width, FLAX_EPS) for width in hidden) if norm else ()
        return cls(layers, "gelu_tanh", norms, outputs is None)

    def __call__(self, *parts: Any) -> Array:
        x = parts[0] if len(parts) == 1 else join_inputs(*parts)
        if not self.norms and not self.final:
            return perceptron(self.layers, self.activation, x)
        function = activation(self.activation)
        for layer, norm in zip_longest(self.layers if self.final else self.layers[:-1], self.norms):
            x = function(layer(x))
            x = x if norm is None else norm(x)
        return x if self.final else self.layers[-1](x)


def perceptron(layers: Sequence[Linear | ActingLinear], act: str, x: Any) -> Array:
    """Apply linear layers with an activation between them."""
    return layer_results(layers, act, x)[-1]


def layer_results(layers: Sequence[Linear | ActingLinear], act: str, x: Any, known: Any = None) -> tuple[Array, ...]:
    """What each linear layer of a perceptron gives, before its activation; `known` is what these layers are known to
    give, so that only gradients have to be worked out.

    >>> net = MLP.init(np.random.default_rng(0), inputs=3, hidden=(8,), outputs=2)
    >>> [x.shape for x in layer_results(net.layers, net.activation, np.zeros((5, 3), np.float32))]
    [(5, 8), (5, 2)]
    """
    function, x, results = activation(act), flat(x), []
    for place, layer in enumerate(layers):
        x = function(x) if place else x
        x = layer(x) if known is None else ops.known(_applied, (layer, x), known[place])
        results.append(x)
    return tuple(results)


def _applied(layer: Any, x: Any) -> Array:
    return layer(x)


def join_inputs(*parts: Any) -> Array:
    """The parts that are not None, side by side.

    >>> join_inputs(np.zeros((5, 3)), None, np.zeros((5, 2))).shape
    (5, 5)
    """
    given = [part for part in parts if part is not None]
    return given[0] if len(given) == 1 else ops.concat(given, -1)


def input_gradient(net: MLP, x: Any) -> Array:
    """The gradient of each row's first output with respect to the row, itself differentiable in every framework."""
    if net.norms or net.final:
        raise TwinaxError("the gradient of an MLP by its inputs is known for linear layers and activations alone")
    function, slope = activation(net.activation), activation_slope(net.activation)
    before = []
    for layer in net.layers[:-1]:
        before.append(layer(x))
        x = function(before[-1])
    first = net.layers[-1].weight[0]
    gradient = first + ops.zeros(x.shape, x)
    for layer, y in zip(reversed(net.layers[:-1]), reversed(before), strict=True):
        gradient = (gradient * slope(y)) @ layer.weight
    return gradient


class Ensemble(eqx.Module):
    """Several networks of one shape in one tree whose leaves have a leading member axis.

    `ensemble(*inputs)` gives the members' outputs stacked on a new leading axis.
    """

    members: Any

    @classmethod
    def init(cls, rng: np.random.Generator, number: int, make: Callable[[np.random.Generator], M]) -> Ensemble:
        """`number` members made one after the other from the same generator."""
        if number < 1:
            raise TwinaxError(f"an ensemble has {number} members; it needs at least 1")
        nets = [make(rng) for _ in range(number)]
        return cls(jtu.tree_map(lambda *leaves: np.stack(leaves), *nets))

    @property
    def number(self) -> int:
        """How many members there are."""
        return jtu.tree_leaves(self.members)[0].shape[0]

    def __call__(self, *inputs: Any) -> Array:
        leaf = jtu.tree_leaves(self.members)[0]
        if ops.framework(leaf) == "jax":
            import jax

            return jax.vmap(lambda net: net(*inputs))(self.members)
        outputs = [tree.map_leaves(lambda w, i=i: w[i], self.members)(*inputs) for i in range(self.number)]
        return tree.map_leaves(lambda *leaves: ops.stack(leaves), *outputs)
