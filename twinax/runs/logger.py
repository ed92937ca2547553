"""Where the rows of a training go: memory, metrics.jsonl, and TensorBoard when asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinax.errors import require
from twinax.runs import files
from twinax.runs.metrics import MetricsFile, Row

Sink = Callable[[Sequence[Row]], None]
"""Anything that takes rows; each row has `step` and `loss`."""


class Logger:
    """Keeps all rows, and hands each chunk's to the metrics file and to further sinks.

    A sink that fails is left out from then on, and a metrics file that somebody removed is written anew: `mishaps` has
    a sentence for each.

    >>> logger = Logger()
    >>> logger.write([{"step": 1, "loss": 0.5}])
    >>> logger.rows
    [{'step': 1, 'loss': 0.5}]
    """

    def __init__(self, file: MetricsFile | None = None, sinks: Iterable[Sink] = (), rows: Iterable[Row] = ()):
        self.rows: list[Row] = list(rows)
        self._file = file
        self._sinks = list(sinks)
        self.mishaps: dict[str, str] = {}

    def write(self, rows: Sequence[Row]) -> None:
        """Log rows everywhere; nothing stays in a buffer of this process."""
        if not rows:
            return
        self.rows.extend(rows)
        if self._file is not None:
            if self._file.is_in_place():
                self._file.write(rows)
            else:
                self._write_anew(self._file)
        for sink in list(self._sinks):
            try:
                sink(rows)
            except Exception as error:  # another package's writer; the training is worth more than its files
                self._sinks.remove(sink)
                self.mishaps["sink"] = f"a log ends at step {rows[0]['step']}: {type(error).__name__}: {error}"

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


@contextmanager
def tensorboard_sink(directory: Path, first_step: int = 0) -> Iterator[Sink]:
    """A sink that writes TensorBoard event files into a folder of the run.

    Steps after `first_step` replace those of a killed run. It uses the `tensorboard` package's own writer, so PyTorch
    is not needed.
    """
    require("tensorboard", "tensorboard", "logging to TensorBoard")
    import time

    # protobuf makes these classes at run time, where a type checker does not see them.
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(files.inside(directory.parent, directory)))
    if first_step:
        restart = SessionLog(status=SessionLog.SessionStatus.START)
        writer.add_event(Event(wall_time=time.time(), step=first_step + 1, session_log=restart))

    def write(rows: Sequence[Row]) -> None:
        for row in rows:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(row)]
            writer.add_event(Event(wall_time=time.time(), step=row["step"], summary=Summary(value=values)))
        writer.flush()

    try:
        yield write
    finally:
        writer.close()


def scalars(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The finite numbers of a row by tag; a list per seed becomes one tag per seed.

    >>> scalars({"step": 3, "loss": 0.5, "modes": [1, 2]})
    [('loss', 0.5), ('modes/0', 1.0), ('modes/1', 2.0)]
    """
    found = []
    for name, value in row.items():
        if name == "step":
            continue
        items = [(f"{name}/{i}", item) for i, item in enumerate(value)] if isinstance(value, list) else [(name, value)]
        found += [(tag, float(item)) for tag, item in items if isinstance(item, int | float) and math.isfinite(item)]
    return found
