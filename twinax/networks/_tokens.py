"""A transformer over tokens: logits for each place or for the whole, and one step after the other with a cache."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.networks._embedding import Embedding
from twinax.networks._heads import FORMS, PlaceHead, join_heads
from twinax.networks._layers import Linear, laid_out
from twinax.networks._observations import Tokens, described
from twinax.networks._own import NetworkSpec
from twinax.networks._transformer import TransformerEncoder
from twinax.tree import map_leaves, record
from twinax.types import Array, Float, Int

PLACES, POOLING = ("sinusoidal", "learned"), ("places", "mean", "last")


@checked
@dataclass(frozen=True)
class TokenTransformer:
    """Makes a transformer that reads `Tokens`; norms come first, and there is no dropout.

    >>> spec = NetworkSpec("policy", Tokens(np.zeros((1, 5), np.int32), 7), {"forward": 20, "flow": 1},
    ...                    {"forward": (5, 4)})
    >>> TokenTransformer(width=16, heads=2)(np.random.default_rng(0), spec)(spec.observation).shape
    (1, 21)
    """

    width: int = 64
    """Numbers that stand for a token between layers; a multiple of `heads`."""
    layers: int = 3
    """Layers of attention, each followed by a perceptron."""
    heads: int = 8
    """Heads of each attention; each has width / heads numbers."""
    feedforward: int = 64
    """Width of the hidden layer of each perceptron."""
    places: str = "sinusoidal"
    """How it knows places: sinusoidal (fixed waves) or learned (a table); either is added to the tokens."""
    pooling: str = "places"
    """What heads read: places (the logits of a place its own vector, every other head the mean), mean (all heads the
    mean over places), or last (all heads the last place that is not empty)."""
    logits: str = "shared"
    """Form of the logits of words at places: shared (one layer for all places), own (one for each place), or sum (a
    logit of the place plus one of the word, as published for bit sequences)."""
    causal: bool = False
    """Whether no place looks at what comes after it, for sequences that grow at their end: then heads read the last
    place that is not empty, one pass gives the outputs of all prefixes, and acting needs one token at a time."""

    def __post_init__(self):
        for name, known in (("places", PLACES), ("pooling", POOLING), ("logits", FORMS)):
            if getattr(self, name) not in known:
                raise UnknownName(f"TokenTransformer.{name}", getattr(self, name), known)
        if self.feedforward < 1:
            raise TwinaxError(f"TokenTransformer.feedforward is {self.feedforward}; it must be at least 1")
        if self.causal and self.pooling == "mean":
            raise TwinaxError(
                "TokenTransformer(causal=True) reads the last place, so pooling=mean is nothing it could do; take "
                "pooling=last"
            )

    def __call__(self, rng: np.random.Generator, spec: NetworkSpec) -> TokenNet:
        seen = spec.observation
        if not isinstance(seen, Tokens):
            raise TwinaxError(
                f"TokenTransformer reads Tokens, but as {spec.role} it is shown {described(seen)}; take another network"
            )
        if self.causal and seen.empty is None:
            raise TwinaxError(
                "TokenTransformer(causal=True) has to know where a sequence ends, but the world's Tokens name no empty "
                "token; give Tokens(..., empty=...), or take causal=False"
            )
        length = seen.ids.shape[-1]
        pooling = "last" if self.causal else self.pooling
        body = TransformerEncoder.init(
            rng, self.layers, self.width, self.heads, self.feedforward, norm_first=True, norm=True, causal=self.causal
        )
        tokens = Embedding.init(rng, seen.vocabulary, self.width)
        places = Embedding.init(rng, length, self.width) if self.places == "learned" else None
        heads: dict[str, Any] = {}
        for name, columns in spec.heads.items():
            shape = spec.shapes.get(name, ())
            if len(shape) == 2 and pooling == "places" and columns:
                if shape[0] > length:
                    raise TwinaxError(
                        f"the head {name} has {shape[0]} places, but the observation has {length} tokens; take "
                        "pooling=mean"
                    )
                heads[name] = PlaceHead.init(rng, self.width, *shape, self.logits)
            elif columns:
                heads[name] = Linear.init(rng, self.width, columns)
        return TokenNet(tokens, places, body, heads, tuple(heads), pooling == "last")


class TokenNet(eqx.Module):
    """What `TokenTransformer` makes; its columns are those of its heads, side by side."""

    tokens: Embedding
    places: Embedding | None
    body: TransformerEncoder
    heads: dict[str, Any]
    order: tuple[str, ...] = eqx.field(static=True)
    """Heads in the order of their columns."""
    last: bool = eqx.field(static=True)
    """Whether heads read the last place that is not empty."""

    def __call__(self, seen: Tokens) -> Float[Array, "rows columns"]:
        x = self.body(self._embedded(seen.ids))
        return self._columns(x, _last(x, seen) if self.last else ops.mean(x, -2))

    @property
    def one_by_one(self) -> bool:
        """Whether it has `prefixes`, `start` and `step`."""
        return self.body.causal

    def prefixes(self, seen: Tokens) -> Float[Array, "rows places columns"]:
        """The outputs of every prefix by one pass over whole sequences: entry t is that of the first t + 1 tokens."""
        self._check_causal("prefixes")
        return self._columns(None, self.body(self._embedded(seen.ids)))

    def acting(self) -> TokenNet:
        """The same laid out for a rollout."""
        return laid_out(self)

    def start(self, rows: int, length: int) -> TokenCache:
        """An empty memory for `rows` sequences of at most `length` tokens, for `step`."""
        self._check_causal("start")
        shape = (length, rows, self.tokens.weight.shape[-1])
        nothing = ops.zeros((), self.tokens.weight)
        memory = [(ops.zeros(shape, nothing), ops.zeros(shape, nothing)) for _ in self.body.layers]
        return TokenCache(tuple(memory), ops.zeros((), nothing, "int32"))

    def step(self, cache: TokenCache, token: Int[Array, " rows"]) -> tuple[Float[Array, "rows columns"], TokenCache]:
        """The outputs after one more token of each sequence, and the memory with it; no gradients, and the memory that
        was given is used up."""
        length = cache.memory[0][0].shape[0]
        x = self.tokens(token) + ops.take(self._waves(length), cache.time)
        x, memory = self.body.step(x, cache.memory, cache.time)
        return self._columns(None, x), TokenCache(memory, cache.time + 1)

    def _embedded(self, ids: Int[Array, "rows places"]) -> Float[Array, "rows places width"]:
        return self.tokens(ids) + self._waves(ids.shape[-1])

    def _waves(self, length: int) -> Float[Array, "places width"]:
        if self.places is not None:
            return self.places.weight[:length]
        weight = self.tokens.weight
        return ops.cast(ops.like(sinusoids(length, weight.shape[-1]), weight), weight)

    def _columns(self, x: Any, pooled: Array) -> Array:
        """`x` has a vector for each place, `pooled` one for the whole."""
        return join_heads(self.heads, self.order, x, pooled)

    def _check_causal(self, what: str) -> None:
        if not self.body.causal:
            raise TwinaxError(f"{what} needs a network in which no place sees what comes after it: causal=True")


@record
class TokenCache:
    """Keys and values of the tokens so far, layer by layer, time first."""

    memory: Any
    time: Int[Array, ""]
    """Tokens so far."""

    def rows(self, index: Int[Array, " rows"]) -> TokenCache:
        """Only some of the sequences."""
        return TokenCache(map_leaves(lambda x: ops.take(x, index, 1), self.memory), self.time)


def _last(x: Float[Array, "rows places width"], seen: Tokens) -> Float[Array, "rows width"]:
    """The vector of the last place before the first empty one; of the first place if all are empty."""
    if seen.empty is None:
        return x[..., -1, :]
    written = ops.sum(ops.cast(seen.ids != seen.empty, "int32"), -1)
    here = ops.arange(seen.ids.shape[-1], written) == ops.clip(written - 1, 0, seen.ids.shape[-1])[..., None]
    return ops.sum(ops.where(here[..., None], x, 0.0), -2)


@functools.lru_cache(maxsize=32)
def sinusoids(length: int, width: int) -> np.ndarray:
    """sin and cos of place / 10000^(2 i / width), by turns: the usual code of places.

    >>> sinusoids(2, 4).round(4).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8415, 0.5403, 0.01, 1.0]]
    """
    angle = np.arange(length)[:, None] / 10_000 ** (2 * (np.arange(width) // 2) / width)
    table = np.where(np.arange(width) % 2 == 0, np.sin(angle), np.cos(angle))
    table.flags.writeable = False  # converted once
    return table
