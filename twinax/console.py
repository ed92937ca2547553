"""What commands print, ours and those of other packages: facts in two columns, tables of numbers."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def console():
    """A rich console on standard output; wide enough for tables when it is not a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else max(140, shutil.get_terminal_size().columns)
    return Console(width=width, highlight=False, soft_wrap=not sys.stdout.isatty())


def warn(sentence: str) -> None:
    """Say on standard error what does not stop anything."""
    print(f"warning: {sentence}", file=sys.stderr)


def facts(rows: Mapping[str, Any]) -> None:
    """Names and values in two columns."""
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")
    sys.stdout.flush()


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], numbers_from: int = 1, numbers_to: int = 99
) -> None:
    """A table; columns from `numbers_from` on, and before `numbers_to`, are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if numbers_from <= index < numbers_to else "left", overflow="fold")
    shown = [[show(value) for value in row] for row in rows]
    out, longest = console(), max((len(row[0]) for row in shown), default=0)
    # What is copied from the first column, such as a path, stays in one piece where there is room for it.
    made.columns[0].no_wrap = longest <= out.width // 2
    for row in shown:
        made.add_row(*map(Text, row))  # Text: brackets are no markup
    out.print(made)
    sys.stdout.flush()


def show(value: Any) -> str:
    """A number as people read it; a list (one value per seed) as mean and spread."""
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "-"
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    if hasattr(value, "tolist"):
        return show(value.tolist())
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        mean = sum(value) / len(value)
        spread = math.sqrt(sum((item - mean) ** 2 for item in value) / len(value))
        return f"{mean:.5g} ± {spread:.2g}"
    return str(value)


def metric_rows(summary: Mapping[str, Any], leave_out: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """The numbers of a summary or an evaluation, without pictures and texts."""
    out = set(leave_out)
    return [
        (name, value)
        for name, value in summary.items()
        if name not in out and not name.startswith(("picture/", "film/")) and _is_number(value)
    ]


def _is_number(value: Any) -> bool:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return bool(value) and all(_is_number(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)
