"""Where rows, pictures and films of a training go besides its own files: the contract of a sink, and sinks by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.registry import Registry
from twinax.runs.metrics import Row

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": "twinax.runs.sink_tensorboard:TensorBoard",
        "wandb": "twinax.runs.sink_wandb:WandB",
        "mlflow": "twinax.runs.sink_mlflow:MLflow",
        "trackio": "twinax.runs.sink_trackio:Trackio",
    },
    aliases={"tb": "tensorboard"},
)
"""Sinks by name, as `logger=wandb` chooses them."""
_PIXELS = 256
"""Small pictures are shown with pixels as large as fit into this many."""


@dataclass(frozen=True)
class Start:
    """What a sink is told when a training begins or goes on."""

    name: str
    """The run directory's name; "twinax" where nothing is written."""
    dir: Path | None
    """The run directory."""
    config: dict[str, Any]
    """The settings: the configuration, or what the problem says of itself and the options of the training."""
    step: int
    """Steps done: 0 unless the run goes on."""
    unit: str
    """What people count in this run, such as environment steps."""
    column: str
    """The name of that number in rows; "step" where it is the step itself."""
    id: str | None = None
    """What `Sink.start` returned when the run began."""


class Sink:
    """A place for what a training logs; every method may be left as it is.

    >>> class Printer(Sink):
    ...     def rows(self, rows):
    ...         print(*(row["step"] for row in rows))
    >>> Printer().rows([{"step": 1, "loss": 0.5}])
    1
    """

    def start(self, start: Start) -> str | None:
        """A training begins or goes on; returns the id that it should be told again when the run goes on."""

    def rows(self, rows: Sequence[Row]) -> None:
        """New lines of metrics.jsonl, each with `step` and `loss`; a list has a value for each seed."""

    def pictures(self, step: int, pictures: Mapping[str, np.ndarray]) -> None:
        """Arrays of an evaluation by name; `images` makes pixels of them."""

    def films(self, step: int, films: Mapping[str, Path]) -> None:
        """GIF files of the run directory by name."""

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        """The training has ended: finished, stopped, interrupted, diverged or failed."""


def make_sinks(names: Sequence[str]) -> list[Sink]:
    """Sinks by name or `package.module:Name`; a missing extra or an unknown name is one sentence.

    >>> make_sinks(["paper"])
    Traceback (most recent call last):
    twinax.errors.UnknownName: unknown logger 'paper'; known: mlflow, tensorboard, trackio, wandb.
    """
    made = []
    for name in names:
        logger = LOGGERS.find(name)
        try:
            made.append(logger() if isinstance(logger, type) else logger)
        except TypeError as error:
            raise TwinaxError(f"logger '{name}' cannot be made without arguments: {error}; give it defaults") from error
    return made


def scalars(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The finite numbers of a row by tag; a list per seed becomes one tag per seed.

    >>> scalars({"step": 3, "loss": 0.5, "modes": [1, 2]})
    [('loss', 0.5), ('modes/0', 1.0), ('modes/1', 2.0)]
    """
    tagged = []
    for name, value in row.items():
        if name == "step":
            continue
        items = [(f"{name}/{i}", item) for i, item in enumerate(value)] if isinstance(value, list) else [(name, value)]
        tagged += [(tag, float(item)) for tag, item in items if isinstance(item, int | float) and math.isfinite(item)]
    return tagged


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted key.

    >>> flat({"trainer": {"steps": 100}, "seed": 0})
    {'trainer.steps': 100, 'seed': 0}
    """
    settings: dict[str, Any] = {}
    for name, value in config.items():
        settings |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return settings


def images(pictures: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pictures as grey pixels (height, width, 3) in uint8: white is their largest value, the origin is below left.

    >>> images({"target": np.eye(2)})["target"].shape
    (256, 256, 3)
    """
    flat = {}
    for name, array in pictures.items():
        if array.dtype.kind in "fiub" and array.size and array.ndim <= 3:
            mean = np.asarray(array, float).mean(axis=0) if array.ndim == 3 else np.asarray(array, float)
            flat[name] = np.nan_to_num(np.atleast_2d(mean), posinf=0.0, neginf=0.0)
    top = max((float(array.max()) for array in flat.values()), default=0.0) or 1.0
    made = {}
    for name, array in flat.items():
        grey = (255 * np.clip(array / top, 0, 1)).astype(np.uint8)[::-1]
        each = max(1, _PIXELS // max(grey.shape))
        made[name] = np.repeat(grey.repeat(each, 0).repeat(each, 1)[..., None], 3, axis=2)
    return made
