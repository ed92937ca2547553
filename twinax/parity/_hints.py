"""Why two sides differ: each rule looks at the numbers and names one known cause, or says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from twinax.parity._counts import Counts
from twinax.parity._differentiate import Gradients, Values
from twinax.parity._report import Row

EXACT = 1e-6
"""Two ratios this close are the same ratio."""
SMALL = 1e-2
"""Relative differences below this are no structural error."""
BY = " d "
"""Between a term and a parameter in the name of a gradient."""
SUM = "sum of the parts"
"""The item of a row that compares a side with itself: do the parts add up to the loss?"""

Probe = Callable[[str, Row], str | None]


@dataclass(frozen=True)
class Evidence:
    """What the rules may look at."""

    values: Mapping[str, Values]
    """The loss and its terms, by side."""
    gradients: Mapping[str, Gradients]
    """The gradient of each term by parameter, by side."""
    counts: Counts = field(default_factory=Counts)
    """Lengths that a sum or a mean may run over."""
    probes: tuple[Probe, ...] = ()
    """Experiments of the caller: called with the term and the row."""


def likely_cause(row: Row, evidence: Evidence) -> str:
    """A sentence for the first difference of a report."""
    if row.item == SUM:
        return f"{_NOT_THE_SUM[row.rung]} {row.note}."
    if row.rung in ("values", "gradients"):
        term = row.item.split(BY)[0]
        text = _cause_in_loss(term, row, evidence)
        return f"{text} {_witness(term, row, evidence)}".strip()
    return _BY_RUNG[row.rung]


_NOT_THE_SUM = {
    "values": "a term was dropped, doubled, or has another weight in the loss than in its parts:",
    "gradients": "a term is counted but not differentiated in the loss (detached or stop_gradient):",
}
_BY_RUNG = {
    "structure": "the networks are not built alike: compare layer sizes, biases and which heads exist.",
    "collect": "equal draws gave different samples: compare masks, exploration settings and the logits that the "
    "arg-max sees; a tie between two logits is decided by the first index.",
    "optimizer": "equal gradients, other parameters: the optimizer's settings differ (betas, eps inside or outside the "
    "root, L2 or decoupled weight decay, clipping, schedule, rate of each parameter group).",
    "training": "the loss, its gradients and the optimizer agree on one step, so it is what one step hands to the "
    "next: the count of steps, a schedule, the draws, the carried state, parameters that are not synchronised, or "
    "parameters that the loss does not reach and one optimizer skips.",
}


def _cause_in_loss(term: str, row: Row, evidence: Evidence) -> str:
    for rule in (_absent, _cut, _factor, _transposed_gradient):
        if text := rule(term, row, evidence):
            return text
    for probe in evidence.probes:
        if text := probe(term, row):
            return text
    for rule in (_other_terms, _small):
        if text := rule(term, row, evidence):
            return text
    return "no simple relation between the two; compare what the term is made of, from the network's outputs on."


def _absent(term: str, row: Row, evidence: Evidence) -> str | None:
    lacking = [side for side in (row.against, row.side) if term not in evidence.values[side]]
    return f"the term '{term}' is missing from the loss of {lacking[0]}." if lacking else None


def _cut(term: str, row: Row, evidence: Evidence) -> str | None:
    if row.rung != "gradients":
        return None
    names = {"": None, f" by '{row.item.split(BY)[-1]}'": row.item.split(BY)[-1]}
    for label, only in names.items():
        a, b = (flat(evidence.gradients[side][term], only) for side in (row.against, row.side))
        for zero, other, side in ((a, b, row.against), (b, a, row.side)):
            if not zero.any() and other.any():
                return (
                    f"the gradient of '{term}'{label} is exactly 0 in {side}: the term is not part of what is "
                    "differentiated there (detached, stop_gradient, or logged only)."
                )
    return None


def _factor(term: str, row: Row, evidence: Evidence) -> str | None:
    constant = constant_ratio(term, row, evidence)
    if constant is None:
        return None
    ratio, confirmed = constant
    start = f"'{term}' of {row.side} is {ratio:.6g} times that of {row.against}"
    if _same(ratio, 2) or _same(ratio, 0.5):
        return f"{start}, a factor of two: a mean square on one side and half of it on the other (mse_loss, l2_loss)."
    if _same(ratio, -1):
        return f"{start}: the sign is turned round."
    larger = max(ratio, 1 / ratio) if ratio > 0 else 0.0
    for n, label in evidence.counts.all_lengths():
        if n > 1 and (_same(larger, n / (n - 1)) or _same(larger, np.sqrt(n / (n - 1)))):
            return (
                f"{start}, from n = {n} ({label}): a variance divided by n on one side, by n - 1 on the other (ddof)."
            )
    for n, label in evidence.counts.all_lengths():
        if n > 1 and _same(larger, n):
            return f"{start}, and n = {n} is {label}: a sum on one side and a mean on the other."
    for used, whole, label in evidence.counts.masked_pairs():
        if _same(larger, whole / used):
            return (
                f"{start}, which is {whole} / {used} ({label}): the mean on one side also divides by entries that are "
                "masked or padding (mask)."
            )
    if larger > 2 and _same(larger, round(larger)):
        return f"{start}: a sum on one side and a mean over n = {round(larger)} on the other."
    if confirmed and abs(ratio - 1) > SMALL:
        return f"{start}, in its value and in every gradient: a constant factor such as a coefficient."
    return None


def constant_ratio(term: str, row: Row, evidence: Evidence) -> tuple[float, bool] | None:
    """One factor between both sides' value and gradients of a term, and whether gradients confirm it."""
    a, b = (evidence.values[side].get(term) for side in (row.against, row.side))
    if a is None or b is None or np.ndim(a) or np.ndim(b):
        return None
    ratios = [] if not a else [float(b) / float(a)]
    confirmed = False
    if all(term in evidence.gradients.get(side, {}) for side in (row.against, row.side)):
        ga, gb = (flat(evidence.gradients[side][term]) for side in (row.against, row.side))
        if ga.size == gb.size and ga.any() and gb.any():
            slope = float(ga @ gb / (ga @ ga))
            if not _proportional(gb, ga, slope):
                return None
            ratios.append(slope)
            confirmed = True
    if not ratios or not all(_same(r, ratios[0]) for r in ratios) or ratios[0] == 0 or _same(ratios[0], 1):
        return None
    return ratios[0], confirmed


