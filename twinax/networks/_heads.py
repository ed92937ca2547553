"""Last layers of networks over places, nodes or items: a logit for each word at each place, each edge, each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import UnknownName
from twinax.networks._layers import Linear
from twinax.types import Array, Float

FORMS = ("shared", "own", "sum")


class PlaceHead(eqx.Module):
    """Logits for each word at each place, place by place.

    `shared` has one layer for all places, `own` one for each place, and `sum` adds a logit of the place to the logit of
    each word there.

    >>> head = PlaceHead.init(np.random.default_rng(0), width=8, places=5, words=3, form="sum")
    >>> head(np.zeros((2, 5, 8), np.float32)).shape
    (2, 15)
    """

    word: Linear
    place: Linear | None
    places: int = eqx.field(static=True)
    """Places that have logits: the last ones of what it is shown."""

    @classmethod
    def init(cls, rng: np.random.Generator, width: int, places: int, words: int, form: str = "shared") -> PlaceHead:
        if form not in FORMS:
            raise UnknownName("form of a PlaceHead", form, FORMS)
        if form == "own":
            layers = [Linear.init(rng, width, words) for _ in range(places)]
            weight, bias = (np.stack([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
            return cls(Linear(weight, bias), None, places)
        word = Linear.init(rng, width, words)
        return cls(word, Linear.init(rng, width, 1) if form == "sum" else None, places)

    def __call__(self, x: Float[Array, "*rows length width"]) -> Float[Array, "*rows columns"]:
        x = x[..., -self.places :, :]
        if self.word.weight.ndim == 3:
            y = ops.einsum("...pw,pvw->...pv", x, self.word.weight) + self.word.bias
        else:
            y = self.word(x)
        y = y if self.place is None else y + self.place(x)
        return y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])


class EdgeHead(eqx.Module):
    """A logit for each ordered pair of nodes, how well sender and receiver fit; with `stop` one more, of the whole.

    The logit of the edge from i to j stands at i * nodes + j.

    >>> head = EdgeHead.init(np.random.default_rng(0), width=8, stop=True)
    >>> head(np.zeros((2, 5, 8), np.float32), np.zeros((2, 8), np.float32)).shape
    (2, 26)
    """

    sender: Linear
    receiver: Linear
    stop: Linear | None

    @classmethod
    def init(cls, rng: np.random.Generator, width: int, stop: bool = False) -> EdgeHead:
        sender, receiver = Linear.init(rng, width, width), Linear.init(rng, width, width)
        return cls(sender, receiver, Linear.init(rng, width, 1) if stop else None)

    def __call__(self, nodes: Float[Array, "*rows nodes width"], whole: Float[Array, "*rows width"]) -> Array:
        edges = self.sender(nodes) @ ops.swap_last(self.receiver(nodes)) / math.sqrt(nodes.shape[-1])
        edges = edges.reshape(*edges.shape[:-2], edges.shape[-2] * edges.shape[-1])
        return edges if self.stop is None else ops.concat([edges, self.stop(whole)], -1)


class PairHead(eqx.Module):
    """A logit for each unordered pair of items, a perceptron of the sum of both; with `stop` one more, of all items.

    The pair i < j of n items stands at i (2n - 1 - i) / 2 + j - i - 1.

    >>> head = PairHead.init(np.random.default_rng(0), width=8, hidden=16)
    >>> head(np.zeros((2, 5, 8), np.float32), np.zeros((2, 8), np.float32)).shape
    (2, 10)
    """

    linear1: Linear
    linear2: Linear
    stop: Linear | None

    @classmethod
    def init(cls, rng: np.random.Generator, width: int, hidden: int, stop: bool = False) -> PairHead:
        first, second = Linear.init(rng, width, hidden), Linear.init(rng, hidden, 1)
        return cls(first, second, Linear.init(rng, width, 1) if stop else None)

    def __call__(self, items: Float[Array, "*rows items width"], whole: Float[Array, "*rows width"]) -> Array:
        number = items.shape[-2]
        # The first layer of a sum is the sum of what it makes of each item, so it sees n rows instead of n^2.
        each = self.linear1(items)
        each = each if self.linear1.bias is None else each - 0.5 * self.linear1.bias
        square = ops.pair_sums(each, self.linear2.weight[0])
        square = square if self.linear2.bias is None else square + self.linear2.bias
        square = square.reshape(*items.shape[:-2], number * number)
        one, other = np.triu_indices(number, 1)
        pairs = ops.take(square, ops.like((one * number + other).astype(np.int32), items), -1)
        return pairs if self.stop is None else ops.concat([pairs, self.stop(whole)], -1)


class ItemHead(eqx.Module):
    """A logit for each item."""

    layer: Linear

    @classmethod
    def init(cls, rng: np.random.Generator, width: int) -> ItemHead:
        return cls(Linear.init(rng, width, 1))

    def __call__(self, items: Float[Array, "*rows items width"]) -> Float[Array, "*rows items"]:
        return self.layer(items)[..., 0]


def join_heads(
    heads: Mapping[str, Any], order: Sequence[str], each: Any, whole: Array
) -> Float[Array, "*rows columns"]:
    """The columns of all heads side by side: `each` has a vector for each place, node or item, `whole` one for all."""

    def columns(head: Any) -> Array:
        if isinstance(head, EdgeHead | PairHead):
            return head(each, whole)
        return head(each) if isinstance(head, PlaceHead | ItemHead) else head(whole)

    outputs = [columns(heads[name]) for name in order]
    return outputs[0] if len(outputs) == 1 else ops.concat(outputs, -1)
