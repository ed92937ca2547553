"""The rules of words over an alphabet: written from the left, at both ends, in any order, or until one stops."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from twinax import ops
from twinax.envs._edit_distance import edit_distances
from twinax.envs._environment import Environment
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import Tokens
from twinax.types import Array, Bool, Float, Int

ORDERS = ("append", "both", "any", "variable")
"""Where the next letter may go."""
MOST_ACTIONS = 2**20
"""Each has a logit and an entry in a mask."""
MOST_STEPS = 2**20
"""Counted in int32, together with actions."""


class SequenceState(NamedTuple):
    """What has been written, and whether it is finished."""

    letters: Int[Array, "batch places"]
    """Numbers of letters; -1 where nothing has been written."""
    done: Bool[Array, " batch"]


class SequenceRules(Environment):
    """What all worlds of sequences share; a subclass is a frozen dataclass with the field `order`.

    Orders, for V letters and L places:

    - `append`: action v writes the letter v behind the others; there is one way to each sequence.
    - `both`: action v writes it in front, V + v behind; backward action 0 takes the first, 1 the last. The first letter
      can be written in two ways, which are two edges.
    - `any`: action place x V + v writes at a place, and the backward action `place` wipes it.
    - `variable`: as `append`, but action V stops, from `min_length` letters on; at L letters nothing else is allowed.
    """

    order: str
    min_length: int = 1

    @property
    @abstractmethod
    def places(self) -> int:
        """Letters of the longest sequence."""

    @property
    @abstractmethod
    def num_letters(self) -> int:
        """Letters of the alphabet."""

    @abstractmethod
    def spell(self, letters: np.ndarray) -> str:
        """Written letters, given by their numbers, as text."""

    def _check_sizes(self) -> None:
        """What every subclass asks of its fields."""
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)
        world = type(self).__name__
        if self.places < 1 or self.num_letters < 1:
            raise TwinaxError(
                f"{world} has {self.places} places for {self.num_letters} letters; it needs at least 1 of each"
            )
        if not 0 <= self.min_length <= self.places:
            raise TwinaxError(f"min_length is {self.min_length}; it must be from 0 to the {self.places} places")
        if self.num_actions > MOST_ACTIONS or self.places > MOST_STEPS:
            raise TwinaxError(
                f"{world} has {self.places:,} places and {self.num_actions:,} actions; it may have at most "
                f"{MOST_ACTIONS:,} of each: take fewer letters, or order=append"
            )

    @property
    def num_actions(self) -> int:
        ways = {"append": self.num_letters, "both": 2 * self.num_letters, "variable": self.num_letters + 1}
        return ways.get(self.order, self.places * self.num_letters)

    @property
    def num_backward_actions(self) -> int:
        return {"both": 2, "any": self.places}.get(self.order, 1)

    @property
    def max_steps(self) -> int:
        return self.places + (self.order == "variable")

    @property
    def stops(self) -> bool:
        return self.order == "variable"

    @property
    def fixed_length(self) -> bool:
        return self.order != "variable"

    @property
    def in_order(self) -> bool:
        return self.order in ("append", "variable")

    @property
    def action_shape(self) -> tuple[int, ...]:
        shapes = {"both": (2, self.num_letters), "any": (self.places, self.num_letters)}
        return shapes.get(self.order, (self.num_actions,))

    @property
    def num_states(self) -> int:
        sizes = [self.num_letters**k for k in range(self.places + 1)]
        if self.order == "any":
            return (self.num_letters + 1) ** self.places
        return sum(sizes) + (sum(sizes[self.min_length :]) if self.order == "variable" else 0)

    def reset(self, batch: int) -> SequenceState:
        return SequenceState(np.full((batch, self.places), -1, np.int32), np.zeros((batch,), bool))

    def step(self, state: SequenceState, action: Int[Array, " batch"]) -> SequenceState:
        letters, done = state
        action, rows = ops.cast(action, "int32")[:, None], ~done[:, None]
        letter = action % self.num_letters
        if self.order == "any":
            here = self._places(letters) == action // self.num_letters
            return self._full(ops.where(here & rows, letter, letters))
        here = (self._places(letters) == self._length(letters)[:, None]) & rows
        if self.order == "variable":
            stop = action == self.num_letters
            return SequenceState(ops.where(here & ~stop, letter, letters), done | stop[:, 0])
        behind = ops.where(here, letter, letters)
        if self.order == "append":
            return self._full(behind)
        in_front = ops.concat([letter, letters[:, :-1]], 1)
        return self._full(ops.where((action < self.num_letters) & rows, in_front, behind))

    def backward_step(self, state: SequenceState, action: Int[Array, " batch"]) -> SequenceState:
        letters, done = state
        if self.order == "any":
            here = self._places(letters) == ops.cast(action, "int32")[:, None]
            return SequenceState(ops.where(here, -1, letters), done & False)
        last = self._places(letters) == self._length(letters)[:, None] - 1
        if self.order == "variable":
            last = last & ~done[:, None]
        shorter = ops.where(last, -1, letters)
        if self.order == "both":
            without_first = ops.concat([letters[:, 1:], ops.full((letters.shape[0], 1), -1, letters)], 1)
            shorter = ops.where((action == 0)[:, None], without_first, shorter)
        return SequenceState(shorter, done & False)

    def forward_mask(self, state: SequenceState) -> Bool[Array, "batch actions"]:
        letters, done = state
        batch = letters.shape[0]
        if self.order == "any":
            each = ops.broadcast((letters < 0)[..., None], (batch, self.places, self.num_letters))
            return each.reshape(batch, self.num_actions)
        if self.order != "variable":
            return ops.broadcast(~done[:, None], (batch, self.num_actions))
        length = self._length(letters)
        write = ops.broadcast(((length < self.places) & ~done)[:, None], (batch, self.num_letters))
        return ops.concat([write, ((length >= self.min_length) & ~done)[:, None]], 1)

    def backward_mask(self, state: SequenceState) -> Bool[Array, "batch backward_actions"]:
        letters, done = state
        if self.order == "any":
            return letters >= 0
        begun = letters[:, :1] >= 0
        if self.order == "variable":
            return begun & ~done[:, None]
        return ops.concat([begun, begun], 1) if self.order == "both" else begun

    def backward_action(self, state: SequenceState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return action // self.num_letters if self.order in ("both", "any") else 0 * action

    def forward_action(self, state: SequenceState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        letters = state.letters
        if self.order == "any":
            return action * self.num_letters + ops.maximum(ops.take_along(letters, action), 0 * action)
        last = ops.maximum(ops.take_along(letters, ops.clip(self._length(letters) - 1, 0, self.places - 1)), 0 * action)
        if self.order != "both":
            return last
        first = ops.maximum(letters[:, 0], 0 * action)
        return ops.where(action == 0, first, self.num_letters + last)

    def observe(self, state: SequenceState) -> Tokens:
        """The letters with V for an empty place, behind a token V + 1 at which every sequence begins."""
        letters = state.letters
        empty, begin = self.num_letters, self.num_letters + 1
        written = ops.where(letters < 0, empty, letters)
        first = ops.full((letters.shape[0], 1), begin, letters)
        return Tokens(ops.concat([first, written], 1), self.num_letters + 2, empty, begin)

    def log_paths_ratio(self, state: SequenceState) -> Float[Array, "batch backward_actions"]:
        # append, variable: one way; both: 2^k ways to k letters; any: k!. All parents have equally many.
        return ops.zeros((state.letters.shape[0], self.num_backward_actions), state.letters, "float32")

    def text(self, objects: Any, index: int) -> str:
        letters = np.asarray(objects)[index]
        if self.order == "any" and (letters < 0).any():
            return "".join(self.spell(letters[k : k + 1]) if letters[k] >= 0 else "-" for k in range(len(letters)))
        return self.spell(letters[letters >= 0])

    def distance(self, one: Any, other: Any) -> np.ndarray:
        """Letters that differ; in worlds of variable length those to insert, delete or exchange."""
        if self.order == "variable":
            return edit_distances(np.asarray(one), np.asarray(other))
        return super().distance(one, other)

    def index(self, state: SequenceState) -> Int[Array, " batch"]:
        """The number of a full sequence, the first letter counting most: its row in a table over all of them."""
        powers = np.array([self.num_letters**k for k in reversed(range(self.places))], np.int32)
        letters = ops.maximum(state.letters, 0 * state.letters)
        return ops.cast(ops.sum(letters * ops.like(powers, letters), -1), "int32")

    def states_of(self, letters: Any) -> SequenceState:
        """Finished NumPy states of rows of letters."""
        letters = np.asarray(letters, np.int32)
        return SequenceState(letters, np.ones(len(letters), bool))

    def _full(self, letters: Any) -> SequenceState:
        # Where one writes from the left, the last place says it.
        return SequenceState(letters, ops.all(letters >= 0, -1) if self.order == "any" else letters[:, -1] >= 0)

    def _length(self, letters: Any) -> Int[Array, " batch"]:
        return ops.cast(ops.sum(ops.cast(letters >= 0, "int32"), -1), "int32")

    def _places(self, letters: Any) -> Int[Array, "1 places"]:
        return ops.arange(self.places, letters)[None]