def _transposed_gradient(term: str, row: Row, evidence: Evidence) -> str | None:
    if row.rung != "gradients":
        return None
    ours, theirs = (evidence.gradients[side][term] for side in (row.side, row.against))
    for name, a in theirs.items():
        b = ours.get(name)
        if b is not None and a.ndim == 2 and b.shape == a.shape[::-1] and a.any() and np.allclose(b, a.T, rtol=EXACT):
            if a.shape != b.shape or not np.allclose(b, a, rtol=EXACT):
                return f"the gradient of '{term}' by '{name}' of {row.side} is the transpose of that of {row.against}."
    return None


def _other_terms(term: str, row: Row, evidence: Evidence) -> str | None:
    """Whether the difference is a multiple of one of the other terms."""
    sides = (row.against, row.side)
    if not all(term in evidence.gradients.get(side, {}) for side in sides):
        return None
    a, b = (flat(evidence.gradients[side][term]) for side in sides)
    if a.size != b.size or np.allclose(a, b, rtol=EXACT, atol=0):
        return None
    for name in evidence.gradients[row.against]:
        candidates = [flat(evidence.gradients[s][name]) for s in sides if name in evidence.gradients[s]]
        other = next((g for g in candidates if g.any()), None)
        if name == term or other is None or other.size != a.size:
            continue
        weight = float((b - a) @ other / (other @ other))
        if not _proportional(b - a, other, weight):
            continue
        moved = float(evidence.values[row.side][term] - evidence.values[row.against][term])
        if abs(moved) <= EXACT * abs(float(evidence.values[row.against][term])):
            return (
                f"the gradient of '{term}' differs by exactly {weight:.6g} times that of '{name}', its value does not: "
                f"'{name}' is counted but not differentiated on one side (detached or stop_gradient)."
            )
        return (
            f"'{term}' of {row.side} is that of {row.against} plus {weight:.6g} times '{name}': the term is missing on "
            "one side, or has another coefficient."
        )
    return None


def _small(term: str, row: Row, evidence: Evidence) -> str | None:
    if not row.relative < SMALL:
        return None
    return (
        f"the difference is small (relative {row.relative:.2g}) and follows no factor: an epsilon in a root, a "
        "division or a logarithm, gelu's tanh approximation, or a clip."
    )


def _witness(term: str, row: Row, evidence: Evidence) -> str:
    """Which of the two the NumPy reference sides with."""
    if "numpy" not in evidence.values or "numpy" in (row.side, row.against):
        return ""
    middle = evidence.values["numpy"].get(term)
    agrees = [s for s in (row.against, row.side) if middle is not None and _equal(middle, evidence.values[s].get(term))]
    return f"The NumPy reference agrees with {agrees[0]}." if len(agrees) == 1 else ""


def flat(gradients: Mapping[str, np.ndarray], only: str | None = None) -> np.ndarray:
    """The gradients by name, in order, as one vector; or one of them."""
    return np.concatenate([np.zeros(0), *(np.ravel(g) for g in _chosen(gradients, only))])


def _chosen(gradients: Mapping[str, np.ndarray], only: str | None) -> Iterator[np.ndarray]:
    return (gradients[name] for name in sorted(gradients) if only in (None, name))


def _proportional(b: np.ndarray, a: np.ndarray, slope: float) -> bool:
    return bool(np.abs(b - slope * a).max() <= EXACT * np.abs(b).max()) and bool(b.any())


def _same(a: float, b: float) -> bool:
    return bool(abs(a - b) <= EXACT * abs(b))


def _equal(a: np.ndarray, b: np.ndarray | None) -> bool:
    return b is not None and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12))
