"""The trees that forests consist of: each merge makes one, with the set of states at its top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinax import ops
from twinax.envs._made_rows import MadeRows
from twinax.envs._parsimony import merged
from twinax.tree import record
from twinax.types import Array, Bool, Float, Int


@record
class KnownTrees:
    """What is known of the trees that merges made, by the slot of their top; slot 0 has none."""

    sets: Array
    """The states at the top, (batch, taxa, patterns) of uint8."""
    changes: Int[Array, "batch taxa"]
    """The changes within."""
    size: Int[Array, "batch taxa"]
    """The leaves, 0 where there is no tree."""


@dataclass(frozen=True)
class TreeRows(MadeRows):
    """The rows of `PhylogeneticTree`: those of taxa are there from the beginning, and a merge makes that of a tree."""

    env: Any

    @property
    def number(self) -> int:
        return self.env.num_taxa

    @property
    def most(self) -> tuple[int, ...]:
        return tuple(range(self.number, 0, -1))

    def known(self, state: Any) -> KnownTrees:
        slots = ops.broadcast(self.number + ops.arange(self.number, state.size), state.size.shape)
        fitted = self.env.fit(state, slots)
        return KnownTrees(fitted.sets, fitted.changes, state.size)

    def grown(self, known: KnownTrees, state: Any) -> tuple[KnownTrees, Int[Array, " batch"]]:
        new = (state.size > 0) & (known.size == 0)
        slots = ops.arange(self.number, state.size)
        slot = ops.cast(ops.sum(ops.where(new, slots, 0), -1), "int32")
        row = ops.arange(slot.shape[0], slot)
        one, other = (self._at(known, ops.take_along(side, slot), row) for side in (state.left, state.right))
        sets, changes = merged(one, other, self.env.constant("weights", slot))
        changes = ops.cast(changes, known.changes)
        grown = ops.set_at(known.sets, (row, slot), sets), ops.set_at(known.changes, (row, slot), changes)
        return KnownTrees(*grown, state.size), slot

    def _at(self, known: KnownTrees, node: Int[Array, " batch"], row: Int[Array, " batch"]) -> tuple[Array, Array]:
        """The set at a node of each forest, and the changes below it."""
        number = self.number
        inner = node >= number
        slot = ops.cast(row * number + ops.where(inner, node - number, 0), "int32")
        leaves = ops.take(self.env.constant("leaf_sets", node), ops.clip(node, 0, number - 1))
        sets = ops.take(known.sets.reshape(-1, leaves.shape[-1]), slot)
        changes = ops.where(inner, ops.take(known.changes.reshape(-1), slot), 0)
        return ops.where(inner[:, None], sets, leaves), changes

    def first(self, like: Any) -> Float[Array, "taxa features"]:
        sets = self.env.constant("leaf_sets", like)
        nothing = ops.zeros((len(sets),), like, "int32")
        return self.env.row(sets, nothing, nothing + 1)

    def made(self, known: KnownTrees) -> Float[Array, "batch taxa features"]:
        return self.env.row(known.sets, known.changes, known.size)

    def newest(self, known: KnownTrees, number: Int[Array, " batch"]) -> Float[Array, "batch features"]:
        width = known.sets.shape[-1]
        place = ops.cast(ops.arange(number.shape[0], number) * self.number + number, "int32")
        changes, size = (ops.take(x.reshape(-1), place) for x in (known.changes, known.size))
        return self.env.row(ops.take(known.sets.reshape(-1, width), place), changes, size)

    def index(self, state: Any, owner: Int[Array, " rows"]) -> Int[Array, "rows taxa"]:
        number = self.number
        made = number * (1 + owner[:, None]) + state.last
        return ops.cast(ops.where(state.last >= 0, made, ops.arange(number, state.last)), "int32")

    def present(self, state: Any) -> Bool[Array, "rows taxa"]:
        return state.root
