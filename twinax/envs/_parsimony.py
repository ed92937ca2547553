"""Fitch's parsimony: how many changes a tree needs to explain an alignment, for batches of trees at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.types import Array, Int

STATES = {"A": 16, "C": 8, "G": 4, "T": 2, "-": 1}
"""The five states of a site, a bit each; a gap is a state of its own."""
_AMBIGUOUS = {
    "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
    "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT", "?": "ACGT", "X": "ACGT", "U": "T",
}  # fmt: skip
LETTERS = {**STATES, **{letter: sum(STATES[one] for one in meant) for letter, meant in _AMBIGUOUS.items()}}
"""The states that each letter of a sequence may stand for."""


@dataclass(frozen=True)
class Patterns:
    """The different columns of an alignment, those that no tree can tell apart left out."""

    sets: np.ndarray
    """States of each taxon, (taxa, patterns) of uint8."""
    weights: np.ndarray
    """Columns that have each pattern."""
    constant: int
    """Changes that the columns which were left out need on every tree."""
    different: int
    """Different columns of the whole alignment."""
    of_site: np.ndarray
    """The pattern of each column of the alignment, -1 where it was left out."""


def patterns_of(sets: np.ndarray, every: bool = False) -> Patterns:
    """Equal columns of an alignment become one with a weight; those that tell no two trees apart are kept on demand.

    >>> patterns_of(np.array([[16, 16, 8], [16, 16, 8], [8, 8, 8], [8, 8, 4]], np.uint8)).weights.tolist()
    [2]
    """
    columns, of_site, weights = np.unique(sets, axis=1, return_inverse=True, return_counts=True)
    of_site = of_site.reshape(-1)
    least = np.array([_least_changes(column) for column in columns.T])
    # Every inner node in the state that most taxa may have: no tree needs more changes than that.
    has = (columns[:, :, None] & np.array(list(STATES.values()), np.uint8)) > 0
    most = len(sets) - has.sum(0).max(1)
    out = (least >= most) & (not every)
    kept = np.flatnonzero(~out)
    number = np.full(columns.shape[1], -1)
    number[kept] = np.arange(len(kept))
    return Patterns(
        sets=np.ascontiguousarray(columns[:, kept]),
        weights=weights[kept].astype(np.int32),
        constant=int((least * weights)[out].sum()),
        different=columns.shape[1],
        of_site=number[of_site].astype(np.int32),
    )


def _least_changes(column: np.ndarray) -> int:
    """One less than the fewest states of which every taxon has one: some tree needs no more changes."""
    seen = set(column.tolist())
    for number in range(1, len(STATES)):
        if any(all(one & sum(some) for one in seen) for some in combinations(STATES.values(), number)):
            return number - 1
    return len(STATES) - 1


def read_letters(who: str, sequences: tuple[str, ...]) -> np.ndarray:
    """The sets of states of all letters, (taxa, sites) of uint8."""
    known = np.zeros(256, np.uint8)
    for letter, states in LETTERS.items():
        known[[ord(letter), ord(letter.lower())]] = states
    rows = []
    for number, sequence in enumerate(sequences, 1):
        code = np.frombuffer(sequence.encode("utf-32-le"), np.uint32)
        row = np.where(code < 256, known[code % 256], 0).astype(np.uint8)
        if len(unknown := np.flatnonzero(row == 0)):
            raise TwinaxError(
                f"{who} has the letter {sequence[unknown[0]]!r} at site {unknown[0] + 1} of sequence {number}; known "
                f"are {' '.join(LETTERS)}"
            )
        rows.append(row)
    return np.stack(rows)


@dataclass(frozen=True)
class Fitted:
    """What Fitch's rules say of some nodes of each of a batch of forests."""

    sets: Array
    """The set of states of each node, (batch, nodes, patterns) of uint8."""
    changes: Int[Array, "batch nodes"]
    """Changes below it, over the patterns."""


def merged(one: tuple[Any, Any], other: tuple[Any, Any], weights: Any) -> tuple[Any, Any]:
    """The sets of states of nodes, and the changes below, from those of their two children: where these have states in
    common, those, at no change; otherwise all of both, at one."""
    common = one[0] & other[0]
    apart = ops.sum(ops.where(common == 0, weights, 0), -1)
    return ops.where(common == 0, one[0] | other[0], common), one[1] + other[1] + ops.cast(apart, one[1])


def fitch(leaves: Any, weights: Any, left: Any, right: Any, size: Any, nodes: Any) -> Fitted:
    """Sets of states and changes of nodes, worked out from the leaves upwards.

    `left` and `right` have the children of each slot (leaf k is k, slot k is `number + k`, -1 where there is none), and
    `size` the leaves below it. Of empty slots among `nodes`, something is said.
    """
    batch, number = left.shape
    # By size children come before their parents; slots in use come before those that are not.
    order = ops.smallest(ops.cast(ops.where(size > 0, size, 2 * number), "float32"), number - 1)
    rank = ops.sum(
        ops.where(order[:, :, None] == ops.arange(number, order), ops.arange(number - 1, order)[:, None], 0), 1
    )
    row = ops.arange(batch, order)

    def line(node):
        """Where the set of a node lies in the buffer: leaves first, then slots by rank."""
        ranked = ops.gather(rank, ops.clip(node - number, 0, number - 1))
        return ops.cast(ops.where(node >= number, number + ranked, ops.clip(node, 0, number - 1)), "int32")

    ordered = (ops.move_axis(ops.gather(line(side), order), 1, 0) for side in (left, right))
    lefts, rights = (ops.cast(one * batch + row, "int32") for one in ordered)
    width = leaves.shape[-1]
    inner = ops.zeros((number - 1, batch, width), leaves)
    buffer = ops.concat([ops.broadcast(leaves[:, None], (number, batch, width)), inner])
    changes = ops.zeros((2 * number - 1, batch), order, "int32")
    most = ops.max(ops.sum(ops.cast(size > 0, "int32"), -1))

    def merge(carry):
        buffer, changes, k = carry
        flat, below = buffer.reshape((2 * number - 1) * batch, width), changes.reshape(-1)
        one, other = ((ops.take(flat, side[k]), ops.take(below, side[k])) for side in (lefts, rights))
        # Forests with fewer merges make something of an empty slot, which is no part of any tree.
        sets, within = merged(one, other, weights)
        return ops.set_at(buffer, number + k, sets), ops.set_at(changes, number + k, within), k + 1

    buffer, changes, _ = ops.while_loop(lambda carry: carry[2] < most, merge, (buffer, changes, 0))
    flat = buffer.reshape((2 * number - 1) * batch, width)
    lines = ops.cast(line(nodes) * batch + row[:, None], "int32")
    return Fitted(ops.take(flat, lines), ops.take(changes.reshape(-1), lines))
