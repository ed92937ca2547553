"""parity.json and compare.json in a report: whether the engines agree, and how fast each one is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeGuard

from twinax.ranges import is_number
from twinax.runs.glossary import title
from twinax.runs.tables import anything, number, table

_MOST_ROWS = 10
_SPEED = {
    "median": "Per second",
    "unit": "Counted in",
    "per_step": "Of them in a step",
    "lower": "Lower quartile",
    "upper": "Upper quartile",
    "compile_seconds": "Compilation, s",
    "first_step_seconds": "First step, s",
    "parameters": "Parameters",
    "threads": "Threads",
}


def parity(result: Any) -> str:
    """The verdict, one line for each rung of the ladder and mode, and the first differences if there are any."""
    rows = result.get("rows") if isinstance(result, Mapping) else None
    if not _records(rows, "rung", "item", "side", "against", "relative", "ok") or not all(
        isinstance(row[name], str) for row in rows for name in ("rung", "item", "side", "against")
    ):
        return anything(result)
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["rung"], row["side"], row["against"]), []).append(row)
    lines = []
    for (rung, side, against), members in groups.items():
        worst = max(members, key=lambda row: (not row["ok"], _size(row["relative"])))
        bad = sum(not row["ok"] for row in members)
        lines.append([rung, side, against, len(members), bad, worst["relative"], worst["item"], not bad])
    header = ["Rung", "Mode", "Against", "Compared", "Differing", "Largest relative difference", "Worst item", "Equal"]
    facts = f"{result.get('dtype', '')}, tolerance {number(result.get('tolerance'))}, {len(rows):,} comparisons"
    parts = [_verdict("Parity", result.get("ok")), f"<p>{escape(facts)}</p>", table(header, lines)]
    different = [row for row in rows if not row["ok"]][:_MOST_ROWS]
    if different:
        columns = ["rung", "item", "side", "against", "absolute", "relative", "note"]
        cells = [[row.get(name) for name in columns] for row in different]
        parts += ["<h3>First differences</h3>", table([title(name) for name in columns], cells)]
    parts.append(_fact("Likely cause", result.get("hint")))
    return "".join(parts)


def compare(result: Any) -> str:
    """Speed and phases of each mode; ratios only if the comparison gave them."""
    rows = result.get("modes") if isinstance(result, Mapping) else None
    if not _records(rows, "mode") or not all(isinstance(row["mode"], str) for row in rows):
        return anything(result)
    ratios = result.get("ratios")
    ratios = {mode: one for mode, one in ratios.items() if is_number(one)} if isinstance(ratios, Mapping) else {}
    columns = [name for name in _SPEED if any(row.get(name) is not None for row in rows)]
    header = ["Mode", *(_SPEED[name] for name in columns), *(["Ratio"] if ratios else [])]
    cells = []
    for row in rows:
        ratio = [f"{ratios[row['mode']]:.2f} x" if row["mode"] in ratios else None] if ratios else []
        cells.append([row["mode"], *(row.get(name) for name in columns), *ratio])
    parts = [_fact("Problem", result.get("problem")), _verdict("Parity", result.get("parity")), table(header, cells)]
    parts.append(_phases(rows))
    ceiling = result.get("ceiling")
    if isinstance(ceiling, Mapping):
        parts.append(
            f"<p>Sampling stays in PyTorch, so hybrid gains at most {number(ceiling.get('at_most'))} x over torch; its "
            f"phases give {number(ceiling.get('from_phases'))} x, measured {number(ceiling.get('measured'))} x.</p>"
        )
    parts.append(_fact("", result.get("reason")))
    return "".join(parts)


def _phases(rows: Sequence[Mapping[str, Any]]) -> str:
    profiles = [row["profile"] if isinstance(row.get("profile"), Mapping) else {} for row in rows]
    names = list(dict.fromkeys(name for profile in profiles for name in profile))
    if not names:
        return ""
    cells = [
        [row["mode"], *(1e3 * profile[name] if is_number(profile.get(name)) else None for name in names)]
        for row, profile in zip(rows, profiles, strict=True)
    ]
    return "<h3>Milliseconds per step by phase</h3>" + table(["Mode", *(title(name) for name in names)], cells)


def _records(rows: Any, *names: str) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(rows, list) and all(isinstance(row, Mapping) and row.keys() >= set(names) for row in rows)


def _size(value: Any) -> float:
    """A difference for sorting; what is not a finite number is the largest."""
    return float(value) if is_number(value) and math.isfinite(value) else math.inf


def _verdict(label: str, value: Any) -> str:
    if not isinstance(value, bool):
        return ""
    word = "passed" if value else "FAILED"
    return f'<p>{label}: <strong class="verdict-{number(value)}">{word}</strong></p>'


def _fact(label: str, value: Any) -> str:
    return f"<p>{escape(label + ': ' if label else '')}{escape(number(value))}</p>" if value else ""
