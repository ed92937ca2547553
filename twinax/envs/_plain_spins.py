"""Spins without couplings of their own, for a reward that is given or learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinax.arguments import checked
from twinax.envs._spins import SpinSystem
from twinax.errors import TwinaxError


@checked
@dataclass(frozen=True)
class PlainSpins(SpinSystem):
    """Any number of spins of -1 and 1, written at any place in any order, which pay by the reward that they are given.

    >>> import twinax as tx
    >>> data = np.array([[1, 1, -1], [1, 1, 1]])
    >>> PlainSpins(3).with_reward(tx.envs.LearnedCouplings(data)).places
    3
    """

    number: int = 16
    """Spins of a system."""

    def __post_init__(self):
        if self.number < 2:
            raise TwinaxError(f"number is {self.number}; it must be at least 2")

    @property
    def places(self) -> int:
        return self.number

    def couplings(self) -> np.ndarray:
        return np.zeros((self.number, self.number))

    def pulls(self) -> np.ndarray:
        return np.zeros(self.number)
