"""A network over dense graphs: attention over nodes, messages along edges, a logit for each edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.networks._heads import EdgeHead, join_heads
from twinax.networks._layers import Linear, _in_precision_of, laid_out
from twinax.networks._norms import LayerNorm
from twinax.networks._observations import Graph, described
from twinax.networks._own import NetworkSpec
from twinax.networks._transformer import TransformerEncoderLayer
from twinax.types import Array, Float


@checked
@dataclass(frozen=True)
class GraphNetwork:
    """Makes a network that reads a `Graph`, for up to about 50 nodes.

    A head with a column for each ordered pair of nodes, and perhaps one more for a stop, has a logit for each edge; any
    other head reads the mean over nodes. Nodes are told apart by their features alone.

    >>> spec = NetworkSpec("policy", Graph(np.eye(3)[None], np.zeros((1, 3, 3, 1))), {"forward": 10, "flow": 1})
    >>> GraphNetwork(width=16)(np.random.default_rng(0), spec)(spec.observation).shape
    (1, 11)
    """

    width: int = 128
    """Numbers that stand for a node between layers; a multiple of `heads`."""
    layers: int = 2
    """Rounds of messages; after k of them a node knows of those that are k edges away."""
    heads: int = 4
    """Heads of each attention over all nodes."""
    feedforward: int = 128
    """Width of the hidden layer of each perceptron."""

    def __post_init__(self):
        if self.layers < 1 or self.feedforward < 1:
            raise TwinaxError(f"{self} has a size below 1; every size must be at least 1")

    def __call__(self, rng: np.random.Generator, spec: NetworkSpec) -> GraphNet:
        seen = spec.observation
        if not isinstance(seen, Graph):
            raise TwinaxError(
                f"GraphNetwork reads a Graph, but as {spec.role} it is shown {described(seen)}; take another network"
            )
        nodes, features, kinds = seen.nodes.shape[-2], seen.nodes.shape[-1], seen.edges.shape[-1]
        first = Linear.init(rng, features, self.width)
        layers = [GraphLayer.init(rng, self.width, kinds, self.heads, self.feedforward) for _ in range(self.layers)]
        heads: dict[str, Any] = {}
        for name, columns in spec.heads.items():
            if nodes > 1 and columns in (nodes**2, nodes**2 + 1):
                heads[name] = EdgeHead.init(rng, self.width, stop=columns > nodes**2)
            elif columns:
                heads[name] = Linear.init(rng, self.width, columns)
        return GraphNet(first, tuple(layers), LayerNorm.init(self.width), heads, tuple(heads))


class GraphLayer(eqx.Module):
    """Messages along edges in both directions, then attention over all nodes and a perceptron; norms come first.

    The message to a node is a linear map of the sums over the nodes that lead to it and over those that it leads to,
    kind by kind, divided by the number of nodes.
    """

    norm: LayerNorm
    messages: Linear
    attention: TransformerEncoderLayer

    @classmethod
    def init(cls, rng: np.random.Generator, width: int, kinds: int, heads: int, hidden: int) -> GraphLayer:
        layer = TransformerEncoderLayer.init(rng, width, heads, hidden, norm_first=True)
        return cls(LayerNorm.init(width), Linear.init(rng, 2 * kinds * width, width), layer)

    def __call__(self, x: Float[Array, "rows nodes width"], edges: Float[Array, "rows kinds2 nodes nodes"]) -> Array:
        rows, nodes, width = x.shape
        # [row, sum, i] = sum over j of edges[row, sum, i, j] x[row, j]: one product for each row.
        sums = edges.reshape(rows, edges.shape[1] * nodes, nodes) @ self.norm(x)
        sums = sums.reshape(rows, edges.shape[1], nodes, width)
        sums = ops.move_axis(sums, 1, 2).reshape(rows, nodes, edges.shape[1] * width)
        return self.attention(x + self.messages(sums))


class GraphNet(eqx.Module):
    """What `GraphNetwork` makes; its columns are those of its heads, side by side."""

    first: Linear
    layers: tuple[GraphLayer, ...]
    norm: LayerNorm
    heads: dict[str, Any]
    order: tuple[str, ...] = eqx.field(static=True)
    """Heads in the order of their columns."""

    def __call__(self, seen: Graph) -> Float[Array, "rows columns"]:
        x = self.first(seen.nodes)
        edges = ops.move_axis(_in_precision_of(x, seen.edges), -1, -3) / seen.nodes.shape[-2]
        both = ops.concat([edges, ops.swap_last(edges)], -3)
        for layer in self.layers:
            x = layer(x, both)
        x = self.norm(x)
        return join_heads(self.heads, self.order, x, ops.mean(x, -2))

    def acting(self) -> GraphNet:
        """The same laid out for a rollout."""
        return laid_out(self)
