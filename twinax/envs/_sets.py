"""Sets and bags: items are added in any order, and only what is inside counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._environment import Environment
from twinax.envs._rewarded import as_reward
from twinax.envs._set_rewards import BagModes, ItemWeights
from twinax.errors import TwinaxError
from twinax.networks import Tokens
from twinax.types import Array, Bool, Float, Int


class SetState(NamedTuple):
    """Which items are in each set."""

    items: Int[Array, "batch number"]
    """1 for items that are in it, 0 for the others."""
    done: Bool[Array, " batch"]


class BagState(NamedTuple):
    """How often each letter is in each bag."""

    counts: Int[Array, "batch letters"]
    done: Bool[Array, " batch"]


@checked
@dataclass(frozen=True)
class Sets(Environment):
    """Sets of some of `number` items: action i adds item i.

    A set is finished when it has `size` items; with `stop`, the last action finishes it before, at any size.

    >>> round(Sets(number=5, size=2).log_partition, 6)
    3.056357
    """

    number: int = 30
    """Items that there are."""
    size: int = 20
    """Items in a finished set; with `stop`, at most so many."""
    stop: bool = False
    """Whether a set of any size can be finished, the empty one too."""
    reward: Any = ItemWeights()
    """What a set pays: `ItemWeights`, any function of sets, or a record of one's own."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        if not 1 <= self.size <= self.number:
            raise TwinaxError(f"size is {self.size} of number={self.number} items; it must be from 1 to {self.number}")
        _fits(self.reward, self)

    @property
    def stops(self) -> bool:
        return self.stop

    @property
    def fixed_length(self) -> bool:
        return not self.stop

    @property
    def num_actions(self) -> int:
        return self.number + self.stop

    @property
    def num_backward_actions(self) -> int:
        return self.number

    @property
    def max_steps(self) -> int:
        return self.size + self.stop

    @property
    def num_states(self) -> int:
        sets = sum(math.comb(self.number, size) for size in range(self.size + 1))
        return 2 * sets if self.stop else sets

    def reset(self, batch: int) -> SetState:
        return SetState(np.zeros((batch, self.number), np.int32), np.zeros((batch,), bool))

    def step(self, state: SetState, action: Int[Array, " batch"]) -> SetState:
        # The stop action is beyond the items and adds none.
        added = ops.one_hot(action, self.number, "int32") * ops.cast(~state.done, "int32")[..., None]
        items = ops.maximum(state.items, added)
        finished = (action == self.number) if self.stop else _total(items) >= self.size
        return SetState(items, state.done | finished)

    def backward_step(self, state: SetState, action: Int[Array, " batch"]) -> SetState:
        taken = ops.one_hot(action, self.number, "int32")
        items = state.items * (1 - taken)
        if self.stop:
            items = ops.where(state.done[..., None], state.items, items)
        return SetState(items, state.done & False)

    def forward_mask(self, state: SetState) -> Bool[Array, "batch actions"]:
        going = ~state.done[..., None]
        room = (state.items == 0) & going & (_total(state.items) < self.size)[..., None]
        return ops.concat([room, going], -1) if self.stop else room

    def backward_mask(self, state: SetState) -> Bool[Array, "batch number"]:
        inside = state.items > 0
        return inside & ~state.done[..., None] if self.stop else inside

    def observe(self, state: SetState) -> Float[Array, "batch number"]:
        return ops.cast(state.items, "float32")

    def log_paths_ratio(self, state: SetState) -> Float[Array, "batch number"]:
        # k items can have come in k! orders, whichever was the last.
        return ops.zeros(state.items.shape, state.items, "float32")

    def text(self, objects: Any, index: int) -> str:
        return "{" + ", ".join(str(item) for item in np.flatnonzero(np.asarray(objects)[index])) + "}"


@checked
@dataclass(frozen=True)
class Bags(Environment):
    """Bags of `draws` letters, of which only the counts are known: action i puts letter i in.

    >>> Bags(letters=7, draws=13).num_states
    77520
    """

    letters: int = 7
    """How many kinds of letters there are."""
    draws: int = 13
    """Letters in a finished bag."""
    reward: Any = BagModes()
    """What a bag pays: `BagModes`, any function of counts, or a record of one's own."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        for name, least in (("letters", 2), ("draws", 1)):
            if (value := getattr(self, name)) < least:
                raise TwinaxError(f"{name} is {value}; it must be at least {least}")
        _fits(self.reward, self)

    @property
    def stops(self) -> bool:
        return False

    @property
    def fixed_length(self) -> bool:
        return True

    @property
    def num_actions(self) -> int:
        return self.letters

    @property
    def num_backward_actions(self) -> int:
        return self.letters

    @property
    def max_steps(self) -> int:
        return self.draws

    @property
    def num_states(self) -> int:
        return math.comb(self.draws + self.letters, self.letters)

    @property
    def num_modes(self) -> int:
        count: Any = getattr(self.reward, "num_modes", None)
        return count(self) if callable(count) else 0  # type: ignore[return-value]

    def mode(self, state: BagState) -> Int[Array, " batch"]:
        return self.reward.mode(self, state.counts)

    def reset(self, batch: int) -> BagState:
        return BagState(np.zeros((batch, self.letters), np.int32), np.zeros((batch,), bool))

    def _state(self, counts: Int[Array, "batch letters"]) -> BagState:
        return BagState(counts, _total(counts) >= self.draws)

    def step(self, state: BagState, action: Int[Array, " batch"]) -> BagState:
        going = ops.cast(~state.done, "int32")[..., None]
        return self._state(state.counts + ops.one_hot(action, self.letters, "int32") * going)

    def backward_step(self, state: BagState, action: Int[Array, " batch"]) -> BagState:
        return self._state(ops.maximum(state.counts - ops.one_hot(action, self.letters, "int32"), state.counts * 0))

    def forward_mask(self, state: BagState) -> Bool[Array, "batch letters"]:
        return (state.counts >= 0) & ~state.done[..., None]

    def backward_mask(self, state: BagState) -> Bool[Array, "batch letters"]:
        return state.counts > 0

    def observe(self, state: BagState) -> Tokens:
        return Tokens(state.counts, self.draws + 1)

    def log_paths_ratio(self, state: BagState) -> Float[Array, "batch letters"]:
        # Orders of a bag: (sum c)! / prod c_i!, so those of the parent without a letter i are in proportion to c_i.
        counts = np.log(np.maximum(np.arange(self.draws + 1), 0.5))
        return ops.take(ops.like(counts, state.counts), state.counts)

    def text(self, objects: Any, index: int) -> str:
        return " ".join(f"{chr(97 + k) if k < 26 else k}{n}" for k, n in enumerate(np.asarray(objects)[index]) if n)


def _total(x: Int[Array, "batch n"]) -> Int[Array, " batch"]:
    return ops.cast(ops.sum(x, -1), "int32")


def _fits(reward: Any, env: Environment) -> None:
    """A reward that is made for worlds of some sizes refuses others."""
    refuse: Any = getattr(reward, "refuse", None)
    if callable(refuse):
        refuse(env)
