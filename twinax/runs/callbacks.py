"""What a callback may do with a training: look at it, stop it, and change settings that need no compilation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName
from twinax.problem import Problem, State
from twinax.runs.metrics import Row

Callback = Callable[["Training", int, Mapping[str, Any]], Any]
"""(run, step, metrics) after every row of the log; metrics is that row, with an evaluation's metrics where there was
one. Chunks end at these rows, so that a callback sees the same rows in every run of the same settings."""


class Training:
    """A training between two chunks, in the hands of its callbacks.

    >>> def halve(run, step, metrics):
    ...     if step == 1000:
    ...         run.change(learning_rate=run.settings["learning_rate"] / 2)
    """

    def __init__(self, engine: Any, rows: Sequence[Row], steps: int, directory: Path | None):
        self._engine, self._rows = engine, rows
        self.steps = steps
        """The steps that the run is to do in all."""
        self.dir = directory
        """The run directory, or None."""
        self.stopped: str | None = None
        """Why a callback stopped the run; None while it goes on."""

    @property
    def problem(self) -> Problem:
        """What is trained."""
        return self._engine.problem

    @property
    def metrics(self) -> list[Row]:
        """The rows of the log until now, without the one that a callback is given."""
        return list(self._rows)

    @property
    def settings(self) -> dict[str, Any]:
        """The numbers that `change` may change, as they are now: step sizes, and those of the problem."""
        return {name: np.array(value)[()] for name, value in self._engine.settings.items()}

    def state(self) -> State:
        """A copy of networks, optimizer and all else, with NumPy leaves."""
        return self._engine.state()

    def stop(self, reason: str = "a callback stopped it") -> None:
        """End the run after this step as if it were its last: it is saved, evaluated and summarised."""
        self.stopped = str(reason)

    def change(self, settings: Mapping[str, Any] | None = None, **named: Any) -> None:
        """Go on with other values of some settings; a name that is no Python name is given in a dictionary.

        >>> run.change({"epsilon/iqn": [0.1, 1.0, 0.1]}, learning_rate=1e-4)    # doctest: +SKIP
        """
        for name, value in {**(settings or {}), **named}.items():
            self._engine.settings[name] = fitting(name, value, self._engine.settings)


def fitting(name: str, value: Any, known: Mapping[str, Any]) -> np.ndarray:
    """A new value of a setting, if it is one.

    >>> fitting("learning_rate", 0.5, {"learning_rate": np.array(1.0)})
    array(0.5)
    """
    if name not in known:
        raise UnknownName("setting", name, known)
    now = np.asarray(known[name])
    try:
        array = np.asarray(value, now.dtype)
    except (TypeError, ValueError):
        array = None
    if array is None or array.shape != now.shape or not np.all(np.isfinite(array)):
        form = f"{now.size} finite numbers" if now.shape else "a finite number"
        raise TwinaxError(f"the setting '{name}' cannot become {value!r}: it is {now.tolist()}, and takes {form}")
    return array


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuse what could not be called with (run, step, metrics), before anything is trained."""
    for callback in callbacks:
        if isinstance(callback, type):
            name = callback.__name__
            raise TwinaxError(f"callbacks has the class {name}; give an object of it that can be called, {name}()")
        try:
            inspect.signature(callback).bind(None, 0, {})
        except TypeError as error:
            raise TwinaxError(
                f"the callback {named(callback)} cannot be called with (run, step, metrics): {error}"
            ) from error
        except ValueError:  # written in C: nobody knows its arguments
            continue


def named(callback: Any) -> str:
    """What a callback is called in a sentence."""
    return getattr(callback, "__qualname__", None) or type(callback).__qualname__
