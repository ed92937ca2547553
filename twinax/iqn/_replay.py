"""Frame-stacked ring replay: what agents saw and did, one frame a slot, as pure functions on arrays.

Between two episodes lies a gap of `frames - 1` blank slots, so that the history of an episode's first step is blank,
and no window of frames spans two episodes unnoticed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.ranges import check_counts, check_range
from twinax.types import Array, Bool, Float, Int


@checked
@dataclass(frozen=True)
class ReplayOptions:
    """How a replay is filled and read."""

    buffer_size: int = 1024
    """Steps that the replay of each agent holds in each world; old ones are overwritten."""
    frame_stack: int = 5
    """Frames that a network sees at once, the present one included."""
    n_step: int = 3
    """Rewards that are added up before the value of the state that follows them."""
    gamma: float = 0.99
    """Discount of a reward for each turn that it lies ahead."""
    alpha: float = 0.0
    """Power of the error in the probability that a step is drawn from the replay, at most 1; 0 draws evenly."""
    beta: float = 0.4
    """Power of the weights that correct for prioritised draws; not used when `alpha` is 0."""
    store_done: bool = True
    """Whether the replay stores the end of an episode; Sorrel never does."""
    clear_gap: bool = True
    """Whether the frames before an episode's first are blank; in Sorrel they are those that were there before."""
    returns: bool = True
    """Whether `n_step` adds up rewards; in Sorrel it only changes the discount."""
    ring: bool = True
    """Whether windows follow the order of time round the memory; in Sorrel they are slots in a row, also across the
    place that is written next, and the last slots are not drawn."""

    def __post_init__(self):
        check_counts(self, ("buffer_size", "frame_stack", "n_step"))
        check_range(self, "between 0 and 1", "gamma", "alpha", "beta")

    @property
    def gap(self) -> int:
        """Slots between two episodes."""
        return self.frame_stack - 1

    @property
    def reach(self) -> int:
        """How many slots after a step its next state lies."""
        return self.n_step if self.returns else 1

    @property
    def discount(self) -> float:
        """The discount of a full return."""
        return self.gamma**self.n_step

    def counted(self, turns: int) -> int:
        """Slots by which an episode makes the replay larger; Sorrel counts one for a gap of any length."""
        return turns + (self.gap if self.ring else 1)

    def in_row(self, slot: Any, size: Any) -> Any:
        """Whether the step in a slot may be drawn where windows do not go round.

        Sorrel draws a window's first frame from max(1, size - frames - 1) slots: one window fewer than there are, and
        never none.
        """
        inside = (slot + self.reach + 1 < size) | (slot == self.gap)
        return (size > 0) & (slot >= self.gap) & inside & (slot + self.reach < self.buffer_size)

    def available(self, turns: int, epochs: int) -> int:
        """Steps of one agent in one world that can be drawn after some epochs."""
        slots = min(epochs * self.counted(turns), self.buffer_size)
        if not self.ring:
            return int(np.sum(self.in_row(np.arange(self.buffer_size), slots)))
        if not self.store_done:
            return max(slots - self.gap - self.reach, 0)  # gaps are drawn from as well
        episodes, rest = divmod(slots, turns + self.gap)
        return episodes * turns + max(rest - self.gap, 0)


