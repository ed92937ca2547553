"""Randomness as data: what draws a step needs, and where they come from."""

from twinax.noise._draws import Draw, below
from twinax.noise._sources import generator_draws, key_draws, numpy_draws, shard_draws

__all__ = ["Draw", "below", "generator_draws", "key_draws", "numpy_draws", "shard_draws"]
