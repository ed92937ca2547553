"""What a report knows about a run, and the series of numbers to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.interval import half_width
from twinax.parts import Unit
from twinax.runs import files, films, metrics, pictures, plain
from twinax.runs.directory import RunDirectory
from twinax.runs.films import Film

_BOOKKEEPING = {"step", "seconds", "loss_mean", "loss_per_seed"}
LARGEST = 1e150
"""Of what is drawn: beyond it, and below its inverse, squares are no longer finite numbers."""


@dataclass(frozen=True)
class Series:
    """One number of one run over the training."""

    steps: np.ndarray
    """Steps done at each point."""
    seconds: np.ndarray
    """Seconds of training at each point."""
    values: np.ndarray
    """Values, one column per seed."""

    @property
    def mean(self) -> np.ndarray:
        return self.values.mean(axis=1)

    @property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of the 95 % confidence interval of the mean over seeds, by Student's t; needs two seeds."""
        half = half_width(self.values)
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class RunRecord:
    """Everything of a run that a report shows."""

    name: str
    """Its directory's name, made longer where two runs share it."""
    path: Path
    """Its directory."""
    summary: dict[str, Any]
    """summary.json."""
    rows: list[metrics.Row]
    """metrics.jsonl."""
    config: str
    """config.yaml as text; empty when the run has none."""
    pictures: list[pictures.Shown]
    """Of the last evaluation."""
    picture_step: int
    """The step of that evaluation."""
    films: list[Film]
    """The last film of each name."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what is not as the run wrote it."""

    @property
    def unit(self) -> Unit:
        """What the run was counted in; steps where its summary does not say."""
        told = self.summary.get("unit") or {}
        name, per_step = told.get("name"), told.get("per_step")
        if isinstance(name, str) and isinstance(per_step, int) and 1 <= per_step < 2**53:
            return Unit(name, per_step)
        return Unit()

    def names(self) -> list[str]:
        """Numbers in the log that were measured, in the order of their appearance."""
        counted = {*_BOOKKEEPING, *(self.summary.get("counts") or {})}
        return [name for name in dict.fromkeys(key for row in self.rows for key in row) if name not in counted]

    def evaluated(self) -> set[str]:
        """Numbers that only evaluations give: those that are missing in some row."""
        return {name for name in self.names() if any(name not in row for row in self.rows)}

    def series(self, name: str) -> Series | None:
        """The finite points of a number; None when there is none."""
        key = "loss_per_seed" if name == "loss" and self.rows and "loss_per_seed" in self.rows[0] else name
        points = []
        for row in self.rows:
            value = row.get(key)
            value = value if isinstance(value, list) else [value]
            if all(isinstance(item, int | float) and abs(item) <= LARGEST for item in value):
                points.append((row["step"], row.get("seconds") or 0.0, value))
        width = len(points[-1][2]) if points else 0
        points = [point for point in points if len(point[2]) == width]
        if not width:
            return None
        steps, seconds, values = zip(*points, strict=True)
        numbers = np.array(values, dtype=float)
        numbers[np.abs(numbers) < 1 / LARGEST] = 0.0
        return Series(np.array(steps), np.array(seconds, dtype=float), numbers)


def common_unit(runs: Sequence[RunRecord]) -> Unit | None:
    """What all of these runs are counted in, by name; None where they differ, so that only steps can be compared."""
    units = {run.unit.name: run.unit for run in runs}
    return next(iter(units.values())) if len(units) == 1 else None


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """The runs at these directories; a directory that only contains runs stands for them."""
    directories = list({run.resolve(): run for path in paths for run in _expand(path)}.values())
    if not directories:
        raise TwinaxError(f"there is no run in {', '.join(map(str, paths)) or 'an empty list'}: no metrics.jsonl found")
    names = _distinct_names(directories)
    return [_read(path, name) for path, name in zip(directories, names, strict=True)]


def read_json(path: Path) -> Any:
    """A small JSON file that another command wrote into a run or beside several; None when it is absent."""
    if not path.is_file():
        return None
    try:
        return plain.loads(files.read_text(path, path.parent))
    except (OSError, ValueError) as error:
        raise TwinaxError(f"{path} cannot be read ({error}); delete it or write it again") from error


def _expand(path: Path) -> list[Path]:
    directory = RunDirectory(path)
    directory.must_exist()
    if directory.metrics_path.exists():
        return [path]
    return sorted(child for child in path.iterdir() if (child / "metrics.jsonl").exists())


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    parts = [path.resolve().parts for path in paths]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(parts):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def _read(path: Path, name: str) -> RunRecord:
    directory, notes = RunDirectory(path), list[str]()
    directory.refuse_links()
    config = directory.config_text()
    arrays, told, step = pictures.load(directory.pictures_path)
    summary, rows = directory.read_summary(), directory.read_metrics(notes.append)
    shown = pictures.grouped(arrays, told)
    return RunRecord(name, path, summary, rows, config, shown, step, films.newest(directory.films), notes)
