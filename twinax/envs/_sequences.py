"""Sequences over an alphabet of one's own, and the first example: a reward for doubled letters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._rewarded import as_reward
from twinax.envs._sequence_rules import SequenceRules, SequenceState
from twinax.errors import TwinaxError
from twinax.types import Array, Float, Int


@checked
@dataclass(frozen=True)
class DoubledLetters:
    """R = (number of doubled letters / half the length)^beta: `aa`, `bb`, `cc` in `aabbacc` are three.

    Doubled letters do not overlap, as Python's `count` has it: `aaa` has one. A sequence has the length's half of them
    at most, which pays 1.
    """

    beta: float = 1.0
    """Power of the share of letters that are doubled; the higher, the more uneven the reward."""
    least: float = 1e-3
    """Reward of what has fewer: it must be above 0, or log R is not finite."""

    def __post_init__(self):
        if not (math.isfinite(self.beta) and math.isfinite(self.least) and self.least > 0):
            raise TwinaxError(
                f"doubled letters have beta={self.beta}, least={self.least}; both must be finite and least above 0"
            )

    def count(self, state: SequenceState) -> Int[Array, " batch"]:
        """How many letters are doubled."""
        letters = state.letters
        number = 0 * letters[:, 0]
        paired = number < 0  # whether the letter before is the second of a pair
        for place in range(1, letters.shape[1]):
            paired = (letters[:, place] == letters[:, place - 1]) & (letters[:, place] >= 0) & ~paired
            number = number + ops.cast(paired, number)
        return number

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of finished sequences."""
        require_sequences(self, env, state)
        most = env.places // 2
        shares = np.arange(most + 1) / max(env.places / 2, 1)
        table = np.log(np.maximum(shares**self.beta, self.least))
        return ops.take(ops.like(table, state.letters), self.count(state))


@checked
@dataclass(frozen=True)
class Sequences(SequenceRules):
    """Sequences of letters, built in one of four orders; see `SequenceRules` for their actions.

    >>> env = Sequences(length=3, alphabet="ab", order="append")
    >>> env.num_states, env.max_steps
    (15, 3)
    """

    length: int = 10
    """Letters of the longest sequence."""
    alphabet: str = "abc"
    """The letters, one character each."""
    order: str = "variable"
    """Where the next letter goes: append, both (in front or behind), any (place), or variable (append, and stop)."""
    reward: Any = DoubledLetters()
    """What a sequence pays: `DoubledLetters`, any function of rows of letter numbers, or a record of one's own."""
    min_length: int = 1
    """Letters from which on one may stop, where the order is variable."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        if len(set(self.alphabet)) != len(self.alphabet):
            twice = next(letter for letter in self.alphabet if self.alphabet.count(letter) > 1)
            raise TwinaxError(f"alphabet is '{self.alphabet}', in which '{twice}' stands more than once; leave one out")
        self._check_sizes()

    @property
    def places(self) -> int:
        return self.length

    @property
    def num_letters(self) -> int:
        return len(self.alphabet)

    def spell(self, letters: np.ndarray) -> str:
        return "".join(self.alphabet[letter] for letter in letters)


def require_sequences(reward: Any, env: Any, state: Any) -> None:
    """Refuse a world whose states are no sequences."""
    if not isinstance(state, SequenceState):
        world = getattr(env, "env", env)  # one that was given this reward has it inside
        raise TwinaxError(
            f"{type(reward).__name__} pays for sequences of letters, and {type(world).__name__} has none; name a "
            "reward of your own, or Uniform"
        )
