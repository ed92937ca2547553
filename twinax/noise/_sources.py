"""Sources of draws.

`key_draws` is a pure function of (seed, step, stream): the same numbers in every engine, in any order
of chunks, so a resumed run needs no generator state. Draws are float32 and are widened by the
engine, so a float64 run repeats the choices of a float32 one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.noise._draws import Draw


def key_draws(spec: Mapping[str, Draw], seed, step, stream: int = 0) -> dict[str, Any]:
    """JAX arrays for one step; traceable, so it stands inside the compiled loop.

    `stream` is 0 or 1: draws for training and for evaluation never meet. All arrays are cut from one block of
    bits, in the order of their names: a key derivation of its own for each would cost more than the numbers.
    """
    import jax
    import jax.numpy as jnp

    if stream not in (0, 1):
        raise TwinaxError(f"the stream of draws is {stream}; it must be 0 or 1")
    # Threefry is a cipher of a counter under a two-word key: (seed, step) is that key.
    words = [jnp.asarray(seed, jnp.uint32), jnp.asarray(step).astype(jnp.uint32) * 2 + jnp.uint32(stream)]
    key = jax.random.wrap_key_data(jnp.stack(words), impl="threefry2x32")
    sizes = {name: int(np.prod(spec[name].shape)) for name in sorted(spec)}
    bits = jax.random.bits(key, (sum(sizes.values()),), jnp.uint32)
    ends = dict(zip(sizes, np.cumsum(list(sizes.values())).tolist(), strict=True))
    return {name: _from_bits(bits[ends[name] - sizes[name] : ends[name]], draw) for name, draw in spec.items()}


def _from_bits(bits, draw: Draw):
    import jax
    import jax.numpy as jnp

    bits = bits.reshape(draw.shape)
    if draw.kind == "integers":
        return (bits % jnp.uint32(draw.high)).astype(jnp.int32)
    # 23 bits and a half: never 0, never 1, every value exact in float32
    uniform = ((bits >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
    if draw.kind == "uniform":
        return uniform
    return jnp.float32(np.sqrt(2.0)) * jax.lax.erf_inv(2.0 * uniform - 1.0)


def numpy_draws(
    spec: Mapping[str, Draw], seed: int | np.integer, step: int | np.integer, stream: int = 0
) -> dict[str, np.ndarray]:
    """The same numbers as `key_draws`, as NumPy arrays."""
    return {name: np.asarray(value) for name, value in key_draws(spec, seed, step, stream).items()}


def generator_draws(spec: Mapping[str, Draw], generator) -> dict[str, Any]:
    """PyTorch tensors from a `torch.Generator`: PyTorch's own stream, not comparable with JAX."""
    import torch

    def one(draw: Draw):
        if draw.kind == "uniform":
            return torch.rand(draw.shape, generator=generator, dtype=torch.float32).clamp_(min=2.0**-24)
        if draw.kind == "normal":
            return torch.randn(draw.shape, generator=generator, dtype=torch.float32)
        assert draw.high is not None
        return torch.randint(draw.high, draw.shape, generator=generator, dtype=torch.int32)

    return {name: one(draw) for name, draw in spec.items()}