@tree.record
class Replay:
    """The slots of all agents, agents first: (agents, worlds, memory, ...)."""

    views: Int[Array, "agents worlds memory view"]
    """Codes of what an agent saw, a byte for each cell."""
    actions: Int[Array, "agents worlds memory"]
    rewards: Float[Array, "agents worlds memory"]
    done: Bool[Array, "agents worlds memory"]
    """The step was the last of its episode."""
    real: Bool[Array, "agents worlds memory"]
    """A step was stored here, not a gap."""
    priority: Any
    """Power of the last error of each step, (agents, worlds, memory); None where draws are even."""
    head: Int[Array, ""]
    """Slot that is written next."""
    size: Int[Array, ""]
    """Slots written so far, at most the memory."""

    @classmethod
    def empty(cls, options: ReplayOptions, agents: int, worlds: int, view: int) -> Replay:
        """Nothing stored yet; NumPy arrays."""
        shape = (agents, worlds, options.buffer_size)
        return cls(
            views=np.zeros((*shape, view), np.uint8),
            actions=np.zeros(shape, np.uint8),
            rewards=np.zeros(shape, np.float32),
            done=np.zeros(shape, bool),
            real=np.zeros(shape, bool),
            priority=np.zeros(shape, np.float32) if options.alpha else None,
            head=np.zeros((), np.int32),
            size=np.zeros((), np.int32),
        )

    def history(self, options: ReplayOptions) -> Int[Array, "agents worlds gap view"]:
        """The frames before an episode's first."""
        agents, worlds, memory, view = self.views.shape
        if options.clear_gap:
            return ops.zeros((agents, worlds, options.gap, view), self.views)
        slots = (self.head + ops.arange(options.gap, self.views)) % memory
        return ops.take(self.views, ops.cast(slots, "int32"), 2)

    def add_episode(self, options: ReplayOptions, views: Any, actions: Any, rewards: Any) -> Replay:
        """A gap and an episode, arrays (turns, agents, worlds, ...); PyTorch and NumPy may write in place."""
        turns, memory = actions.shape[0], self.actions.shape[2]
        gap = options.gap
        slots = ops.cast((self.head + ops.arange(gap + turns, self.views)) % memory, "int32")

        def write(buffer, block, clear=options.clear_gap):
            block = ops.cast(ops.move_axis(block, 0, 2), buffer)
            if clear and gap:
                blank = ops.zeros((*block.shape[:2], gap, *block.shape[3:]), buffer)
                block = ops.concat([blank, block], 2)
            return ops.set_at(buffer, (slice(None), slice(None), slots if clear else slots[gap:]), block)

        counted = options.counted(turns)
        last = ops.arange(turns, self.views) == turns - 1
        ends = ops.broadcast((last & options.store_done)[:, None, None], actions.shape)
        priority = self.priority
        if priority is not None:
            fresh = ops.maximum(ops.max(priority, (1, 2)), ops.full((), 1.0, priority))
            priority = write(priority, ops.broadcast(fresh[None, :, None], actions.shape))
        return Replay(
            views=write(self.views, views),
            actions=write(self.actions, actions),
            rewards=write(self.rewards, rewards),
            # Round the memory no gap may hold an end that lay there before; in a row it does, as everything else.
            done=write(self.done, ends, clear=options.ring or options.clear_gap),
            real=write(self.real, ends | True, clear=True),
            priority=priority,
            head=ops.cast((self.head + turns + gap) % memory, self.head),
            size=ops.cast(ops.minimum(self.size + counted, ops.full((), memory, self.size)), self.size),
        )

    def eligible(self, options: ReplayOptions) -> Bool[Array, "agents worlds memory"]:
        """Steps that may be drawn: with a whole history, a known next state, and no end of an episode in between.

        In a row instead of a ring: those in the slots that Sorrel draws from, whatever lies there.
        """
        memory = self.actions.shape[2]
        slot = ops.arange(memory, self.actions)
        if not options.ring:
            return ops.broadcast(options.in_row(slot, self.size)[None, None], self.actions.shape)
        age = (slot - self.head + self.size) % memory  # 0 is the oldest slot; at least the size where none was written
        whole = (age >= options.gap) & (age < self.size)
        inside = age + options.reach < self.size
        finished = self.real & False
        for ahead in range(options.reach):
            finished = finished | ops.roll(self.done, -ahead, 2)
        return whole[None, None] & (inside[None, None] | finished) & (self.real | (not options.store_done))


@tree.record
class Batch:
    """Transitions of all agents, agents first: (agents, batch, ...)."""

    views: Int[Array, "agents batch frames view"]
    next_views: Int[Array, "agents batch frames view"]
    actions: Int[Array, "agents batch"]
    returns: Float[Array, "agents batch"]
    """Discounted rewards up to the next state."""
    discounts: Float[Array, "agents batch"]
    """Discount of what follows; 0 at the end of an episode."""
    weights: Float[Array, "agents batch"]
    """Weight of each in the loss; 0 for what must not be learned from."""
    index: Int[Array, "agents batch"]
    """Where it lies: world * memory + slot."""


