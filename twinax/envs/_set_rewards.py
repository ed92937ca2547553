"""What sets and bags are worth."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.types import Array, Float, Int

LONGEST_TABLE = 2_000_000
"""Bags whose rewards are written down, at most."""


@checked
@dataclass(frozen=True)
class ItemWeights:
    """R of a set is the product of the weights of its items."""

    weights: tuple[float, ...] = ()
    """The weight of each item, above 0; empty: 2.5/n, 5/n, ... up to 2.5 for the n items of the world."""

    def __post_init__(self):
        for item, weight in enumerate(self.weights):
            if not (math.isfinite(weight) and weight > 0):
                raise TwinaxError(f"weights gives item {item} the weight {weight}; it must be finite and above 0")

    def refuse(self, env: Any) -> None:
        """Raise a sentence if there is not one weight for each item of a world."""
        if self.weights and len(self.weights) != env.number:
            raise TwinaxError(f"weights has {len(self.weights)} weights for {env.number} items; give one for each")

    def _log_weights(self, env: Any) -> np.ndarray:
        self.refuse(env)
        return np.log(self.weights or 2.5 * np.arange(1, env.number + 1) / env.number)

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """The logarithms of the weights."""
        return {"log_weights": self._log_weights(env)}

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """Sum of the logarithms, of the items that are inside."""
        weights = env.constant("log_weights", state.items)
        return ops.sum(ops.cast(state.items, weights) * weights, -1)

    def log_partition(self, env: Any) -> float:
        """log of the elementary symmetric polynomials of the weights, of one size or of all up to it."""
        sums = np.full(env.size + 1, -np.inf)
        sums[0] = 0.0
        for weight in self._log_weights(env):
            sums[1:] = np.logaddexp(sums[1:], sums[:-1] + weight)
        return float(np.logaddexp.reduce(sums) if env.stop else sums[-1])


@checked
@dataclass(frozen=True)
class BagModes:
    """R is 10 for bags with at least 7 equal letters, 30 for a quarter of those, its modes, and 0.01 for all others."""

    equal: int = 7
    """So many equal letters make a bag good."""
    best: float = 30.0
    """Reward of a mode."""
    good: float = 10.0
    """Reward of other good bags."""
    other: float = 0.01
    """Reward of all others."""
    share: float = 0.25
    """Which share of the good bags are modes."""
    seed: int = 0
    """Which of the good bags are modes follows from it."""

    def __post_init__(self):
        for name in ("best", "good", "other"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise TwinaxError(f"{name} is {value}; it must be finite and above 0")
        if not 0 <= self.share <= 1:
            raise TwinaxError(f"share is {self.share}; it must be from 0 to 1")

    def refuse(self, env: Any) -> None:
        """Raise a sentence if a world has more bags than are written down."""
        if (number := _number(env)) > LONGEST_TABLE:
            raise TwinaxError(
                f"BagModes writes down the rewards of all bags, and letters={env.letters}, draws={env.draws} make "
                f"{number:,}; take at most {LONGEST_TABLE:,}, or a reward of your own"
            )

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """The mode of each bag by its number (-1 for good ones that are none, -2 for others), and what its number is
        made of."""
        return {"bag_modes": _table(self, env.letters, env.draws), "binomials": _binomials(env.letters, env.draws)}

    def _kind(self, env: Any, counts: Int[Array, "batch letters"]) -> Int[Array, " batch"]:
        # A bag that is not full yet has some other bag's number.
        table = env.constant("bag_modes", counts)
        return ops.take(table, rank(counts, env.constant("binomials", counts)))

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of full bags."""
        kind = ops.clip(self._kind(env, state.counts), -2, 0) + 2
        return ops.take(ops.like(np.log([self.other, self.good, self.best]), kind), kind)

    def num_modes(self, env: Any) -> int:
        """A quarter of the good bags, by default."""
        # Read of NumPy's table, not of the world's constants: within a program those are no numbers yet.
        return max(0, int(_table(self, env.letters, env.draws).max()) + 1)

    def mode(self, env: Any, counts: Int[Array, "batch letters"]) -> Int[Array, " batch"]:
        """Which mode a bag is, -1 for none."""
        kind = self._kind(env, counts)
        return ops.where(kind < 0, -1, kind)

    def log_partition(self, env: Any) -> float:
        """By counting."""
        kinds = np.clip(_table(self, env.letters, env.draws), -2, 0) + 2
        return float(np.log(np.array([self.other, self.good, self.best])[kinds].sum()))


def all_bags(letters: int, draws: int) -> np.ndarray:
    """The counts of every bag of so many draws."""
    bars = np.array(list(combinations(range(draws + letters - 1), letters - 1)))
    edges = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), draws + letters - 1)])
    return (np.diff(edges, axis=1) - 1).astype(np.int32)


def rank(counts: Int[Array, "*batch letters"], binomials: Int[Array, "bars places"]) -> Int[Array, "*batch"]:
    """The number of a bag: its letters are parted by bars, and the places of the bars are a combination."""
    letters = counts.shape[-1]
    bars = ops.cumsum(counts, -1)[..., : letters - 1] + ops.arange(letters - 1, counts)
    columns = binomials.shape[1]
    places = ops.cast(ops.clip(bars, 0, columns - 1), "int32") + ops.arange(letters - 1, counts) * columns
    return ops.cast(ops.sum(ops.take(binomials.reshape(-1), places), -1), "int32")


def _number(env: Any) -> int:
    return math.comb(env.draws + env.letters - 1, env.letters - 1)


def _binomials(letters: int, draws: int) -> np.ndarray:
    # Before a bar are the bars before it and at most all letters of a bag; what is beyond is never read, and may not
    # fit into an int32.
    table = np.zeros((letters - 1, draws + letters - 1), np.int32)
    for bar in range(letters - 1):
        table[bar, : draws + bar + 1] = [math.comb(place, bar + 1) for place in range(draws + bar + 1)]
    return table


@functools.lru_cache(maxsize=8)
def _table(reward: BagModes, letters: int, draws: int) -> np.ndarray:
    """The mode of each bag by its number, -1 for good ones that are none, -2 for others."""
    counts = all_bags(letters, draws)
    numbers = rank(counts, _binomials(letters, draws))
    good = np.flatnonzero(counts.max(1) >= reward.equal)
    modes = np.random.default_rng(reward.seed).permutation(good)[: round(reward.share * len(good))]
    table = np.full(len(counts), -2, np.int32)
    table[numbers[good]] = -1
    table[numbers[np.sort(modes)]] = np.arange(len(modes))
    table.setflags(write=False)
    return table
