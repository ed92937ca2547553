"""The shared stream for engines that step in Python: many steps' draws from one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.noise import Draw, key_draws

BLOCK_NUMBERS = 1_000_000
"""About how many numbers are drawn at once."""


class DrawBlocks:
    """`at(seed, step)` gives the same numbers as `key_draws`, a block of steps at a time."""

    def __init__(self, spec: Mapping[str, Draw], options: dict[str, Any] | None = None):
        per_step = sum(int(np.prod(draw.shape)) for draw in spec.values())
        self.length = int(np.clip(BLOCK_NUMBERS // max(per_step, 1), 1, 64))
        self._block = _compiled(tuple(spec.items()), tuple((options or {}).items()))
        self._held: tuple[int, int] | None = None
        self._values: dict[str, np.ndarray] = {}

    def at(self, seed: int, step: int) -> dict[str, np.ndarray]:
        """NumPy arrays of one step."""
        first = step - step % self.length
        if self._held != (seed, first):
            steps = np.arange(first, first + self.length, dtype=np.int32)
            self._values = {k: np.array(v) for k, v in self._block(np.uint32(seed), steps).items()}
            self._held = (seed, first)
        return {k: v[step - first, ...] for k, v in self._values.items()}


@functools.lru_cache(maxsize=8)
def _compiled(spec: tuple[tuple[str, Draw], ...], options: tuple[tuple[str, Any], ...]) -> Any:
    """One program for all who ask for the same draws: engines of several modes do."""
    import jax

    block = jax.vmap(lambda seed, step: key_draws(dict(spec), seed, step), (None, 0))
    return jax.jit(block, compiler_options=dict(options) or None)
