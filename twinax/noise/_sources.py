"""Sources of draws.

`key_draws` is a pure function of (seed, step, stream): the same numbers in every engine, in any order
of chunks, so a resumed run needs no generator state. Draws are float32 and are widened by the
engine, so a float64 run repeats the choices of a float32 one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.noise._draws import Draw
from twinax.noise._threefry import threefry


def key_draws(spec: Mapping[str, Draw], seed, step, stream: int = 0) -> dict[str, Any]:
    """JAX arrays for one step; traceable, so it stands inside the compiled loop.

    `stream` is 0 or 1: draws for training and for evaluation never meet.
    """
    if stream not in (0, 1):
        raise TwinaxError(f"the stream of draws is {stream}; it must be 0 or 1")
    seed = np.uint32(seed) if isinstance(seed, int) else seed  # a Python integer may be beyond JAX's default
    return _compiled()(tuple(sorted(spec.items())), seed, step, stream)


@functools.cache
def _compiled():
    import jax

    return jax.jit(_key_draws, static_argnums=(0, 3))


def shard_draws(spec: Mapping[str, Draw], seed, step, shard, number: int) -> dict[str, Any]:
    """What the shard of that index, of `number`, gets of `key_draws` for training; others' numbers are never made."""
    return _key_draws(tuple(sorted(spec.items())), seed, step, 0, (shard, number))


def _key_draws(
    spec: tuple[tuple[str, Draw], ...], seed, step, stream: int, shard: tuple[Any, int] | None = None
) -> dict[str, Any]:
    import jax.numpy as jnp

    key = (jnp.asarray(seed, jnp.uint32), jnp.asarray(step).astype(jnp.uint32) * 2 + jnp.uint32(stream))
    found = {}
    for place, (name, draw) in enumerate(spec):
        # The counter is the number's index in its array, and the array's place among the names.
        index = _indices(draw, shard)
        found[name] = _from_bits(threefry(key, (index, jnp.uint32(place)))[0], draw)
    return found


def _indices(draw: Draw, shard: tuple[Any, int] | None):
    """Each number's index in the whole array."""
    import jax.numpy as jnp
    from jax.lax import iota

    if shard is None or draw.divided is None:
        return iota(jnp.uint32, math.prod(draw.shape)).reshape(draw.shape)
    place, number = shard
    axis, whole = draw.divided, draw.shape[draw.divided]
    before, after = math.prod(draw.shape[:axis]), math.prod(draw.shape[axis + 1 :])
    part = whole // number
    row = iota(jnp.uint32, part) + jnp.asarray(place, jnp.uint32) * jnp.uint32(part)
    first = iota(jnp.uint32, before)[:, None, None] * jnp.uint32(whole * after)
    index = first + row[None, :, None] * jnp.uint32(after) + iota(jnp.uint32, after)
    return index.reshape(*draw.shape[:axis], part, *draw.shape[axis + 1 :])


def _from_bits(bits, draw: Draw):
    import jax
    import jax.numpy as jnp

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
    """PyTorch tensors from a `torch.Generator`, on its device: PyTorch's own stream, not comparable with JAX."""
    import torch

    device = generator.device

    def one(draw: Draw):
        if draw.kind == "uniform":
            uniform = torch.rand(draw.shape, generator=generator, dtype=torch.float32, device=device)
            return uniform.clamp_(min=2.0**-24)
        if draw.kind == "normal":
            return torch.randn(draw.shape, generator=generator, dtype=torch.float32, device=device)
        assert draw.high is not None
        return torch.randint(draw.high, draw.shape, generator=generator, dtype=torch.int32, device=device)

    return {name: one(draw) for name, draw in spec.items()}
