"""Runs: training with a run directory, checkpoints, logs, progress and reports.

>>> import twinax as tx
>>> run = tx.train(problem, mode="jax", steps=20_000, run_dir="runs/first")   # doctest: +SKIP
>>> tx.runs.write_report(["runs/first"])                                      # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinax.runs import checkpoint
    from twinax.runs.directory import RunDirectory, find_runs
    from twinax.runs.report import write_report
    from twinax.runs.sink_mlflow import MLflow
    from twinax.runs.sink_tensorboard import TensorBoard
    from twinax.runs.sink_trackio import Trackio
    from twinax.runs.sink_wandb import WandB
    from twinax.runs.sinks import Sink, Start
    from twinax.runs.trainer import (
        CallbackFailed,
        Diverged,
        EvaluationFailed,
        Interrupted,
        Removed,
        Run,
        Training,
        resume,
        train,
    )

__all__ = [
    "CallbackFailed",
    "Diverged",
    "EvaluationFailed",
    "Interrupted",
    "MLflow",
    "Removed",
    "Run",
    "RunDirectory",
    "Sink",
    "Start",
    "TensorBoard",
    "Trackio",
    "Training",
    "WandB",
    "checkpoint",
    "find_runs",
    "resume",
    "train",
    "write_report",
]

_TRAINER = ("CallbackFailed", "Diverged", "EvaluationFailed", "Interrupted", "Removed", "Run", "Training")
_HOMES = dict.fromkeys((*_TRAINER, "resume", "train"), "trainer") | {
    "MLflow": "sink_mlflow",
    "RunDirectory": "directory",
    "Sink": "sinks",
    "Start": "sinks",
    "TensorBoard": "sink_tensorboard",
    "Trackio": "sink_trackio",
    "WandB": "sink_wandb",
    "find_runs": "directory",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line's help must not wait for jax."""
    if name == "checkpoint":
        return import_module("twinax.runs.checkpoint")
    if name in _HOMES:
        return getattr(import_module(f"twinax.runs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'twinax.runs' has no attribute '{name}'")