def sample(
    replay: Replay, options: ReplayOptions, uniform: Float[Array, "agents numbers"], batch: int
) -> tuple[Batch, Bool[Array, ""]]:
    """A batch for each agent, and whether every agent has enough to draw from.

    Even draws are without repetition: `uniform` has a number for each slot and the smallest win. Prioritised draws
    are in proportion, one from each of `batch` equal parts: `uniform` has `batch` numbers.
    """
    agents, worlds, memory = replay.actions.shape
    allowed = replay.eligible(options).reshape(agents, worlds * memory)
    ready = ops.min(ops.sum(ops.cast(allowed, "int32"), 1)) >= batch
    if options.alpha:
        assert replay.priority is not None
        mass = ops.cumsum(ops.where(allowed, replay.priority.reshape(agents, -1), 0.0), 1)
        total = ops.maximum(mass[:, -1:], ops.full((1, 1), 1e-30, mass))
        strata = (ops.cast(ops.arange(batch, uniform), mass)[None] + uniform) * (total / batch)
        index = ops.stack([ops.searchsorted(mass[k], strata[k], right=True) for k in range(agents)])
        # Rounding may carry a number to the end of the sum: it stands for the last step that may be drawn.
        last = ops.max(ops.where(allowed, ops.arange(worlds * memory, uniform)[None], 0), 1)
        index = ops.minimum(index, last[:, None])
        chance = ops.gather(replay.priority.reshape(agents, -1), index) / total
        count = ops.cast(ops.sum(ops.cast(allowed, "int32"), 1), mass)[:, None]
        weights = ops.exp(-options.beta * ops.log(ops.maximum(chance * count, ops.full((1, 1), 1e-30, mass))))
    else:
        index = ops.smallest(ops.where(allowed, uniform, 2.0), batch)
        weights = ops.full((agents, batch), 1.0, uniform)
    weights = ops.where(ops.gather(allowed, index), weights, 0.0)
    weights = weights / ops.maximum(ops.max(weights, 1)[:, None], ops.full((1, 1), 1e-30, weights))
    return _windows(replay, options, index, weights), ready


def _windows(replay: Replay, options: ReplayOptions, index: Any, weights: Any) -> Batch:
    agents, worlds, memory = replay.actions.shape
    first = ops.cast(ops.arange(agents, index), "int32")[:, None] * (worlds * memory)
    base, slot = first + index - index % memory, index % memory

    def at(x, shift):
        flat = x.reshape(agents * worlds * memory, *x.shape[3:])
        shift = ops.like(np.asarray(shift, np.int32), index)
        slots = (slot.reshape(*slot.shape, *[1] * shift.ndim) + shift) % memory
        return ops.take(flat, ops.cast(base.reshape(*base.shape, *[1] * shift.ndim) + slots, "int32"))

    window = np.arange(-options.gap, 1)
    if not options.ring and options.gap:
        # In a row windows may span two episodes: Sorrel draws those as well, and learns nothing from them.
        weights = ops.where(ops.any(at(replay.done, window[:-1]), 2), 0.0, weights)
    reward = ops.cast(at(replay.rewards, 0), weights)
    alive = ops.cast(~at(replay.done, 0), weights)
    total, discount = reward, options.gamma * alive
    for ahead in range(1, options.reach):
        total = total + discount * ops.cast(at(replay.rewards, ahead), weights)
        discount = discount * options.gamma * ops.cast(~at(replay.done, ahead), weights)
    if not options.returns:
        discount = options.discount * alive
    return Batch(
        views=at(replay.views, window),
        next_views=at(replay.views, window + options.reach),
        actions=ops.cast(at(replay.actions, 0), "int32"),
        returns=total,
        discounts=discount,
        weights=weights,
        index=index,
    )


def reprioritise(replay: Replay, options: ReplayOptions, index: Any, errors: Any) -> Replay:
    """The replay with new priorities for the steps of a batch, (agents, batch)."""
    if not options.alpha:
        return replay
    assert replay.priority is not None
    agents, worlds, memory = replay.actions.shape
    flat = replay.priority.reshape(agents, worlds * memory)
    value = ops.cast(ops.exp(options.alpha * ops.log(ops.abs(errors) + 1e-6)), flat)
    flat = ops.put_largest(flat, index, value)
    return dataclasses.replace(replay, priority=flat.reshape(agents, worlds, memory))
