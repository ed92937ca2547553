"""Phylogenetic trees: merge taxa two at a time until one tree is left, be paid for few changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import comb, prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs import _tree_forms
from twinax.envs._alignments import Alignment, read_alignment, simulate_alignment
from twinax.envs._environment import Environment
from twinax.envs._parsimony import STATES, Fitted, Patterns, fitch, patterns_of
from twinax.envs._rewarded import as_reward
from twinax.envs._tree_rows import TreeRows
from twinax.errors import TwinaxError
from twinax.networks import Items
from twinax.parts import Title
from twinax.types import Array, Bool, Float, Int

COLUMNS = ("telling", "all")
MOST_LETTERS = 20_000_000
"""Letters of simulated sequences in all."""
MOST_TAXA = 500
"""More taxa have more pairs than a policy can have actions."""


class ForestState(NamedTuple):
    """Trees over the taxa. The top of two merged trees has as its slot the larger of their two least leaves, which no
    other inner node of any forest can have: so equal forests have equal arrays."""

    left: Int[Array, "batch taxa"]
    """The child with the least leaf of all, of the inner node in each slot: leaf k is k, slot k is taxa + k; -1 where
    the slot is empty."""
    right: Int[Array, "batch taxa"]
    """The other child."""
    size: Int[Array, "batch taxa"]
    """Leaves below the node in each slot, 0 where it is empty."""
    last: Int[Array, "batch taxa"]
    """Slot of the top of the tree with each least leaf, -1 where that is a leaf alone or not the least."""
    root: Bool[Array, "batch taxa"]
    """Whether each leaf is the least of its tree."""
    done: Bool[Array, " batch"]


@checked
@dataclass(frozen=True)
class Parsimony:
    """log R = (offset - changes) / temperature, the changes being the fewest that explain the alignment on the tree.

    Forests are paid likewise for the changes within their trees, which forward-looking objectives read.
    """

    temperature: float = 4.0
    """By what changes are divided; at 1 a tree with one change more is worth 1/e."""
    offset: float = 0.0
    """Changes at which log R is 0; it moves log Z by offset / temperature and nothing else."""

    def __post_init__(self):
        if not (0 < self.temperature < np.inf and np.isfinite(self.offset)):
            raise TwinaxError(
                f"parsimony has temperature={self.temperature}, offset={self.offset}; both must be finite and the "
                "temperature above 0"
            )

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of trees and of forests."""
        if not hasattr(env, "changes"):
            raise TwinaxError(
                f"Parsimony pays for trees over an alignment, and {type(env).__name__} has none; name another reward"
            )
        changes = env.changes(state)
        return (self.offset - ops.cast(changes, ops.like(np.zeros(()), changes))) / self.temperature


