"""MLflow: a run in its store for each run here."""

# These packages are extras that the type checker does not see.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import require
from twinax.runs.metrics import Row
from twinax.runs.sinks import Sink, Start, flat, images, scalars

_ENDS = {"finished": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED"}
_MOST_METRICS, _MOST_SETTINGS, _LONGEST = 1000, 100, 500
"""What MLflow takes at once, and of the text of a setting."""


class MLflow(Sink):
    """MLflow; its own environment variables hold, such as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME.

    >>> run = tx.train(problem, run_dir="runs/first", sinks=[MLflow(experiment="hypergrid")])   # doctest: +SKIP
    """

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None):
        require("mlflow", "mlflow", "logging to MLflow")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "twinax"
        self._tracking_uri = tracking_uri
        self._client: Any = None
        self._id = ""

    def start(self, start: Start) -> str:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(self._tracking_uri)
        if start.id is not None:
            self._id = start.id
            self._client.update_run(self._id, "RUNNING")
            return self._id
        experiment = self._client.get_experiment_by_name(self._experiment)
        place = experiment.experiment_id if experiment is not None else self._client.create_experiment(self._experiment)
        self._id = self._client.create_run(place, run_name=start.name, tags={"twinax.unit": start.unit}).info.run_id
        settings = [Param(name, str(value)[:_LONGEST]) for name, value in flat(start.config).items()]
        for first in range(0, len(settings), _MOST_SETTINGS):
            self._client.log_batch(self._id, params=settings[first : first + _MOST_SETTINGS])
        return self._id

    def rows(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(tag, value, now, row["step"]) for row in rows for tag, value in scalars(row)]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + _MOST_METRICS])

    def pictures(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        for name, pixels in images(pictures).items():
            self._client.log_image(self._id, pixels, key=name, step=step)

    def films(self, step: int, films: Mapping[str, Path]) -> None:
        for path in films.values():
            self._client.log_artifact(self._id, str(path), "films")

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        self._client.set_tag(self._id, "twinax.status", status)
        self._client.set_terminated(self._id, _ENDS.get(status, "FAILED"))
