"""Worlds in which each action makes one row of what is observed, and changes none that was there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from twinax import ops
from twinax.networks import SharedItems
from twinax.types import Array, Bool, Float, Int

CROWDS = 3
"""Into how many parts states are divided by how many items they show."""
LEAST_CROWDED = 4096
"""Items of a batch of trajectories from which on they are: a part is a program to compile."""


class MadeRows(ABC):
    """What the states of a world show, where each shows a choice of rows: some that were there from the beginning, and
    some that actions made.

    Then the states on the way to an object have all their rows in common with it, and a network that first reads row by
    row reads each of them once, in place of once for every state. Made rows have numbers, at most one row a number on
    the way to any object. What is `known` of them is a tree of arrays, batch first.
    """

    @property
    @abstractmethod
    def number(self) -> int:
        """How many numbers there are."""

    @abstractmethod
    def known(self, state: Any) -> Any:
        """What is known of all rows that were made on the way to a batch of states."""

    @abstractmethod
    def grown(self, known: Any, state: Any) -> tuple[Any, Int[Array, " batch"]]:
        """What is known after one more action, which led to these states, and the number of the row that it made, or
        where it made none one that no state shows; what was given is used up."""

    @abstractmethod
    def first(self, like: Any) -> Float[Array, "first features"]:
        """The rows that are there from the beginning, in the framework of an array."""

    @abstractmethod
    def made(self, known: Any) -> Float[Array, "batch made features"]:
        """The rows that were made, by number; any numbers where there is none."""

    @abstractmethod
    def newest(self, known: Any, number: Int[Array, " batch"]) -> Float[Array, "batch features"]:
        """One of these for each of the batch."""

    @abstractmethod
    def index(self, state: Any, owner: Int[Array, " rows"]) -> Int[Array, "rows items"]:
        """The row of each item, among the first ones and then those made on the way to number 0, number 1, ... of a
        batch; state i is on the way to number owner[i]."""

    @abstractmethod
    def present(self, state: Any) -> Bool[Array, "rows items"]:
        """Which items there are."""

    @property
    @abstractmethod
    def most(self) -> tuple[int, ...]:
        """How many items there are at most in a state after 0, 1, ... actions, from the source to an end."""

    def crowds(self, each: int, times: int | None = None) -> tuple[tuple[int, int], ...]:
        """The bounds of `SharedItems` for states listed time by time, `each` at every time, the first `times` or all: a
        few of them, because each is a program of its own."""
        most = self.most[:times]
        parts = np.array_split(most, CROWDS if each * sum(most) >= LEAST_CROWDED else 1)
        return tuple((each * len(some), int(max(some))) for some in parts if len(some))

    def shown(self, known: Any, state: Any, owner: Int[Array, " rows"], each: int | None = None) -> SharedItems:
        """What a network sees of states on the way to those of which all is known: `each` at every time, time by time,
        or in any order."""
        made, index = self.made(known), self.index(state, owner)
        table = ops.concat([self.first(made), made.reshape(made.shape[0] * made.shape[1], made.shape[2])])
        crowds = () if each is None else self.crowds(each, index.shape[0] // each)
        return SharedItems(table, index, self.present(state), crowds)
