"""Attention of several heads with PyTorch's packed weights."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks._layers import Linear, _in_precision_of
from twinax.types import Array, Float


class MultiheadAttention(eqx.Module):
    """Each query gets a mean of values, weighted by how well it fits their keys, head by head.

    Arrays are (..., length, width), as PyTorch's with `batch_first=True`. A mask is True where a query may look, as
    everywhere in `ops` and in `scaled_dot_product_attention`; the masks of `torch.nn.MultiheadAttention` say the
    opposite. A query that may look at nothing reads zeros.

    >>> attention = MultiheadAttention.init(np.random.default_rng(0), width=8, heads=2)
    >>> tokens, others = np.zeros((3, 5, 8), np.float32), np.zeros((3, 7, 8), np.float32)
    >>> attention(tokens, causal=True).shape, attention(tokens, others).shape
    ((3, 5, 8), (3, 5, 8))
    """

    in_proj_weight: Array
    """Of queries, keys and values, one below the other."""
    in_proj_bias: Array | None
    out_proj: Linear
    heads: int = eqx.field(static=True)

    @classmethod
    def init(cls, rng: np.random.Generator, width: int, heads: int, bias: bool = True) -> MultiheadAttention:
        """PyTorch's default: Xavier-uniform for the packed weight, a `Linear` for the other; biases are zero."""
        if width < 1 or heads < 1 or width % heads:
            raise TwinaxError(f"a width of {width} cannot be shared by {heads} heads; take a multiple of {heads}")
        bound = math.sqrt(6 / (width + 3 * width))
        weight = rng.uniform(-bound, bound, (3 * width, width)).astype(np.float32)
        out = Linear.init(rng, width, width, bias=False)
        if not bias:
            return cls(weight, None, out, heads)
        return cls(weight, np.zeros(3 * width, np.float32), Linear(out.weight, np.zeros(width, np.float32)), heads)

    def __call__(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        mask: Any = None,
        key_mask: Any = None,
        causal: bool = False,
    ) -> Float[Array, "*rows queries width"]:
        """Without `key` the queries look at themselves; without `value` what is looked at is also what is read.

        `mask` is (queries, keys) or (..., queries, keys), `key_mask` is (..., keys): True where a key is no padding.
        With `causal` nothing looks at what comes after it.
        """
        weight, bias = self.in_proj_weight, self._bias()
        width = weight.shape[-1]
        places = [slice(i * width, (i + 1) * width) for i in range(3)]
        if key is None:
            if value is not None:
                raise TwinaxError("attention was given values without keys; give `key` as well")
            packed = ops.linear(_in_precision_of(weight, query), weight, bias)
            parts = [packed[..., place] for place in places]
        else:
            given = (query, key, key if value is None else value)
            parts = [
                ops.linear(_in_precision_of(weight, x), weight[place], None if bias is None else bias[place])
                for x, place in zip(given, places, strict=True)
            ]
        q, k, v = (x.reshape(*x.shape[:-1], self.heads, width // self.heads).swapaxes(-2, -3) for x in parts)
        y = ops.attention(q, k, v, _joint_mask(mask, key_mask), causal).swapaxes(-2, -3)
        return self.out_proj(y.reshape(*y.shape[:-2], width))

    def step(self, x: Any, memory: tuple[Array, Array], time: Any) -> tuple[Float[Array, "rows width"], Any]:
        """One more token, number `time`, looks at itself and at those before, whose keys and values are the memory,
        each (length, rows, width); it comes back with those of the new one."""
        weight = self.in_proj_weight
        width = weight.shape[-1]
        packed = ops.linear(_in_precision_of(weight, x), weight, self._bias())
        q, k, v = (packed[..., i * width : (i + 1) * width] for i in range(3))
        keys, values = (ops.set_at(held, time, new) for held, new in zip(memory, (k, v), strict=True))
        q, k, v = (a.reshape(*a.shape[:-1], self.heads, width // self.heads) for a in (q, keys, values))
        fits = ops.sum(q * k, -1) / math.sqrt(width // self.heads)
        known = (ops.arange(keys.shape[0], fits) <= time)[:, None, None]
        y = ops.sum(ops.softmax(fits, known, 0)[..., None] * v, 0)
        return self.out_proj(y.reshape(*y.shape[:-2], width)), (keys, values)

    def _bias(self) -> Array | None:
        # That of the keys adds one number to all scores of a query, which a softmax does not see. Its gradient is 0 but
        # for rounding; Adam would make steps of that, others in every framework.
        if self.in_proj_bias is None:
            return None
        of_queries, of_keys, of_values = (self.in_proj_bias.reshape(3, -1)[i] for i in range(3))
        return ops.concat([of_queries, ops.stop_gradient(of_keys), of_values])


def _joint_mask(mask: Any, key_mask: Any) -> Any:
    """Both masks as one that fits (..., heads, queries, keys), or None."""
    for name, given in (("mask", mask), ("key_mask", key_mask)):
        if given is not None and not str(given.dtype).endswith("bool"):
            raise TwinaxError(
                f"the {name} of an attention has the dtype {given.dtype}; give booleans, True where a key counts"
            )
    if mask is not None and len(mask.shape) > 2:
        mask = mask[..., None, :, :]
    if key_mask is None:
        return mask
    key_mask = key_mask[..., None, None, :]
    return key_mask if mask is None else mask & key_mask
