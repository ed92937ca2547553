"""Strings of bits, written word by word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._bit_modes import BitModes, as_bits
from twinax.envs._rewarded import as_reward
from twinax.envs._sequence_rules import SequenceRules, SequenceState
from twinax.errors import TwinaxError
from twinax.types import Array, Bool, Int

WIDEST = 16
"""Bits of a word at most."""


@checked
@dataclass(frozen=True)
class BitSequences(SequenceRules):
    """n bits as n/k words of k bits, the most significant bit first; a letter is a word.

    >>> env = BitSequences(bits=16, word=4, reward=BitModes(count=4))
    >>> env.places, env.num_letters, env.text(env.objects(env.states_of([[15, 0, 1, 8]])), 0)
    (4, 16, '1111000000011000')
    """

    bits: int = 120
    """Bits of a string."""
    word: int = 8
    """Bits that one action writes."""
    order: str = "append"
    """Where the next word goes: append, both (in front or behind) or any (place)."""
    reward: Any = BitModes()
    """What a string pays: `BitModes`, any function of rows of bits, or a record of one's own."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        if not 1 <= self.word <= WIDEST:
            raise TwinaxError(f"word is {self.word}; a word has 1 to {WIDEST} bits")
        if self.bits < 1 or self.bits % self.word:
            raise TwinaxError(f"bits is {self.bits}; it must be a whole number of words of {self.word} bits")
        if self.order == "variable":
            raise TwinaxError("order is 'variable', but strings of bits have one length; take append, both or any")
        self._check_sizes()

    @property
    def places(self) -> int:
        return self.bits // self.word

    @property
    def num_letters(self) -> int:
        return 2**self.word

    @property
    def default_network(self) -> str:
        return "transformer" if self.places > 1 else "mlp"

    def spell(self, letters: np.ndarray) -> str:
        return "".join(f"{letter:0{self.word}b}" for letter in letters)

    def bits_of(self, state: SequenceState) -> Int[Array, "batch bits"]:
        """The bits, -1 where nothing has been written."""
        letters = state.letters[..., None]
        bits = (letters // ops.like(2 ** np.arange(self.word, dtype=np.int32)[::-1].copy(), letters)) % 2
        return ops.where(letters < 0, -1, bits).reshape(state.letters.shape[0], self.bits)

    def states_of(self, letters: Any) -> SequenceState:
        """Finished NumPy states of rows of bits, as `objects` gives them, or of rows of words."""
        rows = np.asarray(letters)
        if self.word > 1 and rows.ndim == 2 and rows.shape[1] == self.bits:
            return self.states_of_bits(rows)
        return super().states_of(rows)

    def states_of_bits(self, bits: np.ndarray) -> SequenceState:
        """Finished NumPy states of rows of bits."""
        words = np.asarray(bits, np.int32).reshape(len(bits), self.places, self.word)
        return self.states_of(words @ 2 ** np.arange(self.word, dtype=np.int32)[::-1])

    def objects(self, state: SequenceState) -> Int[Array, "batch bits"]:
        return self.bits_of(state)

    def text(self, objects: Any, index: int) -> str:
        return "".join("-" if bit < 0 else str(bit) for bit in np.asarray(objects)[index].tolist())

    @property
    def num_modes(self) -> int:
        return self.reward.num_modes if isinstance(self.reward, BitModes) else 0

    def modes(self, state: SequenceState) -> Bool[Array, "batch modes"]:
        return self.reward.near(self, state)

    def test_states(self, seed: int) -> SequenceState | None:
        """The published set: for each mode and each i below n, the mode with i distinct bits flipped."""
        if not isinstance(self.reward, BitModes):
            return None
        rng, modes = np.random.default_rng(seed), as_bits(self.reward.strings(self.bits))
        order = rng.random((len(modes), self.bits, self.bits)).argsort(-1)
        flipped = order < np.arange(self.bits)[None, :, None]  # a random i of the n bits
        return self.states_of_bits((modes[:, None] ^ flipped).reshape(-1, self.bits))
