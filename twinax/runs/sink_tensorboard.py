"""TensorBoard: event files in the run directory."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, require
from twinax.runs import files
from twinax.runs.metrics import Row
from twinax.runs.sinks import Sink, Start, images, scalars


class TensorBoard(Sink):
    """Event files in the folder tensorboard/ of the run, written by the `tensorboard` package; PyTorch is not needed.

    >>> run = tx.train(problem, run_dir="runs/first", sinks=[TensorBoard()])     # doctest: +SKIP
    """

    def __init__(self):
        require("tensorboard", "tensorboard", "logging to TensorBoard")
        self._writer: Any = None

    def start(self, start: Start) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if start.dir is None:
            raise TwinaxError("TensorBoard's files lie in the run directory, and this run has none: give a run_dir")
        self._writer = EventFileWriter(str(files.inside(start.dir, start.dir / "tensorboard")))

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._write(row["step"], [{"tag": tag, "simple_value": value} for tag, value in scalars(row)])
        self._writer.flush()

    def pictures(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        self._show(step, {name: png(pixels) for name, pixels in images(pictures).items()})

    def films(self, step: int, films: Mapping[str, Path]) -> None:
        self._show(step, {name: path.read_bytes() for name, path in films.items()})

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        self._writer.close()

    def _show(self, step: int, encoded: Mapping[str, bytes]) -> None:
        # protobuf makes these classes at run time, where a type checker does not see them.
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        shown = {name: Summary.Image(encoded_image_string=content) for name, content in encoded.items()}
        self._write(step, [{"tag": name, "image": image} for name, image in shown.items()])
        self._writer.flush()

    def _write(self, step: int, values: Sequence[Mapping[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        summary = Summary(value=[Summary.Value(**value) for value in values])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def png(pixels: np.ndarray) -> bytes:
    """A picture of (height, width, 3) in uint8 as PNG, without another package.

    >>> png(np.zeros((2, 3, 3), np.uint8))[1:4]
    b'PNG'
    """
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
