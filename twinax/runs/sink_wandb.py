"""Weights & Biases: a run there for each run here."""

# These packages are extras that the type checker does not see.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import require
from twinax.runs import files
from twinax.runs.metrics import Row
from twinax.runs.sinks import Sink, Start, images, scalars


class WandB(Sink):
    """Weights & Biases; its own environment variables hold, such as WANDB_MODE=offline, WANDB_PROJECT, WANDB_ENTITY.

    Its files lie in the folder wandb/ of the run directory; those of an offline run are sent with `wandb sync`.

    >>> run = tx.train(problem, run_dir="runs/first", sinks=[WandB(project="hypergrid")])   # doctest: +SKIP
    """

    def __init__(self, project: str | None = None, entity: str | None = None, tags: Sequence[str] = ()):
        require("wandb", "wandb", "logging to Weights & Biases")
        self._given = {"entity": entity, "tags": list(tags) or None}
        self._project = project or os.environ.get("WANDB_PROJECT") or "twinax"
        self._run: Any = None

    def start(self, start: Start) -> str:
        import wandb

        if start.dir is not None:
            files.inside(start.dir, start.dir / "wandb")  # it would follow a link to anywhere
        self._run = wandb.init(
            project=self._project,
            name=start.name,
            id=start.id,
            resume="allow" if start.id else None,
            config=start.config,
            dir=str(start.dir) if start.dir is not None else None,
            **self._given,
        )
        if start.column != "step":
            self._run.define_metric("*", step_metric=start.column)
        return self._run.id

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._run.log(dict(scalars(row)), step=row["step"])

    def pictures(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        import wandb

        self._run.log({f"picture/{name}": wandb.Image(pixels) for name, pixels in images(pictures).items()}, step=step)

    def films(self, step: int, films: Mapping[str, Path]) -> None:
        import wandb

        self._run.log({f"film/{name}": wandb.Video(str(path), format="gif") for name, path in films.items()}, step=step)

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=int(status in ("failed", "diverged")))
