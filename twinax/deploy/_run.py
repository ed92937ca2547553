"""A run's directory as an object."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from twinax import tree
from twinax.deploy._evaluation import Evaluation, evaluate
from twinax.deploy._rows import Rows
from twinax.deploy._trained import Trained
from twinax.errors import TwinaxError
from twinax.problem import Problem, State
from twinax.runs import RunDirectory
from twinax.train_options import TrainOptions


class LoadedRun(Trained):
    """What `load` gives: the newest whole checkpoint of a run, its problem, its settings and its log."""

    def __init__(
        self,
        directory: RunDirectory,
        problem: Problem,
        states: State,
        options: TrainOptions,
        config: dict[str, Any] | None,
        seed: int | None = None,
        before_evaluation: Callable[[], Any] = lambda: None,
    ):
        place = 0 if seed is None else seed - options.seed
        if not 0 <= place < options.seeds:
            last = options.seed + options.seeds - 1
            raise TwinaxError(f"there is no seed {seed} in this run; it has seeds {options.seed} to {last}")
        state = states if options.seeds == 1 else tree.map_leaves(lambda x: np.asarray(x)[place], states)
        facts = {"run": directory.path.name, "seed": options.seed + place, **({"config": config} if config else {})}
        super().__init__(problem, state, f"the run {directory.path}", facts)
        self.dir: Path = directory.path
        self.options = options
        """How it was trained: mode, steps, seeds, precision."""
        self.config = config
        """The composed configuration as plain values; None of a run that was started without one."""
        self.states = states
        """As `state`, with a leading axis for the seeds where there are several."""
        self._directory, self._before_evaluation = directory, before_evaluation

    @cached_property
    def metrics(self) -> Rows:
        """The logged rows; `metrics.frame()` is a pandas frame of them."""
        return Rows(self._directory.read_metrics())

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return self._directory.read_summary()

    def evaluate(self, seed: int | None = None, **options: Any) -> Evaluation:
        """As `twinax eval`, of all seeds of the run: metrics with fresh draws, in the mode that it was trained in."""
        self._before_evaluation()
        return evaluate(self.problem, self.states, dataclasses.replace(self.options, **options), seed)
