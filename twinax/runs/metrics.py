"""metrics.jsonl: one JSON object per logged step, in ascending steps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from twinax.runs import files, plain

Row = dict[str, Any]


class MetricsFile:
    """Appends rows to a run's metrics.jsonl; every call leaves whole lines behind."""

    def __init__(self, path: Path, anew: bool = False):
        self.path = path
        with files.writing("the log", path):
            self._file = open(path, "w" if anew else "a", encoding="utf-8")

    def is_in_place(self) -> bool:
        """Whether the open file is the one under its name: an open file takes rows also after it was removed."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows and hand them to the operating system, so that a killed process loses none."""
        text = "".join(plain.dumps(row) + "\n" for row in rows)
        with files.writing("the log", self.path, kept="the checkpoints are intact"):
            self._file.write(text)
            self._file.flush()

    def sync(self) -> None:
        """Wait until the rows are on the disk: a checkpoint must not be newer than its log."""
        with files.writing("the log", self.path, kept="the checkpoints are intact"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read(path: Path | str) -> list[Row]:
    """The rows of a metrics.jsonl; a half-written line of a running or killed training is left out."""
    rows = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            row = _row(line)
            if row is not None:
                rows.append(row)
    return rows


def trim(path: Path, step: int) -> list[Row]:
    """Drop what was logged after `step`, and a half-written last line; the rows that stay.

    A resumed training writes those steps again, so the file ends up as if nothing had been killed.
    """
    if not path.exists():
        return []
    with files.writing("the log", path):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept, rows = [], []
        for line in lines:
            row = _row(line)
            if row is not None and row["step"] <= step:
                kept.append(line)
                rows.append(row)
        if len(kept) < len(lines):
            files.replace_file(path, "".join(kept))
    return rows


def _row(line: str) -> Row | None:
    """The object on a line; None unless the line is whole."""
    if not line.endswith("\n"):
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None
