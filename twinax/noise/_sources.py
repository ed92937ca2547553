"""Sources of draws.

`key_draws` is a pure function of (seed, step, name): the same numbers in every engine, in any order
of chunks, so a resumed run needs no generator state. Draws are float32 and are widened by the
engine, so a float64 run repeats the choices of a float32 one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.noise._draws import Draw

TINY = float(np.finfo(np.float32).tiny)


def key_draws(spec: Mapping[str, Draw], seed, step, stream: int = 0) -> dict[str, Any]:
    """JAX arrays for one step; traceable, so it stands inside the compiled loop."""
    import jax

    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stream), step)
    return {name: _from_key(jax.random.fold_in(key, _tag(name)), draw) for name, draw in spec.items()}


def _tag(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _from_key(key, draw: Draw):
    import jax
    import jax.numpy as jnp

    if draw.kind == "uniform":
        return jax.random.uniform(key, draw.shape, jnp.float32, minval=TINY)
    if draw.kind == "normal":
        return jax.random.normal(key, draw.shape, jnp.float32)
    return jax.random.randint(key, draw.shape, 0, draw.high, jnp.int32)


def numpy_draws(spec: Mapping[str, Draw], seed: int, step: int, stream: int = 0) -> dict[str, np.ndarray]:
    """The same numbers as `key_draws`, as NumPy arrays."""
    return {name: np.asarray(value) for name, value in key_draws(spec, seed, step, stream).items()}


def generator_draws(spec: Mapping[str, Draw], generator) -> dict[str, Any]:
    """PyTorch tensors from a `torch.Generator`: PyTorch's own stream, not comparable with JAX."""
    import torch

    def one(draw: Draw):
        if draw.kind == "uniform":
            return torch.rand(draw.shape, generator=generator).clamp_(min=TINY)
        if draw.kind == "normal":
            return torch.randn(draw.shape, generator=generator)
        assert draw.high is not None
        return torch.randint(draw.high, draw.shape, generator=generator, dtype=torch.int32)

    return {name: one(draw) for name, draw in spec.items()}
