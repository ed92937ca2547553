"""metrics.csv: the rows of metrics.jsonl as a table, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line of column names and a line per row; numbers that a row does not have are empty.

    The columns are those of all rows in the order of their appearance. A list with one number per seed takes a column
    per seed; what is no number at all is left out.

    >>> print(text([{"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "modes": [1, 2]}]), end="")
    step,loss,modes/0,modes/1
    1,0.5,,
    2,,1,2
    """
    return table([dict(_cells(row)) for row in rows])


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """A line of column names, those of all lines, and a line per row; what a row does not have is empty."""
    columns = list(dict.fromkeys(name for line in lines for name in line))
    made = io.StringIO()
    writer = csv.DictWriter(made, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return made.getvalue()


def _cells(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Column and number, or None, for all that is one number or a list of them."""
    cells: list[tuple[str, Any]] = []
    for name, value in row.items():
        several = isinstance(value, list)
        cells += [(f"{name}/{index}", item) for index, item in enumerate(value)] if several else [(name, value)]
    return [(name, value) for name, value in cells if value is None or isinstance(value, int | float)]
