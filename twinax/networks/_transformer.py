"""A transformer's encoder with PyTorch's names."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from twinax.errors import TwinaxError
from twinax.networks._attention import MultiheadAttention
from twinax.networks._layers import Linear, _in_precision_of, activation
from twinax.networks._norms import LayerNorm
from twinax.types import Array, Float


class TransformerEncoderLayer(eqx.Module):
    """Attention and a perceptron of two layers, each added to its input and normed: after the sum, or before the part.

    There is no dropout: randomness is data here. Masks are those of `MultiheadAttention`.

    >>> layer = TransformerEncoderLayer.init(np.random.default_rng(0), width=8, heads=2, hidden=16, norm_first=True)
    >>> layer(np.zeros((3, 5, 8), np.float32), causal=True).shape
    (3, 5, 8)
    """

    self_attn: MultiheadAttention
    linear1: Linear
    linear2: Linear
    norm1: LayerNorm
    norm2: LayerNorm
    activation: str = eqx.field(static=True)
    norm_first: bool = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        width: int,
        heads: int,
        hidden: int = 2048,
        act: str = "relu",
        norm_first: bool = False,
        bias: bool = True,
        eps: float = 1e-5,
    ) -> TransformerEncoderLayer:
        """PyTorch's defaults, but for its dropout."""
        activation(act)  # unknown names fail here
        attention = MultiheadAttention.init(rng, width, heads, bias)
        first, second = Linear.init(rng, width, hidden, bias), Linear.init(rng, hidden, width, bias)
        norms = LayerNorm.init(width, eps, bias=bias), LayerNorm.init(width, eps, bias=bias)
        return cls(attention, first, second, *norms, act, norm_first)

    def __call__(
        self, x: Any, mask: Any = None, key_mask: Any = None, causal: bool = False
    ) -> Float[Array, "*rows length width"]:
        function = activation(self.activation)
        x = _in_precision_of(self.linear1.weight, x)
        if self.norm_first:
            x = x + self.self_attn(self.norm1(x), mask=mask, key_mask=key_mask, causal=causal)
            return x + self.linear2(function(self.linear1(self.norm2(x))))
        x = self.norm1(x + self.self_attn(x, mask=mask, key_mask=key_mask, causal=causal))
        return self.norm2(x + self.linear2(function(self.linear1(x))))

    def step(self, x: Any, memory: tuple[Array, Array], time: Any) -> tuple[Float[Array, "*rows width"], Any]:
        """One more token of each row; see `MultiheadAttention.step`."""
        function = activation(self.activation)
        x = _in_precision_of(self.linear1.weight, x)
        if self.norm_first:
            y, memory = self.self_attn.step(self.norm1(x), memory, time)
            x = x + y
            return x + self.linear2(function(self.linear1(self.norm2(x)))), memory
        y, memory = self.self_attn.step(x, memory, time)
        x = self.norm1(x + y)
        return self.norm2(x + self.linear2(function(self.linear1(x)))), memory


class TransformerEncoder(eqx.Module):
    """Layers of attention, one after the other; names as in PyTorch: `layers.0.self_attn.in_proj_weight`.

    >>> net = TransformerEncoder.init(np.random.default_rng(0), layers=2, width=8, heads=2, hidden=16, causal=True)
    >>> net(np.zeros((3, 5, 8), np.float32)).shape
    (3, 5, 8)
    """

    layers: tuple[TransformerEncoderLayer, ...]
    norm: LayerNorm | None
    causal: bool = eqx.field(static=True, default=False)
    """Whether nothing looks at what comes after it."""

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        layers: int,
        width: int,
        heads: int,
        hidden: int = 2048,
        act: str = "relu",
        norm_first: bool = False,
        norm: bool = False,
        causal: bool = False,
    ) -> TransformerEncoder:
        """Each layer has weights of its own, where PyTorch begins with copies of one; `norm` adds one at the end."""
        if layers < 1:
            raise TwinaxError(f"a transformer has {layers} layers; it needs at least 1")
        made = [TransformerEncoderLayer.init(rng, width, heads, hidden, act, norm_first) for _ in range(layers)]
        return cls(tuple(made), LayerNorm.init(width) if norm else None, causal)

    def __call__(self, x: Any, mask: Any = None, key_mask: Any = None) -> Float[Array, "*rows length width"]:
        for layer in self.layers:
            x = layer(x, mask, key_mask, self.causal)
        return x if self.norm is None else self.norm(x)

    def step(self, x: Any, memory: Any, time: Any) -> tuple[Float[Array, "*rows width"], Any]:
        """One more token of each row, with what every layer remembers of those before: of a causal network, what the
        whole series gives at that place."""
        grown = []
        for layer, held in zip(self.layers, memory, strict=True):
            x, held = layer.step(x, held, time)
            grown.append(held)
        return x if self.norm is None else self.norm(x), tuple(grown)
