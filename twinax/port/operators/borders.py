"""Padding with what stands in the array: mirrored, or its edge repeated."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator


@operator("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(x, padding):
    return padded(x, padding, "reflect")


@operator("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad(x, padding):
    return padded(x, padding, "edge")


def padded(x, padding, mode):
    """PyTorch names the last axis first; a negative width cuts."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))[::-1]
    whole = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    x = jnp.pad(x, [(max(a, 0), max(b, 0)) for a, b in whole], mode=mode)
    starts = [max(-a, 0) for a, _ in whole]
    ends = [n - max(-b, 0) for n, (_, b) in zip(x.shape, whole, strict=True)]
    return lax.slice(x, starts, ends)
