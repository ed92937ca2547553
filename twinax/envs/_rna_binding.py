"""Short strands of RNA, paid for how strongly they bind a long one."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax.arguments import checked
from twinax.envs._black_box import BlackBox
from twinax.envs._sequence_rules import SequenceRules, SequenceState
from twinax.errors import MissingExtra, TwinaxError
from twinax.types import Array, Float, Int

ALPHABET = "UCGA"
PAIRS = str.maketrans("ACGU", "UGCA")
TARGETS = {
    "1": "GAACGAGGCACAUUCCGGCUCGCCCGGCCCAUGUGAGCAUGGGCCGGACCCCGUCCGCGCGGGGCCCCCGCGCGGACGGGGGCGAGCCGGAAUGUGCCUC",
    "2": "GAGGCACAUUCCGGCUCGCCCCCGUCCGCGCGGGGGCCCCGCGCGGACGGGGUCCGGCCCGCGCGGGGCCCCCGCGCGGGAGCCGGAAUGUGCCUCGUUC",
    "3": "CCGGUGAUACUGUUAGUGGUCACGGUGCAUUUAUAGCGCUAAAGUACAGUCUUCCCCUGUUGAACGGCGCCAUUGCAUACAGGGCCAGCCGCGUAACGCC",
}
"""The strands of the published tasks L14_RNA1 to L14_RNA3, by number."""


@dataclass(frozen=True)
class Binding:
    """Binding energies of strands to a target, over that of the best thinkable strand; asked on the host."""

    target: str
    """The long strand."""
    length: int
    """Letters of the short ones."""

    @property
    def norm(self) -> float:
        """The energy of the target's complement, in kcal/mol, for as many letters as a short strand has."""
        whole = self.energy(self.target[::-1].translate(PAIRS), self.target)
        return whole * self.length / len(self.target)

    def energy(self, one: str, other: str) -> float:
        """The least free energy of two strands that bind, in kcal/mol."""
        return float(_vienna().duplexfold(one, other).energy)

    def strength(self, strand: str) -> float:
        """f = energy / norm: about 1 for the best strand; below 0 where binding costs energy."""
        return self.energy(self.target, strand) / self.norm


@dataclass(frozen=True)
class Paid:
    """log R of strands; see `RNABinding`."""

    binding: Binding
    exponent: float
    height: float
    least_value: float

    def __call__(self, letters: np.ndarray) -> np.ndarray:
        strands = ["".join(ALPHABET[letter] for letter in row if letter >= 0) for row in letters]
        norm = self.binding.norm
        # A strand that is not written yet binds nothing.
        energies = [self.binding.energy(self.binding.target, strand) if strand else 0.0 for strand in strands]
        values = np.maximum(np.array(energies) / norm, self.least_value)
        return math.log(self.height) + self.exponent * np.log(values)


@checked
@dataclass(frozen=True)
class RNABinding(SequenceRules):
    """Strands of RNA, paid R = height max(f, least_value)^exponent for how strongly, f, they bind a target.

    f = E(target, x) / (E(target's complement, target) length / len(target)), with ViennaRNA's energies E of two
    strands; it is computed on the host, a millisecond for each strand that was not met before.

    >>> RNABinding("1").text(np.array([[3, 0, 2]]), 0)                          # doctest: +SKIP
    'AUG'
    """

    target: str = "1"
    """The strand to bind: 1, 2 or 3 for those of the published tasks, or letters A, C, G, U."""
    length: int = 14
    """Letters of a strand that is built."""
    order: str = "both"
    """Where the next letter goes: append, both (in front or behind), any (place), or variable (append, and stop)."""
    exponent: float = 8.0
    """Power of the strength; the higher, the more uneven the reward: 8 is published, and 40 in work on exploration."""
    height: float = 10.0
    """Reward of a strand of strength 1."""
    least_value: float = 1e-3
    """Strengths below are taken for this one, before the power: some are negative."""
    min_length: int = 1
    """Letters from which on one may stop, where the order is variable."""
    box: BlackBox = field(init=False, repr=False, compare=False)
    """What asks for energies, and remembers them."""

    def __post_init__(self):
        for name in ("exponent", "height", "least_value"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise TwinaxError(f"{name} is {value}; it must be finite and above 0")
        if not self.strand or set(self.strand) - set(ALPHABET):
            raise TwinaxError(f"target is '{self.target}'; it must be 1, 2 or 3, or a strand of letters A, C, G, U")
        self._check_sizes()
        _vienna()
        paid = Paid(Binding(self.strand, self.length), self.exponent, self.height, self.least_value)
        if not paid.binding.norm < 0:
            raise TwinaxError(f"target is '{self.target}', which does not bind its own complement; take a longer one")
        object.__setattr__(self, "box", BlackBox(paid, log=True))

    @property
    def strand(self) -> str:
        """The letters of the target."""
        return TARGETS.get(self.target, self.target)

    @property
    def places(self) -> int:
        return self.length

    @property
    def num_letters(self) -> int:
        return len(ALPHABET)

    def spell(self, letters: np.ndarray) -> str:
        return "".join(ALPHABET[letter] for letter in letters)

    def log_reward(self, state: SequenceState) -> Float[Array, " batch"]:
        return self.box.log_reward(self, state)

    def objects(self, state: Any) -> Int[Array, "batch places"]:
        return state.letters


def _vienna() -> Any:
    try:
        return importlib.import_module("RNA")
    except ImportError:
        raise MissingExtra("ViennaRNA", "rna", "RNA binding") from None
