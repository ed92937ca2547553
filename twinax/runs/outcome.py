"""How a training ends: with a run in the caller's hands, or with an error that says what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.problem import State
from twinax.runs.metrics import Row


@dataclass(frozen=True)
class Run:
    """What a training leaves in the hands of the caller."""

    summary: dict[str, Any]
    """Final metrics, loss, steps, seconds, steps_per_second, compile_seconds, parameters, versions."""
    state: State
    """The complete state with NumPy leaves: what the last checkpoint holds."""
    metrics: list[Row]
    """The logged rows, those from before a resume included."""
    dir: Path | None
    """The run directory, or None when nothing was written."""

    @property
    def networks(self) -> Any:
        """The trained networks, with NumPy leaves."""
        return self.state.networks


class Removed(TwinaxError):
    """The run directory went away while the training ran."""

    exit_code = 1


class EvaluationFailed(TwinaxError):
    """An evaluation that raised; its text says where the training is kept, and `run` holds it."""

    exit_code = 1

    def __init__(self, sentence: str, run: Run):
        super().__init__(sentence)
        self.run = run
