"""HTML tables of a report: values for people, the summary of the runs, any JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from twinax.ranges import is_number
from twinax.runs.curves import RunRecord, common_unit
from twinax.runs.glossary import rank, title

_RUN = ("status", "steps", "mode", "parameters", "seed", "seeds", "dtype", "threads")
_SPEED = ("steps_per_second", "compile_seconds", "seconds")
_HIDDEN = {"loss_per_seed", "loss_mean", "plan", "versions", "command", "problem", "unit", "counts", "tables"}
_HIDDEN |= {"titles", "bad_step", "bad_term"}


def number(value: Any) -> str:
    """A value for people: four significant digits, thousands apart, a tick or a cross for yes and no.

    >>> number(1234567), number(0.000123456), number([1.0, 3.0])
    ('1,234,567', '0.0001235', '2 (1 to 3)')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value and not 1e-4 <= abs(value) < 1e6:
            return f"{value:.3e}"
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, list) and value and all(is_number(item) for item in value):
        mean, low, high = number(sum(value) / len(value)), number(min(value)), number(max(value))
        return f"{mean} ({low} to {high})" if low != high else low
    if isinstance(value, list):
        return ", ".join(number(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number(item)}" for key, item in value.items())
    return str(value)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "") -> str:
    """A table with row names in its first column; `kind` is a CSS class."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def listed(runs: Sequence[RunRecord]) -> dict[str, str]:
    """The tables that families put into their runs' summaries, by heading; one that is none is left out."""
    tables: dict[str, str] = {}
    for run in runs:
        for heading, content in (run.summary.get("tables") or {}).items():
            given = content if isinstance(content, dict) else {}
            columns, rows = given.get("columns"), given.get("rows")
            if not isinstance(columns, list) or not isinstance(rows, list):
                continue
            if not all(isinstance(row, list) and len(row) == len(columns) > 0 for row in rows):
                continue
            name = f"<h3>{escape(run.name)}</h3>" if len(runs) > 1 else ""
            shown = table([str(column) for column in columns], rows)
            tables[heading] = tables.get(heading, "") + name + shown
    return tables


def summary(runs: Sequence[RunRecord], chips: Sequence[str]) -> str:
    """Result, speed and settings of the runs, one column per run."""
    names = sorted(dict.fromkeys(name for run in runs for name in run.summary), key=rank)
    counts = tuple(dict.fromkeys(name for run in runs for name in run.summary.get("counts") or {}))
    results = [name for name in names if name not in {*_RUN, *counts, *_SPEED, *_HIDDEN}]
    heads = "".join(f"<th>{chip} {escape(run.name)}</th>" for run, chip in zip(runs, chips, strict=True))
    parts = []
    values = [{**run.summary, **different_facts(runs)[index]} for index, run in enumerate(runs)]
    settings = (
        *_RUN[:2],
        *counts,
        *_RUN[2:],
        *dict.fromkeys(name for facts in different_facts(runs) for name in facts),
    )
    for label, group in (("Result", results), ("Speed", _SPEED), ("Run", settings)):
        shown = [name for name in group if any(facts.get(name) is not None for facts in values)]
        rows = "".join(
            f"<tr>{_row([titled(name, runs), *(facts.get(name) for facts in values)])}</tr>" for name in shown
        )
        if shown:
            parts.append(f"<table><thead><tr><th>{label}</th>{heads}</tr></thead><tbody>{rows}</tbody></table>")
    first, *rest = parts or [""]
    return f'<div class="columns"><div class="scroll">{first}</div><div class="scroll">{"".join(rest)}</div></div>'


def titled(name: str, runs: Sequence[RunRecord]) -> str:
    """A number's name in words; a speed says what it counts."""
    unit = common_unit(runs)
    if name == "steps_per_second" and unit is not None:
        return f"{unit.name[:1].upper()}{unit.name[1:]} per second"
    return title(name)


def common_facts(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """What the runs' problems have in common."""
    first, *others = [run.summary.get("problem") or {} for run in runs]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def different_facts(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """For each run, what its problem has for itself."""
    common = common_facts(runs)
    return [
        {f"problem {name}": value for name, value in (run.summary.get("problem") or {}).items() if name not in common}
        for run in runs
    ]


def anything(value: Any, depth: int = 0) -> str:
    """Any JSON value as tables: objects of one kind become rows, single values a list of facts."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        columns = list(dict.fromkeys(key for item in value for key in item))
        return table([title(name) for name in columns], [[item.get(name) for name in columns] for item in value])
    if not isinstance(value, Mapping):
        return f"<p>{escape(number(value))}</p>"
    simple = {key: item for key, item in value.items() if not isinstance(item, Mapping) and not _records(item)}
    nested = {key: item for key, item in value.items() if key not in simple}
    parts = [table(["", ""], [[title(key), item] for key, item in simple.items()], "facts")] if simple else []
    if nested and all(isinstance(item, Mapping) and not any(map(_deep, item.values())) for item in nested.values()):
        columns = list(dict.fromkeys(name for item in nested.values() for name in item))
        rows = [[key, *(item.get(name) for name in columns)] for key, item in nested.items()]
        return "".join([*parts, table(["", *(title(name) for name in columns)], rows)])
    for key, item in nested.items():
        heading = f"<h3>{escape(title(key))}</h3>"
        parts.append(heading + (anything(item, depth + 1) if depth < 4 else f"<p>{escape(number(item))}</p>"))
    return "".join(parts)


def _row(cells: Sequence[Any]) -> str:
    first, *rest = cells
    return f"<th>{escape(number(first))}</th>" + "".join(_cell(value) for value in rest)


def _cell(value: Any) -> str:
    kind = (
        "verdict-" + number(value) if isinstance(value, bool) else "" if value is None or is_number(value) else "text"
    )
    return f'<td class="{kind}">{escape(number(value))}</td>'


def _records(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, Mapping) for item in value)


def _deep(value: Any) -> bool:
    return isinstance(value, Mapping) or _records(value)
