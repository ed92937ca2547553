"""From an engine's values per step to the rows of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.runs.metrics import Row
from twinax.runs.pictures import PREFIX
from twinax.runs.plain import plain
from twinax.train_options import TrainOptions


class Recorder:
    """Turns the values of each chunk into rows; the chunks' lengths do not change the rows.

    The mean of the loss over the steps since the last regular row goes over the ends of chunks and, through
    `window`, over a resume. `counts` are things that each step has a fixed number of.
    """

    def __init__(
        self, plan: TrainOptions, window: Mapping[str, Any] | None = None, counts: Mapping[str, int] | None = None
    ):
        self._plan, self._counts = plan, dict(counts or {})
        self._sum = float(window["sum"]) if window else 0.0
        self._count = int(window["count"]) if window else 0

    @property
    def window(self) -> dict[str, Any]:
        """The losses that no regular row has taken up yet, for the checkpoint."""
        return {"sum": self._sum, "count": self._count}

    def rows(self, done: int, values: Mapping[str, np.ndarray], began: float, ended: float) -> list[Row]:
        """The rows of a chunk that followed `done` steps and ran from `began` to `ended` (seconds of training)."""
        steps = len(values["loss"])
        loss = np.asarray(values["loss"], np.float64).reshape(steps, -1).mean(axis=1)
        rows = []
        for index in range(steps):
            step = done + index + 1
            # One addition after the other: a sum whose order depended on the chunks would depend on the clock.
            self._sum += float(loss[index])
            self._count += 1
            regular = self._plan.logs(step)
            if not regular and step != self._plan.steps:
                continue
            rows.append(
                {
                    "step": step,
                    **{name: number * step for name, number in self._counts.items()},
                    "loss": float(loss[index]),
                    "loss_mean": self._sum / self._count,
                    "seconds": round(began + (ended - began) * (index + 1) / steps, 6),
                    **_others(values, index),
                }
            )
            if regular:
                self._sum, self._count = 0.0, 0
        return rows


def _others(values: Mapping[str, np.ndarray], index: int) -> dict[str, Any]:
    """The terms beside the loss at one step; with several seeds a list per term and the loss of each."""
    others: dict[str, Any] = {}
    for name, array in values.items():
        value = np.asarray(array[index]).tolist()
        if name != "loss":
            others[name] = value
        elif isinstance(value, list):
            others["loss_per_seed"] = value
    return others


def merge(row: Row, metrics: Mapping[str, Any]) -> None:
    """Put an evaluation's metrics into the row of its step, as plain data; what the row has as its own stays."""
    own = {name: row[name] for name in ("step", "loss", "loss_mean", "seconds", "loss_per_seed") if name in row}
    row.update(plain({name: value for name, value in metrics.items() if not name.startswith(PREFIX)}))
    row.update(own)
