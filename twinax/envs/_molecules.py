"""Molecules as strings of blocks, and rewards by their properties."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax.arguments import checked
from twinax.envs import _chemistry
from twinax.envs._black_box import BlackBox
from twinax.envs._rewarded import as_reward
from twinax.envs._sequence_rules import SequenceRules
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array, Float

QM9_SMALL = (
    "C", "O", "N", "C(F)", "C(=O)", "C=C", "C#C", "c1ccc(cc1)", "C1CCC(CC1)", "C1CCN(C1)", "CCC",
)  # fmt: skip
"""The eleven blocks of the task QM9-small, written so that the first and the last atom are those that bind: benzene and
cyclohexane by opposite atoms, pyrrolidine by a carbon and its nitrogen."""
LISTS = {"qm9_small": QM9_SMALL}
"""Blocks by name."""


@checked
@dataclass(frozen=True)
class Properties:
    """R = (QED^qed x easiness^synthesis x window^log_p x bell^weight)^beta, of RDKit's properties.

    Easiness is (10 - SA score) / 9, and the bell exp(-(weight - 300)^2 / (2 x 50^2)). The window is 1 where logP is
    from `log_p_from` to `log_p_to`, and exp(-distance^2 / 2) outside. Exponents of 0 leave a property out.
    """

    qed: float = 1.0
    """Exponent of the quantitative estimate of drug-likeness."""
    synthesis: float = 0.0
    """Exponent of how easily it is made."""
    log_p: float = 0.0
    """Exponent of the window of logP."""
    weight: float = 0.0
    """Exponent of the bell around 300 daltons."""
    beta: float = 8.0
    """Exponent of the product; the higher, the more the best molecules count."""
    log_p_from: float = 1.0
    """Lower end of the window of logP."""
    log_p_to: float = 4.0
    """Upper end of the window of logP."""
    least: float = 1e-6
    """What a property counts at least, before its exponent, so that every reward is above 0; all of no molecule at
    all."""
    blocks: tuple[str, ...] = field(init=False, default=(), repr=False)
    """The world's blocks, by the numbers that a string has."""
    _box: Any = field(init=False, default=None, compare=False, repr=False)

    def __post_init__(self):
        exponents = {name: getattr(self, name) for name in ("qed", "synthesis", "log_p", "weight", "beta")}
        for name, value in exponents.items():
            if not 0 <= value < math.inf:
                raise TwinaxError(f"{name} is {value}; an exponent must be finite and not negative")
        if not 0 < self.least < 1:
            raise TwinaxError(f"least is {self.least}; it must be above 0 and below 1")
        if not -math.inf < self.log_p_from < self.log_p_to < math.inf:
            raise TwinaxError(
                f"log_p_from is {self.log_p_from} and log_p_to {self.log_p_to}; the window must end above its beginning"
            )

    def of_blocks(self, blocks: tuple[str, ...]) -> Properties:
        """The same for strings of these blocks, with a memory of its own."""
        bound = copy.copy(self)
        object.__setattr__(bound, "blocks", blocks)
        object.__setattr__(bound, "_box", BlackBox(bound.of_strings, log=True, batch_size=1))
        return bound

    def of_strings(self, letters: np.ndarray) -> np.ndarray:
        """log R of strings of numbers of blocks, -1 where there is none."""
        return np.array([self.log_reward_of(spelled(self.blocks, row)) for row in letters])

    def log_reward_of(self, smiles: str) -> float:
        """log R of one SMILES.

        >>> round(math.exp(Properties(beta=1.0).log_reward_of("c1ccccc1")), 6)      # doctest: +SKIP
        0.442628
        """
        names = [name for name in ("qed", "synthesis", "log_p", "weight") if getattr(self, name)]
        made = _chemistry.molecule(smiles)
        if not smiles:
            return self.beta * sum(getattr(self, name) for name in names) * math.log(self.least)
        logs = ((getattr(self, name), max(self._log(name, made), math.log(self.least))) for name in names)
        return self.beta * sum(exponent * value for exponent, value in logs)

    def _log(self, name: str, made: Any) -> float:
        """log of one property, as a share of the best."""
        if name == "weight":
            return -((_chemistry.weight(made) - 300) ** 2) / (2 * 50**2)
        if name == "log_p":
            value = _chemistry.log_p(made)
            return -(max(self.log_p_from - value, value - self.log_p_to, 0.0) ** 2) / 2
        share = _chemistry.drug_likeness(made) if name == "qed" else (10 - _chemistry.synthesis(made)) / 9
        return math.log(max(share, self.least))

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of molecules, each of them asked for once, on the host."""
        if self._box is None:
            raise TwinaxError(
                f"Properties pays for molecules, and {type(env).__name__} has none; give it to tx.envs.Molecules"
            )
        return self._box.log_reward(env, state)


@checked
@dataclass(frozen=True)
class Molecules(SequenceRules):
    """Strings of blocks, each bound by its last atom to the first atom of the next; see `SequenceRules` for actions.

    An object is the string: a molecule that can be read from both ends is two objects.

    >>> env = Molecules(length=2)
    >>> env.num_letters, env.text(np.array([[7, 3]]), 0)
    (11, 'c1ccc(cc1)C(F)')
    """

    length: int = 5
    """Blocks of a molecule."""
    blocks: tuple[str, ...] = ("qm9_small",)
    """The blocks: pieces of SMILES that bind by their first and their last atom, or the name of a list of them."""
    order: str = "both"
    """Where the next block goes: append, both (in front or behind), any (place), or variable (append, and stop)."""
    reward: Any = Properties()
    """What a molecule pays: `Properties`, any function of rows of block numbers, or a record of one's own."""
    min_length: int = 1
    """Blocks from which on one may stop, where the order is variable."""

    def __post_init__(self):
        if len(self.blocks) == 1 and self.blocks[0].isidentifier() and self.blocks[0].islower():
            if self.blocks[0] not in LISTS:
                raise UnknownName("list of blocks", self.blocks[0], LISTS)
            object.__setattr__(self, "blocks", LISTS[self.blocks[0]])
        reward = as_reward(self.reward)
        object.__setattr__(self, "reward", reward.of_blocks(self.blocks) if isinstance(reward, Properties) else reward)
        for block in self.blocks:
            if not block or not block.isprintable() or set(block) & {" ", "."}:
                raise TwinaxError(
                    f"the block {block!r} is no piece of SMILES; blocks are such as C, C(=O) or c1ccc(cc1)"
                )
            if self.blocks.count(block) > 1:
                raise TwinaxError(f"the block {block} stands more than once in the list; leave one out")
        self._check_sizes()

    @property
    def places(self) -> int:
        return self.length

    @property
    def num_letters(self) -> int:
        return len(self.blocks)

    def spell(self, letters: np.ndarray) -> str:
        return spelled(self.blocks, letters)

    def draw(self, objects: Any, index: int) -> np.ndarray | None:
        return _chemistry.picture(self.text(objects, index))

    def distance(self, one: Any, other: Any) -> np.ndarray:
        """One less Tanimoto's coefficient of Morgan fingerprints (radius 2, 1,024 bits)."""
        first, second = ([self.text(batch, k) for k in range(len(batch))] for batch in (one, other))
        return 1.0 - _chemistry.likeness(first, second)


def spelled(blocks: tuple[str, ...], letters: np.ndarray) -> str:
    """The SMILES of a string of numbers of blocks."""
    return "".join(blocks[letter] for letter in np.asarray(letters) if letter >= 0)
