"""A replay of finished objects: a ring of states, from which backward rollouts make trajectories again.

What is stored are objects, not trajectories, so that the backward policy of now says how each was made. Only where this
policy learns from how objects were made are their actions kept.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, ring, tree
from twinax.arguments import checked
from twinax.envs import Environment
from twinax.envs.state_rows import pick, show, size_of
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet._distinct import earlier, hashes, near, repeated
from twinax.gflownet._known import known_objects
from twinax.gflownet._priorities import BY_REWARD, KINDS, LOSS_POWER, drawn, importance, reranked
from twinax.ranges import check_counts, check_range
from twinax.types import Array, Bool, Float, Int

BACKWARD = ("policy", "uniform", "maxent")
FILLED = 256
"""Known objects that are stored at once."""


@checked
@dataclass(frozen=True)
class ReplayOptions:
    """What is remembered of finished objects, and how it is drawn.

    >>> ReplayOptions(batch_size=16, priority="rank").size
    10000
    """

    size: int = 10_000
    """Finished objects that are held; old ones are dropped first."""
    batch_size: int = 0
    """Objects that are drawn for each update, from which backward rollouts make trajectories beside the fresh ones; 0
    means that nothing is replayed."""
    priority: str = "uniform"
    """How objects are drawn: uniform, reward (in proportion to it), top (half of them from the best tenth, the other
    half from the rest), rank (weight 1 / (N / 100 + rank), the best of N has rank 0), or loss (weight e^0.9, where e is
    how far the last trajectory to the object was from the learned log Z)."""
    correction: float = 0.1
    """How far weights in the loss make up for priority=loss: each trajectory from the replay counts (N p)^-correction
    times, where p is the probability with which its object of N was drawn; 0 means that all count alike, 1 that the
    loss is that of even draws."""
    distinct: bool = True
    """Whether an object that is held already is not stored again."""
    min_distance: int = 0
    """Number of entries, such as bits of a string or edges of a graph, by which an object must differ from all that are
    held, or it is not stored."""
    start: int = 0
    """Objects that are held before any is drawn; until then backward rollouts begin in the fresh objects of a step."""
    updates: int = 1
    """Updates of a step: each has its own draws from the replay beside the same fresh trajectories."""
    backward: str = "policy"
    """Backward policy of the rollouts: policy (that of the networks), uniform over parents, or maxent."""
    file: str | None = None
    """Path of known objects that are held from the beginning, an .npz file with the arrays of finished states; null
    begins with nothing."""

    def __post_init__(self):
        check_counts(self, ("size", "updates"))
        check_counts(self, ("batch_size", "min_distance", "start"), least=0)
        check_range(self, "between 0 and 1", "correction")
        if self.priority not in KINDS:
            raise UnknownName("priority", self.priority, KINDS)
        if self.backward not in BACKWARD:
            raise UnknownName("backward policy of the replay", self.backward, BACKWARD)
        if self.start > self.size:
            raise TwinaxError(
                f"start is {self.start}, but the replay has room for {self.size} objects; make start at most its size"
            )
        if not self.batch_size and (self.file or self.updates > 1):
            given = f"file={self.file}" if self.file else f"updates={self.updates}"
            raise TwinaxError(
                f"batch_size is 0, so that nothing is drawn from the replay, but {given}; set replay.batch_size"
            )


@tree.record
class Replay:
    """The ring, one object a slot; fields that its options have no use for are None."""

    objects: Any
    """Finished states."""
    keys: Any
    """Hash of each, (slots,)."""
    values: Any
    """log-reward of each, or a power of the error of the last trajectory to it, (slots,)."""
    ranks: Any
    """Place of each in the order of rewards, the best first, (slots,)."""
    added: Int[Array, ""]
    """How many were stored, counted as in `twinax.ring`."""
    actions: Any = None
    """Those that led to each, (slots, time); None where they are not kept."""

    @classmethod
    def empty(cls, env: Environment, options: ReplayOptions, keep_actions: bool = False) -> Replay:
        """Nothing held; NumPy arrays."""
        size, hashed = options.size, options.distinct and not options.min_distance
        return cls(
            jtu.tree_map(lambda x: np.zeros((size, *x.shape[1:]), x.dtype), env.reset(1)),
            np.zeros(size, np.int32) if hashed else None,
            np.zeros(size, np.float32) if options.priority != "uniform" else None,
            np.zeros(size, np.int32) if options.priority in ("top", "rank") else None,
            np.zeros((), np.int32),
            np.zeros((size, env.max_steps), np.int32) if keep_actions else None,
        )

    @property
    def size(self) -> int:
        """How many objects there is room for."""
        return jtu.tree_leaves(self.objects)[0].shape[0]

    @property
    def held(self) -> Int[Array, ""]:
        """How many there are."""
        return ring.held(self.added, self.size)

    @property
    def used(self) -> Bool[Array, " slots"]:
        """Which slots hold an object."""
        return ops.arange(self.size, self.added) < self.held

    def add(self, options: ReplayOptions, env: Environment, final: Any, actions: Any = None) -> Replay:
        """With those of a batch of finished states that are new, and the actions (time, batch) that led to them where
        these are kept; PyTorch and NumPy may write in place."""
        number, size = jtu.tree_leaves(final)[0].shape[0], self.size
        keys = hashes(final) if self.keys is not None else None
        fresh = self._new(options, env, final, keys)
        place = ops.arange(number, self.added)
        slots = ops.cast(ring.places(self.added, number, size), "int32")
        # The new ones come first, in their order; the slots of the others keep what they hold.
        order = ops.smallest(ops.where(fresh, place, place + number), number)
        count = ops.cast(ops.sum(ops.cast(fresh, "int32")), self.added)
        come = place < count

        def write(buffer, rows):
            rows, there = ops.cast(ops.take(rows, order), buffer), ops.take(buffer, slots)
            return ops.set_at(buffer, slots, ops.where(come.reshape(-1, *[1] * (rows.ndim - 1)), rows, there))

        gone, added = slots < self.held, ring.counted(self.added, count, size)
        values, ranks = self.values, self.ranks
        if options.priority == "loss":
            # What has not been trained on yet is drawn as often as the worst of those that were.
            first = ops.maximum(ops.max(values), ops.full((), 1.0, values))
            values = write(values, ops.broadcast(first[None], (number,)))
        elif options.priority in BY_REWARD:
            old = ops.take(values, slots)
            values = write(values, env.log_reward(final))
            if ranks is not None:
                held = ops.arange(size, added) < ring.held(added, size)
                ranks = reranked(ranks, old, values, slots, gone, come, held)
        return Replay(
            objects=tree.map_leaves(write, self.objects, final),
            keys=None if keys is None else write(self.keys, keys),
            values=values,
            ranks=ranks,
            added=added,
            actions=None if self.actions is None else write(self.actions, ops.move_axis(actions, 0, 1)),
        )

    def _new(self, options: ReplayOptions, env: Environment, final: Any, keys: Any) -> Bool[Array, " batch"]:
        number = jtu.tree_leaves(final)[0].shape[0]
        held, before = self.used[None], earlier(number, self.added)
        if options.min_distance:
            # Of objects, not of states: these may say a thing twice, or several things by one number.
            new, old = env.objects(final), env.objects(self.objects)
            return ~near(new, old, held, options.min_distance) & ~near(new, new, before, options.min_distance)
        if keys is None:
            return ops.arange(number, self.added) >= 0
        return ~repeated(final, keys, self.objects, self.keys, held) & ~repeated(final, keys, final, keys, before)

    def draw(self, options: ReplayOptions, uniform: Float[Array, " batch"]) -> Int[Array, " batch"]:
        """Slots of objects, as often as their priorities say."""
        return drawn(options.priority, self.used, self.values, self.ranks, uniform)

    def weights(self, options: ReplayOptions, slots: Int[Array, " batch"]) -> Any:
        """How often trajectories to what was drawn count in a loss; None: each once."""
        if options.priority != "loss" or not options.correction:
            return None
        return importance(self.used, self.values, slots, options.correction)

    def at(self, slots: Int[Array, " batch"]) -> Any:
        """The objects in some slots."""
        return tree.map_leaves(lambda x: ops.take(x, slots), self.objects)

    def weighed(self, slots: Int[Array, " batch"], errors: Float[Array, " batch"]) -> Replay:
        """With new priorities by the errors of trajectories to these objects."""
        weights = ops.cast(ops.exp(LOSS_POWER * ops.log(ops.abs(errors) + 1e-6)), self.values)
        return dataclasses.replace(self, values=ops.put_largest(self.values[None], slots[None], weights[None])[0])


def first_replay(env: Environment, options: ReplayOptions, keep_actions: bool = False) -> Replay:
    """What training begins with: nothing, or the known objects of a file."""
    replay = Replay.empty(env, options, keep_actions)
    if options.file is None:
        return replay
    known = known_objects(env, options.file)
    number = size_of(known)
    if number > options.size:
        raise TwinaxError(
            f"replay.file={options.file} has {number} objects, but replay.size={options.size}; make it at least as "
            "large"
        )
    rewards = np.asarray(env.log_reward(known), np.float64)
    if (bad := np.flatnonzero(~np.isfinite(rewards))).size:
        raise TwinaxError(
            f"replay.file={options.file} cannot be used: the log-reward of row {bad[0]} "
            f"({show(known, int(bad[0]))}) is {rewards[bad[0]]}"
        )
    for first in range(0, number, FILLED):
        replay = replay.add(options, env, pick(known, np.arange(first, min(first + FILLED, number))))
    return replay
