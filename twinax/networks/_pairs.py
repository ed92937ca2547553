"""A network over items, such as the trees of a forest: attention over those that are there, a logit for each pair."""

from __future__ import annotations

from dataclasses import dataclass
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
from twinax.types import Array, Bool, Float


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

    def __call__(self, seen: Items | SharedItems) -> Float[Array, "rows columns"]:
        if isinstance(seen, SharedItems):
            return self.whole(ops.take(self.row(seen.rows), seen.index), seen.present)
        return self.whole(self.row(seen.features), seen.present)

    def row(self, features: Float[Array, "*rows features"]) -> Float[Array, "*rows width"]:
        """What stands for an item, by its own features alone."""
        return perceptron(self.first, "relu", features)

    def whole(
        self, items: Float[Array, "rows items width"], present: Bool[Array, "rows items"]
    ) -> Float[Array, "rows columns"]:
        """Its outputs, from what stands for each item."""
        x = self.body(items, key_mask=present)
        return join_heads(self.heads, self.order, x, ops.mean(x, -2, mask=present[..., None]))

    def acting(self) -> PairNet:
        """The same laid out for a rollout."""
        return laid_out(self)
