"""The reward of bit sequences: how near the nearest of some hidden strings is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._edit_distance import edit_distance
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array, Bool, Float, Int

BLOCKS = ("00000000", "11111111", "11110000", "00001111", "00111100")
"""What hidden strings are made of."""
DISTANCES = ("hamming", "edit")
DRAWN_AT_ONCE = 1000
"""Strings drawn at a time until enough of them are distinct."""


@checked
@dataclass(frozen=True)
class BitModes:
    """log R = -beta d / scale, with the distance d to the nearest of some hidden strings, the modes.

    A mode is a row of blocks of eight bits, drawn evenly from five blocks; no two modes are equal.

    >>> BitModes(count=2).strings(16)
    ('0011110000001111', '1111000011111111')
    """

    beta: float = 3.0
    """How much a step away costs; published are 3 with the scale n, 2 and 1 with the scale 1."""
    scale: float | None = None
    """Number that distances are divided by; null: the number of bits n."""
    distance: str = "hamming"
    """What a distance counts: hamming, bits that differ, or edit, bits to insert, delete or exchange."""
    count: int = 60
    """Number of hidden strings, where they are drawn."""
    seed: int = 0
    """Seed that says which hidden strings are drawn."""
    within: int | None = None
    """A string belongs to the modes at this distance or nearer; null: a quarter of the bits, 30 of 120."""
    modes: tuple[str, ...] = ()
    """Hidden strings of one's own in place of drawn ones, such as 0000000011110000."""

    def __post_init__(self):
        if not (math.isfinite(self.beta) and (self.scale is None or (math.isfinite(self.scale) and self.scale > 0))):
            raise TwinaxError(
                f"bit modes have beta={self.beta}, scale={self.scale}; both must be finite and scale above 0"
            )
        if self.distance not in DISTANCES:
            raise UnknownName("distance", self.distance, DISTANCES)
        if self.count < 1:
            raise TwinaxError(f"count is {self.count}; there must be at least 1 mode")
        if self.within is not None and self.within < 0:
            raise TwinaxError(f"within is {self.within}; it must be at least 0")
        object.__setattr__(self, "modes", tuple(map(str, self.modes)))
        for k, mode in enumerate(self.modes):
            if set(mode) - {"0", "1"}:
                raise TwinaxError(f"modes has '{mode}'; a mode is written in the letters 0 and 1")
            if mode in self.modes[:k]:
                raise TwinaxError(f"modes has {mode} twice; leave one out")

    @property
    def num_modes(self) -> int:
        """Hidden strings, drawn or given."""
        return len(self.modes) or self.count

    def strings(self, bits: int) -> tuple[str, ...]:
        """The hidden strings of a world of so many bits."""
        if wrong := [mode for mode in self.modes if len(mode) != bits]:
            raise TwinaxError(f"modes has {wrong[0]} of {len(wrong[0])} bits in a world of {bits}; they must be equal")
        if self.modes:
            return self.modes
        if bits % 8:
            raise TwinaxError(f"{bits} bits are no whole number of blocks of 8; give modes of your own, or more bits")
        if self.count > len(BLOCKS) ** (bits // 8):
            raise TwinaxError(
                f"{self.count} modes of {bits} bits cannot be distinct, since {len(BLOCKS)} kinds of blocks of "
                f"8 bits make only {len(BLOCKS) ** (bits // 8)}; ask for fewer with BitModes(count=...), proxy.count "
                "on the command line, or for longer strings"
            )
        rng, found = np.random.default_rng(self.seed), {}
        while len(found) < self.count:  # a string that was drawn before is passed over
            for row in rng.integers(0, len(BLOCKS), (DRAWN_AT_ONCE, bits // 8)):
                found.setdefault("".join(BLOCKS[block] for block in row))
        return tuple(found)[: self.count]

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """The bits of the hidden strings."""
        return {"bit_modes": as_bits(self.strings(_bits_of(self, env)))}

    def distances(self, env: Any, state: Any) -> Int[Array, "batch modes"]:
        """The distance of each string to each mode; what is not written yet counts as 0."""
        bits = env.bits_of(state)
        modes = env.constant("bit_modes", bits)
        if self.distance == "edit":
            return edit_distance(ops.maximum(bits, 0 * bits), modes)
        # Whole numbers below 2^24 are exact in float32, in which products of matrices are quick.
        ones, wanted = ops.cast(bits > 0, "float32"), ops.cast(modes, "float32")
        return ops.cast(ones @ ops.transpose(1 - wanted) + (1 - ones) @ ops.transpose(wanted), "int32")

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of finished strings."""
        bits = _bits_of(self, env)
        table = -self.beta * np.arange(bits + 1) / (self.scale or bits)
        nearest = ops.min(self.distances(env, state), -1)
        return ops.take(ops.like(table, nearest), nearest)

    def near(self, env: Any, state: Any) -> Bool[Array, "batch modes"]:
        """Which modes a string belongs to."""
        within = _bits_of(self, env) // 4 if self.within is None else self.within
        return self.distances(env, state) <= within


def as_bits(strings: tuple[str, ...]) -> np.ndarray:
    """Strings of 0 and 1 as rows of numbers."""
    return np.array([[int(bit) for bit in string] for string in strings], np.int32)


def _bits_of(reward: Any, env: Any) -> int:
    bits = getattr(env, "bits", None)
    if not isinstance(bits, int) or not hasattr(env, "bits_of"):
        world = getattr(env, "env", env)  # one that was given this reward has it inside
        raise TwinaxError(
            f"{type(reward).__name__} pays for strings of bits, and {type(world).__name__} has none; name a reward of "
            "your own, or Uniform"
        )
    return bits
