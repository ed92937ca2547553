"""Experiments that find a cause by changing the input: padding, masked entries, a transposed weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinax import tree
from twinax.parity._differentiate import Values
from twinax.parity._hints import Probe
from twinax.parity._report import Row
from twinax.parity._sides import Side

Evaluate = Callable[[str, Any], Values]
"""The values of a side with other networks or another batch."""


def padding_probe(
    sides: Mapping[str, Side], networks: Any, batches: Mapping[str, Any], values: Mapping[str, Values]
) -> Probe:
    """Whether a side's value changes with padding: the time after the longest trajectory, or spare rows."""

    def probe(term: str, row: Row) -> str | None:
        for name in (row.side, row.against):
            side, batch = sides[name], batches[name]
            tries = {}
            if hasattr(batch, "trimmed"):
                tries["padding of the time axis"] = lambda s=side, b=batch: s.values(networks, b.trimmed())
            if side.differentiates_in == "jax" and side.problem.compile.sizes:
                tries["spare rows"] = lambda s=side, b=batch: s.differentiate(networks, b, spare=1).values
            for what, run in tries.items():
                if not _close(run()[term], values[name][term]):
                    return f"'{term}' of {name} changes with the {what}, which must not count: a mask is missing there."
        return None

    return probe


def masked_entries_probe(evaluate: Evaluate, batch: Any, values: Mapping[str, Values]) -> Probe:
    """Whether a side's value changes with entries of the batch where a mask is False."""

    def probe(term: str, row: Row) -> str | None:
        leaves = {name: np.asarray(x) for name, x in tree.named_leaves(batch).items()}
        for label, mask in leaves.items():
            if mask.dtype != bool or mask.all():
                continue
            moved = {name: _disturbed(x, mask) for name, x in leaves.items()}
            after = {side: evaluate(side, tree.with_leaves(batch, moved))[term] for side in (row.against, row.side)}
            changed = [side for side, value in after.items() if not _close(value, values[side][term])]
            if len(changed) == 1:
                return f"'{term}' of {changed[0]} depends on entries where '{label}' is False: a mask is missing there."
        return None

    return probe


def _disturbed(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f" or x.shape[: mask.ndim] != mask.shape:
        return x
    x = x.copy()
    x[~mask] += 1.0 + np.arange(x[~mask].size, dtype=x.dtype).reshape(x[~mask].shape)
    return x


def transpose_probe(evaluate: Evaluate, networks: Any, values: Mapping[str, Values]) -> Probe:
    """Whether both sides agree once a square weight is transposed on one of them."""

    def probe(term: str, row: Row) -> str | None:
        leaves = tree.named_leaves(networks)
        square = [n for n, x in leaves.items() if x.ndim == 2 and x.shape[0] == x.shape[1] > 1]
        for chosen in [[name] for name in square] + ([square] if len(square) > 1 else []):
            turned = {n: np.ascontiguousarray(x.T) if n in chosen else x for n, x in leaves.items()}
            if _close(evaluate(row.side, tree.with_leaves(networks, turned))[term], values[row.against][term]):
                label = ", ".join(f"'{name}'" for name in chosen)
                return (
                    f"with {label} transposed, {row.side} agrees with {row.against}: a transpose too many or too few."
                )
        return None

    return probe


def moved_networks(networks: Any) -> Any:
    """Networks with every parameter a little elsewhere."""
    rng = np.random.default_rng(0)

    def one(x: Any) -> Any:
        x = np.asarray(x)
        return (x + 1e-3 * rng.standard_normal(x.shape)).astype(x.dtype) if x.dtype.kind == "f" else x

    return tree.map_leaves(one, networks)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-8, atol=1e-12))
