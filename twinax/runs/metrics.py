"""metrics.jsonl: one JSON object per logged step, in ascending steps.

Checkpoints keep how many rows it had by then and their sum, so that a log that was damaged or edited is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.ranges import is_number
from twinax.runs import files, plain

Row = dict[str, Any]
Account = Mapping[str, Any]
"""Of a log: rows, bytes, sha256."""
Tell = Callable[[str], None]
"""What gets a sentence for a person."""


class MetricsFile:
    """Appends rows to a run's metrics.jsonl; every call leaves whole lines behind."""

    def __init__(self, path: Path, anew: bool = False):
        self.path = path
        with files.writing("the log", path, path.parent):
            if anew:
                files.replace_file(path, "")
            self._file = files.open_to_append(path)
            before = path.read_bytes()
        self._rows, self._bytes, self._sum = before.count(b"\n"), len(before), hashlib.sha256(before)

    def is_in_place(self) -> bool:
        """Whether the open file is the one under its name: an open file takes rows also after it was removed."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))
        except FileNotFoundError:
            return False

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows and hand them to the operating system, so that a killed process loses none."""
        lines = [plain.dumps(row) + "\n" for row in rows]
        text = "".join(lines)
        with files.writing("the log", self.path, kept="the checkpoints are intact"):
            self._file.write(text)
            self._file.flush()
        content = text.encode("utf-8")
        self._rows, self._bytes = self._rows + len(lines), self._bytes + len(content)
        self._sum.update(content)

    def account(self) -> dict[str, Any]:
        """What the file holds by now."""
        return {"rows": self._rows, "bytes": self._bytes, "sha256": self._sum.hexdigest()}

    def sync(self) -> None:
        """Wait until the rows are on the disk: a checkpoint must not be newer than its log."""
        with files.writing("the log", self.path, kept="the checkpoints are intact"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Log:
    """What was found in a metrics.jsonl."""

    rows: list[Row]
    """Whole rows in ascending steps, each step once."""
    text: str
    """The lines that they stand on."""
    trouble: str = ""
    """How the file differs from what was written, in words; empty when it does not."""


def read(path: Path | str, account: Account | None = None, step: int = 0, tell: Tell | None = None) -> list[Row]:
    """The rows of a metrics.jsonl; a half-written line of a running or killed training is left out.

    `account` is what a checkpoint of that step said of it. If lines are damaged, doubled, out of order or missing,
    `tell` gets a sentence that counts them (default: a Python warning).
    """
    path = Path(path)
    log = _examine(_content(path), account, step)
    if log.trouble:
        (tell or _warn)(f"{path} is not as the run wrote it: {log.trouble}; the {len(log.rows)} rows left are used")
    return log.rows


def last_step(path: Path) -> int:
    """The last step that was ever logged there; 0 when there is none."""
    return max((row["step"] for row in _examine(_content(path), None, 0).rows), default=0) if path.exists() else 0


def trim(path: Path, step: int, account: Account | None = None, tell: Tell | None = None) -> list[Row]:
    """Drop what was logged after `step`, and a half-written last line; the rows that stay.

    A resumed training writes those steps again, so the file ends up as if nothing had been killed. Of a file that was
    damaged the good rows are kept and the file itself is put aside; `tell` gets a sentence.
    """
    content = _content(path) if path.exists() else b""
    if account is not None and _intact(content, account):
        whole, rest, kept = content[: account["bytes"]], content[account["bytes"] :], content
        rows = [json.loads(line) for line in whole.decode("utf-8").splitlines()]
        # The row of an evaluation is written after the checkpoint of its step.
        later = _examine(rest, None, step, until=step)
        fits = [row["step"] for row in later.rows] == [step] and not (rows and rows[-1]["step"] >= step)
        text = whole.decode("utf-8")
        log = Log([*rows, *later.rows], text + later.text) if fits and not later.trouble else Log(rows, text)
    else:
        kept, log = content, _examine(content, account, step, until=step)
    with files.writing("the log", path, path.parent):
        if log.trouble:
            aside = _free_name(path)
            said = f"the {len(log.rows)} rows left are kept"
            if path.exists():
                os.replace(path, aside)
                said += f", the old file is {aside.name}"
            (tell or _warn)(f"{path} is not as the run wrote it: {log.trouble}; {said}")
        if log.text.encode("utf-8") != kept or log.trouble:
            files.replace_file(path, log.text)
    return log.rows


def _content(path: Path) -> bytes:
    try:
        return files.read_bytes(path, path.parent)
    except OSError as error:
        raise TwinaxError(f"{path} cannot be read: {error.strerror or error}; delete it to go on without it") from error


def _intact(content: bytes, account: Account) -> bool:
    return hashlib.sha256(content[: account["bytes"]]).hexdigest() == account["sha256"]


def _examine(content: bytes, account: Account | None, step: int, until: int | None = None) -> Log:
    """The good rows, up to a step if one is given, and what is wrong with the others."""
    counts = {"damaged": 0, "doubled": 0, "out of order": 0}
    by_step: dict[int, tuple[Row, str]] = {}
    largest = -1
    *lines, _ = content.decode("utf-8", errors="replace").split("\n")  # what follows the last line end is half a line
    for line in lines:
        row = _row(line)
        if row is None:
            counts["damaged"] += 1
        elif row["step"] in by_step:
            counts["doubled"] += 1
        else:
            counts["out of order"] += row["step"] < largest
            by_step[row["step"]], largest = (row, line), max(largest, row["step"])
    told = []
    if account is not None and not _intact(content, account):
        # Lines that are broken are missing as rows too: they are counted once.
        absent = account["rows"] - sum(one <= step for one in by_step) - counts["damaged"]
        told += [f"{absent} missing"] if absent > 0 else [f"{-absent} too many"] if absent < 0 else []
        told = told or ([] if any(counts.values()) else ["values were changed"])
    told = [f"{count} {name}" for name, count in counts.items() if count] + told
    rows = [by_step[one] for one in sorted(by_step) if until is None or one <= until]
    trouble = "values were changed" if told == ["values were changed"] else f"lines are {_listed(told)}" if told else ""
    return Log([row for row, _ in rows], "".join(line + "\n" for _, line in rows), trouble)


def _row(line: str) -> Row | None:
    """The object on a line; None unless the line is one that a run could have written."""
    try:
        row = plain.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not is_number(row.get("step")) or not 0 <= row["step"] < 2**31:
        return None
    seconds = row.get("seconds")
    return row if isinstance(row["step"], int) and (seconds is None or is_number(seconds)) else None


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged{'' if number == 1 else f'-{number}'}")):
        number += 1
    return aside


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)
