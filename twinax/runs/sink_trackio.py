"""Trackio: a local database with a dashboard of its own."""

# These packages are extras that the type checker does not see.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import require
from twinax.runs.metrics import Row
from twinax.runs.sinks import Sink, Start, images, scalars


class Trackio(Sink):
    """Trackio; its own environment variables hold, such as TRACKIO_DIR. `trackio show` opens the dashboard.

    >>> run = tx.train(problem, run_dir="runs/first", sinks=[Trackio(project="hypergrid")])   # doctest: +SKIP
    """

    def __init__(self, project: str | None = None, space_id: str | None = None):
        require("trackio", "trackio", "logging to Trackio")
        self._project = project or os.environ.get("TRACKIO_PROJECT") or "twinax"
        self._space_id = space_id
        self._run: Any = None

    def start(self, start: Start) -> str:
        import trackio

        # Trackio knows a run by its name, and two directories may have the same one.
        name = start.id or f"{start.name}-{secrets.token_hex(3)}"
        options: dict[str, Any] = {
            "config": start.config,
            "resume": "allow",
            "embed": False,
            "space_id": self._space_id,
        }
        self._run = trackio.init(project=self._project, name=name, auto_log_cpu=False, auto_log_gpu=False, **options)
        return name

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._run.log(dict(scalars(row)), step=row["step"])

    def pictures(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        import trackio

        self._run.log({f"picture/{name}": trackio.Image(x) for name, x in images(pictures).items()}, step=step)

    def films(self, step: int, films: Mapping[str, Path]) -> None:
        import trackio

        self._run.log(
            {f"film/{name}": trackio.Video(str(path), format="gif") for name, path in films.items()}, step=step
        )

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        self._run.finish()
