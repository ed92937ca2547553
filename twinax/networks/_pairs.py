"""A network over items, such as the trees of a forest: attention over those that are there, a logit for each pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.networks._heads import ItemHead, PairHead, join_heads
from twinax.networks._layers import Linear, laid_out
from twinax.networks._mlp import perceptron
from twinax.networks._observations import Items, SharedItems, described
from twinax.networks._own import NetworkSpec
from twinax.networks._transformer import TransformerEncoder
from twinax.types import Array, Bool, Float, Int


@checked
@dataclass(frozen=True)
class PairNetwork:
    """Makes a network that reads `Items`, in whatever order they stand; who is not there is not looked at.

    Of n items, a head with n (n - 1) / 2 columns, and perhaps one more for a stop, has a logit for each pair i < j, at
    i (2n - 1 - i) / 2 + j - i - 1, and one with n columns has a logit for each item. Any other head reads the mean over
    items. Of three items, which are as many as pairs, `backward` has logits of items.

    >>> spec = NetworkSpec("policy", Items(np.zeros((1, 4, 3)), np.ones((1, 4), bool)), {"forward": 6, "backward": 4})
    >>> PairNetwork(width=16)(np.random.default_rng(0), spec)(spec.observation).shape
    (1, 10)
    """

    width: int = 64
    """Numbers that stand for an item between layers; a multiple of `heads`."""
    layers: int = 3
    """Layers of attention over items, each followed by a perceptron."""
    heads: int = 4
    """Heads of each attention."""
    feedforward: int = 64
    """Width of the hidden layer of each perceptron, and of the one that judges pairs."""
    hidden: tuple[int, ...] = ()
    """Widths of layers between the features of an item and what stands for it; none: one linear map."""

    def __post_init__(self):
        if min(self.layers, self.feedforward, *self.hidden) < 1:
            raise TwinaxError(f"{self} has a size below 1; every size must be at least 1")

    def __call__(self, rng: np.random.Generator, spec: NetworkSpec) -> PairNet:
        seen = spec.observation
        if not isinstance(seen, Items):
            raise TwinaxError(
                f"PairNetwork reads Items, but as {spec.role} it is shown {described(seen)}; take another network"
            )
        items, features = seen.features.shape[-2:]
        sizes = (features, *self.hidden, self.width)
        first = tuple(Linear.init(rng, a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        body = TransformerEncoder.init(
            rng, self.layers, self.width, self.heads, self.feedforward, norm_first=True, norm=True
        )
        pairs = items * (items - 1) // 2
        heads: dict[str, Any] = {}
        for name, columns in spec.heads.items():
            if columns == items > 1 and (name == "backward" or columns != pairs):
                heads[name] = ItemHead.init(rng, self.width)
            elif pairs and columns in (pairs, pairs + 1) and columns > 1:
                heads[name] = PairHead.init(rng, self.width, self.feedforward, stop=columns > pairs)
            elif columns:
                heads[name] = Linear.init(rng, self.width, columns)
        return PairNet(first, body, heads, tuple(heads))


class PairNet(eqx.Module):
    """What `PairNetwork` makes; its columns are those of its heads, side by side."""

    first: tuple[Linear, ...]
    body: TransformerEncoder
    heads: dict[str, Any]
    order: tuple[str, ...] = eqx.field(static=True)
    """Heads in the order of their columns."""

    row_by_row = True
    """It has `row` and `whole`, so that rows which many states show are read once."""

    def __call__(self, seen: Items | SharedItems) -> Float[Array, "states columns"]:
        if isinstance(seen, SharedItems):
            return self.whole(replace(seen, rows=self.row(seen.rows)))
        return self._columns(self.body(self.row(seen.features), key_mask=seen.present), seen.present)

    def row(self, features: Float[Array, "*rows features"]) -> Float[Array, "*rows width"]:
        """What stands for an item, by its own features alone."""
        return perceptron(self.first, "relu", features)

    def whole(self, seen: SharedItems) -> Float[Array, "states columns"]:
        """Its outputs, where what stands for an item is in the place of its features."""
        states, items = seen.index.shape
        crowds = seen.crowds or ((states, items),)
        found, places = [], []
        begin = before = 0
        for number, most in crowds:
            index, present = (x[begin : begin + number] for x in (seen.index, seen.present))
            if most < items:
                index, present, place = _closed_up(index, present, most)
            else:
                place = ops.broadcast(ops.arange(items, index), index.shape)
            x = self.body(ops.take(seen.rows, index), key_mask=present)
            if len(crowds) == 1 and most == items:
                return self._columns(x, seen.present)
            found.append(x.reshape(number * most, x.shape[-1]))
            places.append(before + most * ops.arange(number, index)[:, None] + place)
            begin, before = begin + number, before + number * most
        return self._columns(ops.take(ops.concat(found), ops.concat(places)), seen.present)

    def _columns(
        self, items: Float[Array, "states items width"], present: Bool[Array, "states items"]
    ) -> Float[Array, "states columns"]:
        return join_heads(self.heads, self.order, items, ops.mean(items, -2, mask=present[..., None]))

    def acting(self) -> PairNet:
        """The same laid out for a rollout."""
        return laid_out(self)


def _closed_up(index: Int[Array, "states items"], present: Bool[Array, "states items"], most: int) -> tuple[Any, ...]:
    """The index and presence of those items that are there, side by side in `most` places, and the place of each."""
    items = ops.arange(present.shape[-1], index)
    place = ops.sum(ops.cast(present[..., None, :] & (items < items[:, None]), index), -1)
    here = (place[..., None] == ops.arange(most, index)) & present[..., None]
    return ops.sum(ops.where(here, index[..., None], 0), -2), ops.any(here, -2), ops.clip(place, 0, most - 1)