@checked
@dataclass(frozen=True)
class PhylogeneticTree(Environment):
    """Rooted binary trees over the sequences of an alignment, paid by parsimony.

    An action merges two trees, the pair of their least leaves; a backward action splits the tree with a least leaf.

    >>> env = PhylogeneticTree(sequences=("ACGTACGT", "ACGTTCGA", "ACCTTCGA", "GCCTACGA"))
    >>> env.num_actions, env.max_steps, env.num_states
    (6, 3, 37)
    """

    data: str = ""
    """Path of the alignment: a FASTA file, or JSON with sequences by name; empty: `sequences`, or simulated ones."""
    sequences: tuple[str, ...] = ()
    """The sequences themselves, all of one length, with - for gaps."""
    names: tuple[str, ...] = ()
    """Their names; empty: their numbers."""
    taxa: int = 7
    """Simulated sequences, where nothing else is given."""
    sites: int = 200
    """Sites of simulated sequences."""
    rate: float = 0.2
    """Changes of simulated sequences per site, in the time in which two lineages merge on average."""
    data_seed: int = 0
    """Seed of the simulated sequences, whatever the seed of a run."""
    columns: str = "telling"
    """What networks see of an alignment: telling, the states that occur at each column by which trees can differ, equal
    columns once, and how many changes and taxa each tree has; or all, five states for every site and nothing else."""
    reward: Any = Parsimony()
    """What a tree pays: `Parsimony`, any function of trees, or a record of one's own."""
    alignment: Alignment = field(init=False, repr=False)

    titles: ClassVar[dict[str, Title]] = {
        "mean_changes": Title("changes", "Changes that a tree needs to explain the alignment, on average."),
        "fewest_changes": Title("fewest changes", "Changes of the best of these trees."),
    }

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        object.__setattr__(self, "alignment", self._alignment())
        if self.columns not in COLUMNS:
            raise TwinaxError(f"columns is {self.columns!r}; it must be one of {', '.join(COLUMNS)}")
        if self.num_taxa > MOST_TAXA:
            raise TwinaxError(
                f"{self.alignment.origin} has {self.num_taxa} sequences; trees over more than {MOST_TAXA} have too "
                "many pairs to choose from"
            )
        if not len(self.patterns.weights):
            raise TwinaxError(
                f"{self.alignment.origin} has no column that tells two trees apart, so every tree is worth the same; "
                "take more sites, or more diverse sequences"
            )

    def _alignment(self) -> Alignment:
        if self.data and self.sequences:
            raise TwinaxError(f"both data={self.data} and {len(self.sequences)} sequences are given; give one of them")
        if self.data:
            return read_alignment(self.data)
        if self.sequences or self.names:
            names = self.names or tuple(str(number) for number in range(len(self.sequences)))
            return Alignment(names, tuple(one.upper() for one in self.sequences))
        for name, least in (("taxa", 3), ("sites", 1)):
            if (value := getattr(self, name)) < least:
                raise TwinaxError(f"{name} is {value}; it must be at least {least}")
        if not 0 < self.rate < np.inf:
            raise TwinaxError(f"rate is {self.rate}; it must be finite and above 0")
        if self.data_seed < 0:
            raise TwinaxError(f"data_seed is {self.data_seed}; it must be at least 0")
        if self.taxa * self.sites > MOST_LETTERS:
            raise TwinaxError(
                f"taxa={self.taxa:,} with sites={self.sites:,} have more than {MOST_LETTERS:,} letters; take fewer"
            )
        return simulate_alignment(min(self.taxa, MOST_TAXA + 1), self.sites, self.rate, self.data_seed)

    @property
    def num_taxa(self) -> int:
        """Leaves of every tree."""
        return len(self.alignment.names)

    @property
    def patterns(self) -> Patterns:
        """The different columns, by default those that tell trees apart."""
        return _patterns(self.alignment, self.columns == "all")

    @property
    def num_actions(self) -> int:
        return comb(self.num_taxa, 2)

    @property
    def num_backward_actions(self) -> int:
        return self.num_taxa

    @property
    def max_steps(self) -> int:
        return self.num_taxa - 1

    @property
    def stops(self) -> bool:
        return False

    @property
    def fixed_length(self) -> bool:
        return True

    @property
    def default_network(self) -> str:
        return "pairs"

    @property
    def files(self) -> tuple[Path, ...]:
        return (Path(self.data),) if self.data else ()

    @property
    def num_states(self) -> int:
        return _num_forests(self.num_taxa)

    def constants(self) -> dict[str, np.ndarray]:
        patterns, number = self.patterns, self.num_taxa
        first, second = np.triu_indices(number, 1)
        pattern, state = _columns(self.alignment, self.columns)
        return {
            **super().constants(),
            "leaf_sets": patterns.sets,
            "weights": patterns.weights,
            "first": first.astype(np.int32),
            "second": second.astype(np.int32),
            "column_pattern": pattern,
            "column_state": state,
            "log_inner": np.log(np.maximum(np.arange(number + 1) - 1, 0.5)),
        }

    def reset(self, batch: int) -> ForestState:
        shape = (batch, self.num_taxa)
        left, right, last = (np.full(shape, -1, np.int32) for _ in range(3))
        return ForestState(left, right, np.zeros(shape, np.int32), last, np.ones(shape, bool), np.zeros(batch, bool))

    def step(self, state: ForestState, action: Int[Array, " batch"]) -> ForestState:
        one, other = (ops.take(self.constant(name, state.last), action) for name in ("first", "second"))
        going = ~state.done[:, None]
        here, there = (self._at(leaf, state) & going for leaf in (one, other))
        left, right = (self._top(state, leaf)[:, None] for leaf in (one, other))
        leaves = (self._leaves(state, one) + self._leaves(state, other))[:, None]
        root = state.root & ~there
        return ForestState(
            left=ops.where(there, left, state.left),
            right=ops.where(there, right, state.right),
            size=ops.where(there, leaves, state.size),
            last=ops.where(here, ops.cast(other, state.last)[:, None], ops.where(there, -1, state.last)),
            root=root,
            done=self._is_one(root),
        )

    def backward_step(self, state: ForestState, action: Int[Array, " batch"]) -> ForestState:
        slot = self._of(state.last, action)
        here, there = self._at(action, state), self._at(slot, state)
        held = ops.clip(slot, 0, self.num_taxa - 1)
        nodes = (self._of(side, held)[:, None] for side in (state.left, state.right))
        left, right = (ops.where(node >= self.num_taxa, node - self.num_taxa, -1) for node in nodes)
        root = state.root | there
        return ForestState(
            left=ops.where(there, -1, state.left),
            right=ops.where(there, -1, state.right),
            size=ops.where(there, 0, state.size),
            last=ops.where(here, left, ops.where(there, right, state.last)),
            root=root,
            done=self._is_one(root),
        )

    def _of(self, x: Any, leaf: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """An entry of each row, of the kind of the row: sums, of which it may be made, are of a wider one."""
        return ops.cast(ops.take_along(x, leaf), x)

    def _at(self, leaf: Int[Array, " batch"], state: ForestState) -> Bool[Array, "batch taxa"]:
        return leaf[:, None] == ops.arange(self.num_taxa, state.last)

    def _top(self, state: ForestState, leaf: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """The node at the top of the tree with a least leaf."""
        slot = self._of(state.last, leaf)
        return ops.cast(ops.where(slot >= 0, self.num_taxa + slot, leaf), state.last)

    def _leaves(self, state: ForestState, leaf: Int[Array, " batch"]) -> Int[Array, " batch"]:
        slot = self._of(state.last, leaf)
        return ops.where(slot >= 0, self._of(state.size, ops.clip(slot, 0, self.num_taxa - 1)), 1)

    def _is_one(self, root: Bool[Array, "batch taxa"]) -> Bool[Array, " batch"]:
        return ~ops.any(root[:, 1:], -1)  # the first leaf is always the least of its tree

    def forward_mask(self, state: ForestState) -> Bool[Array, "batch pairs"]:
        one, other = (ops.take(state.root, self.constant(name, state.last), 1) for name in ("first", "second"))
        return one & other

    def backward_mask(self, state: ForestState) -> Bool[Array, "batch taxa"]:
        return state.last >= 0

    def backward_action(self, state: ForestState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return ops.take(self.constant("first", state.last), action)

    def forward_action(self, state: ForestState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        other = ops.maximum(ops.take_along(state.last, action), action + 1)
        return action * (2 * self.num_taxa - 1 - action) // 2 + other - action - 1

    def log_paths_ratio(self, state: ForestState) -> Float[Array, "batch taxa"]:
        # k! / prod over inner nodes of the inner nodes at and below each: a parent lacks the factor of the node split.
        size = ops.gather(state.size, ops.clip(state.last, 0, self.num_taxa - 1))
        return ops.take(self.constant("log_inner", state.last), size)

    @property
    def made_rows(self) -> TreeRows:
        return TreeRows(self)

    def fit(self, state: ForestState, nodes: Int[Array, "batch nodes"]) -> Fitted:
        """The sets of states of nodes, and the changes below them."""
        sets, weights = (self.constant(name, state.last) for name in ("leaf_sets", "weights"))
        return fitch(sets, weights, state.left, state.right, state.size, nodes)

    def fitted(self, state: ForestState) -> Fitted:
        """The sets of states at the tops of all trees, at their least leaves, and the changes within them; of a leaf
        that is not the least of its tree its own set, and no change."""
        if self.is_known is None:
            leaf = ops.arange(self.num_taxa, state.last)
            return self.fit(state, ops.where(state.last >= 0, self.num_taxa + state.last, leaf))
        leaves = self.constant("leaf_sets", state.last)
        sets = ops.concat([leaves, self.is_known[0].sets.reshape(-1, leaves.shape[-1])])
        return Fitted(ops.take(sets, self.made_rows.index(state, self.is_known[1])), self._within(state))

    def _within(self, state: ForestState) -> Int[Array, "batch taxa"]:
        """The changes within the tree with each least leaf."""
        if self.is_known is None:
            return self.fitted(state).changes
        known, owner = self.is_known
        index = self.num_taxa * owner[:, None] + ops.clip(state.last, 0, self.num_taxa - 1)
        return ops.where(state.last >= 0, ops.take(known.changes.reshape(-1), ops.cast(index, "int32")), 0)

    def changes(self, state: ForestState) -> Int[Array, " batch"]:
        """The fewest changes that explain the alignment on the trees of a forest. Columns that need the same number on
        every tree are counted from the beginning."""
        return ops.cast(ops.sum(self._within(state), -1), "int32") + self.patterns.constant

    def observe(self, state: ForestState) -> Items:
        """A row for each tree, at its least leaf: 1 for each state that it may have at its top.

        Two numbers more, unless all columns are seen as published: its changes per site, and its share of the taxa.
        Flows depend on them, but for those of forward-looking objectives.
        """
        fitted = self.fitted(state)
        slot = ops.clip(state.last, 0, self.num_taxa - 1)
        leaves = ops.where(state.last >= 0, ops.gather(state.size, slot), 1)
        row = self.row(fitted.sets, fitted.changes, leaves)
        return Items(ops.where(state.root[..., None], row, 0.0), state.root)

    def row(self, sets: Any, changes: Any, leaves: Any) -> Float[Array, "*batch features"]:
        """What is shown of trees with these sets of states at their tops, changes and leaves."""
        seen = ops.take(sets, self.constant("column_pattern", changes), len(sets.shape) - 1)
        seen = ops.cast((seen & self.constant("column_state", changes)) > 0, "float32")
        if self.columns == "all":
            return seen
        # Products, because a compiler may turn a division by a constant into one, which rounds otherwise.
        numbers = (changes, 1 / self.alignment.num_sites), (leaves, 1 / self.num_taxa)
        return ops.concat([seen, *((ops.cast(x, seen) * share)[..., None] for x, share in numbers)], -1)

    @property
    def observation_size(self) -> int:
        more = 0 if self.columns == "all" else 2
        return self.num_taxa * (1 + more + len(_columns(self.alignment, self.columns)[0]))

    def objects(self, state: ForestState) -> dict[str, Array]:
        return {"left": state.left, "right": state.right}

    def text(self, objects: Any, index: int) -> str:
        return _tree_forms.newick(objects["left"][index], objects["right"][index], self.alignment.names)

    def draw(self, objects: Any, index: int) -> np.ndarray | None:
        return _tree_forms.picture(objects["left"][index], objects["right"][index], self.alignment.names)

    def distance(self, one: Any, other: Any) -> np.ndarray:
        """Groups of taxa that one of two trees has below a node and the other has not (Robinson and Foulds)."""
        return _tree_forms.distances((one["left"], one["right"]), (other["left"], other["right"]))

    def measures(self, states: ForestState, weights: np.ndarray) -> dict[str, Any]:
        changes = np.asarray(self.changes(states))
        return {"mean_changes": float(changes @ weights), "fewest_changes": int(changes[weights > 0].min())}

    def test_states(self, seed: int) -> ForestState:
        return _tree_forms.trees_of_all_qualities(self, seed)


def _num_trees(leaves: int) -> int:
    return prod(range(1, 2 * leaves - 2, 2))


@lru_cache
def _num_forests(leaves: int) -> int:
    """Forests of rooted binary trees over labelled leaves: the tree of the first leaf has k leaves, the others are any
    forest."""
    forests = [1]
    for number in range(1, leaves + 1):
        sizes = range(1, number + 1)
        forests.append(sum(comb(number - 1, k - 1) * _num_trees(k) * forests[number - k] for k in sizes))
    return forests[-1]


@lru_cache(maxsize=16)
def _patterns(alignment: Alignment, every: bool) -> Patterns:
    return patterns_of(alignment.sets(), every)


@lru_cache(maxsize=16)
def _columns(alignment: Alignment, which: str) -> tuple[np.ndarray, np.ndarray]:
    """The pattern and the state of each number that a network sees of a taxon."""
    patterns, states = _patterns(alignment, which == "all"), np.array(list(STATES.values()), np.uint8)
    if which == "all":
        number = len(patterns.of_site)
        return np.repeat(patterns.of_site, len(states)), np.tile(states, number)
    occurs = (np.bitwise_or.reduce(patterns.sets, 0)[:, None] & states) > 0
    pattern, state = np.nonzero(occurs)
    return pattern.astype(np.int32), states[state]
