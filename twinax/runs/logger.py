"""Where the rows of a training are kept: memory and metrics.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twinax.runs.metrics import MetricsFile, Row


class Logger:
    """Keeps all rows, and hands each chunk's to the metrics file.

    A metrics file that somebody removed is written anew, and `mishaps` has a sentence on it.

    >>> logger = Logger()
    >>> logger.write([{"step": 1, "loss": 0.5}])
    >>> logger.rows
    [{'step': 1, 'loss': 0.5}]
    """

    def __init__(self, file: MetricsFile | None = None, rows: Iterable[Row] = ()):
        self.rows: list[Row] = list(rows)
        self._file = file
        self.mishaps: dict[str, str] = {}

    def write(self, rows: Sequence[Row]) -> None:
        """Log rows; nothing stays in a buffer of this process."""
        if not rows:
            return
        self.rows.extend(rows)
        if self._file is not None:
            if self._file.is_in_place():
                self._file.write(rows)
            else:
                self._write_anew(self._file)

    def _write_anew(self, lost: MetricsFile) -> None:
        lost.close()
        self._file = MetricsFile(lost.path, anew=True)
        self._file.write(self.rows)
        self.mishaps["log"] = f"{lost.path} was removed or replaced during the training and is written anew"

    def sync(self) -> None:
        """Wait until the metrics file is on the disk."""
        if self._file is not None:
            self._file.sync()

    def account(self) -> dict[str, Any] | None:
        """Rows, bytes and sum of the metrics file as it is now, for the checkpoint; None without one."""
        return self._file.account() if self._file is not None else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
