"""What a comparison found, row by row, and how it is shown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from twinax.errors import TwinaxError

SHOWN = 10
"""Differing rows that a table lists one by one."""


class Different(TwinaxError):
    """Two sides of a comparison do not agree; `report` has all rows."""

    def __init__(self, report: Report):
        self.report = report
        row = report.first_difference
        assert row is not None
        cause = f" Likely cause: {report.hint}" if report.hint else ""
        super().__init__(f"{row.describe()} (tolerance {report.tolerance:g}).{cause}")


@dataclass(frozen=True)
class Row:
    """One comparison of two arrays."""

    rung: str
    """Step of the ladder: structure, collect, values, gradients, optimizer or training."""
    item: str
    """What was compared: a term, a parameter, or `term d parameter` for a gradient."""
    side: str
    """The mode that was compared."""
    against: str
    """The mode that it was compared with."""
    absolute: float
    """Largest absolute difference."""
    relative: float
    """The same divided by the size of the reference array's largest entry."""
    index: tuple[int, ...] | None
    """Where the difference is largest; None for names, shapes and numbers."""
    ok: bool
    """Whether the relative difference is within the tolerance."""
    note: str = ""
    """What numbers cannot say: shapes that differ, names that are missing, the first differing step."""

    def describe(self) -> str:
        """One line for people."""
        where = f" at {list(self.index)}" if self.index else ""
        size = "" if math.isnan(self.absolute) else f" by {self.absolute:.3g} (relative {self.relative:.3g}){where}"
        note = f": {self.note}" if self.note else ""
        verb = "agrees with" if self.ok else "differs from"
        return f"{self.rung}: '{self.item}' of {self.side} {verb} {self.against}{size}{note}"


@dataclass(frozen=True)
class Report:
    """All rows of a comparison, in the order of the ladder, and the likely cause of the first difference.

    >>> report = check(problem)  # doctest: +SKIP
    >>> report.raise_if_different()  # doctest: +SKIP
    """

    rows: tuple[Row, ...]
    """Comparisons from the cheapest rung to the dearest."""
    modes: tuple[str, ...]
    """What was compared; the first is the reference."""
    tolerance: float
    """Largest relative difference that passes."""
    dtype: str
    """Precision of the computation."""
    parameters: int
    """How many numbers are trained."""
    hint: str | None = None
    """The likely cause of the first difference; None when there is none."""
    steps: int | None = None
    """Over how many steps of training whole runs were compared; None where losses alone were."""

    @property
    def ok(self) -> bool:
        """Whether every row is within the tolerance."""
        return all(row.ok for row in self.rows)

    @property
    def first_difference(self) -> Row | None:
        """The first row that is not within the tolerance."""
        return next((row for row in self.rows if not row.ok), None)

    @property
    def worst(self) -> Row | None:
        """The row with the largest relative difference."""
        return max(self.rows, key=lambda row: math.inf if math.isnan(row.relative) else row.relative, default=None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What agrees and should be known all the same, such as a part that reaches no parameter."""
        return tuple(dict.fromkeys(f"'{row.item}': {row.note}" for row in self.rows if row.ok and row.note))

    def raise_if_different(self) -> Report:
        """Raise `Different`, which names the first difference and its likely cause; else the report itself."""
        if not self.ok:
            raise Different(self)
        return self

    def table(self) -> Any:
        """For rich: one line for each rung and mode, then the verdict or the first differing rows."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"parity of {', '.join(self.modes)} in {self.dtype}, tolerance {self.tolerance:g}")
        for name in ("rung", "mode", "against"):
            table.add_column(name)
        for name in ("compared", "differing", "largest"):
            table.add_column(name, justify="right")
        for (rung, side, against), rows in _grouped(self.rows).items():
            bad = sum(not row.ok for row in rows)
            worst = max(rows, key=lambda row: (not row.ok, row.relative))
            size = Text(f"{worst.relative:.2g}", "red" if bad else "green")
            table.add_row(rung, side, against, str(len(rows)), str(bad), size)
        return Group(table, Text(self._verdict()))

    def to_json(self) -> str:
        """Everything as JSON text; numbers that are not finite are written as strings."""
        facts = {
            "ok": self.ok,
            "modes": self.modes,
            "tolerance": self.tolerance,
            "dtype": self.dtype,
            "parameters": self.parameters,
            "steps": self.steps,
            "first_difference": None if self.first_difference is None else _plain(self.first_difference),
            "hint": self.hint,
            "notes": self.notes,
            "rows": [_plain(row) for row in self.rows],
        }
        return json.dumps(facts, indent=1, allow_nan=False)

    def _verdict(self) -> str:
        worst, first = self.worst, self.first_difference
        if worst is None:
            return "nothing was compared"
        if first is None:
            trained = "" if self.steps is None else f" over {self.steps} training step{'s' * (self.steps > 1)}"
            return (
                f"{', '.join(self.modes)} agree{trained}: {len(self.rows)} comparisons of {self.parameters} "
                f"parameters, largest relative difference {worst.relative:.2g} "
                f"({worst.rung}: {worst.item} of {worst.side})"
            ) + "".join(f"\nnote: {note}" for note in self.notes)
        differing = [row for row in self.rows if not row.ok]
        lines = [row.describe() for row in differing[:SHOWN]]
        if len(differing) > SHOWN:
            lines.append(f"and {len(differing) - SHOWN} more")
        if self.hint:
            lines.append(f"likely cause: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"parity {'ok' if self.ok else 'FAILED'}: {self._verdict()}"


def _grouped(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.rung, row.side, row.against), []).append(row)
    return groups


def _plain(row: Row) -> dict[str, Any]:
    def number(x: Any) -> Any:
        return str(x) if isinstance(x, float) and not math.isfinite(x) else x

    return {name: number(value) for name, value in asdict(row).items()}
