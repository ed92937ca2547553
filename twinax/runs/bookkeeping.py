"""What is kept of a training, whoever makes its steps: the log, checkpoints, weights, summary, table, and signals.

A checkpoint comes before the evaluation of its step, and "finished" is the last thing that is written. So a kill at any
moment leaves either a run that goes on, or one whose steps are done and that `resume` finishes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from twinax import recipe, tree
from twinax.networks import num_parameters
from twinax.problem import Problem, State
from twinax.runs import checkpoint, episodes, metrics, pictures
from twinax.runs.deliveries import Deliveries
from twinax.runs.directory import RunDirectory, builds_problem, container
from twinax.runs.divergence import Watch, doubt
from twinax.runs.endings import Run, diverged, removed
from twinax.runs.logger import Logger
from twinax.runs.metrics import Row
from twinax.runs.progress import Progress
from twinax.runs.sinks import Start
from twinax.runs.summary import best, command_line, summarize
from twinax.train_options import TrainOptions

TIMES = ("seconds", "speed", "compile_seconds")
"""Of a checkpoint's description: how long the training took so far, its steps per second, and what compiling took."""


class Bookkeeping:
    """The files of one run, from the moment its directory is held; `with` opens and closes the log and the progress.

    The one who trains sets `done`, `metrics`, `speed` and `compile_seconds`, and calls `log`, `save` and `end`.
    """

    def __init__(
        self,
        problem: Problem,
        plan: TrainOptions,
        directory: RunDirectory | None,
        first: State,
        config: Any = None,
        command: str = "",
        *,
        done: int = 0,
        rows: Sequence[Row] = (),
        timing: Mapping[str, Any] | None = None,
        saved: Path | None = None,
        processes: int = 1,
        show: bool | None = None,
        label: str = "",
        sinks: Sequence[Any] = (),
        logged: int = 0,
    ):
        self.problem, self.plan, self.directory = problem, plan, directory
        self.config, self.command = config, command
        self.done, self.saved = done, saved
        self.metrics: dict[str, Any] = {}
        # A process that only finishes a run makes no steps of its own to time.
        before, self.speed, self.compile_seconds = (_number(timing, name) for name in TIMES)
        self.summary: dict[str, Any] = {}
        self.logger = Logger(rows=rows)
        self.progress = Progress(
            label or f"{plan.mode} {named_seeds(plan)}", plan.steps, done, show, problem.present.unit
        )
        self.changes: dict[str, Any] = {}
        """Settings that callbacks changed, for the checkpoint."""
        self.called = False
        """Whether callbacks have seen the row of this step."""
        self.deliveries = Deliveries(sinks, self.note, directory.path if directory is not None else None)
        self._logged = logged
        self._parameters = num_parameters(first.networks) // plan.seeds
        self._watch = Watch(first)
        self._notes: dict[str, str] = {}
        self._tables: dict[str, Any] = {}
        self._facts: dict[str, Any] = {}
        self._processes = processes
        self._before, self._start = before, time.perf_counter()
        self._place = _identity(directory.path) if directory is not None else None
        self._stack = ExitStack()

    def __enter__(self) -> Bookkeeping:
        with ExitStack() as stack:
            if self.directory is not None:
                file = metrics.MetricsFile(self.directory.metrics_path)
                self.logger = stack.enter_context(closing(Logger(file, self.logger.rows)))
            stack.enter_context(self.progress)
            stack.callback(self._end_sinks)
            self.deliveries.start(self._facts_for_sinks(), self.logger.rows, self._logged)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _facts_for_sinks(self) -> Start:
        """What sinks are told at the beginning."""
        path = self.directory.path if self.directory is not None else None
        config = self.config or {"problem": self.problem.present.describe(), "trainer": self.plan.as_dict()}
        unit, name = self.problem.present.unit, path.resolve().name if path else "twinax"
        return Start(name, path, config, self.done, unit.name, unit.column or "step")

    def _end_sinks(self) -> None:
        status = self.summary.get("status", "running")
        self.deliveries.end("failed" if status == "running" else status, self.summary)

    @property
    def seconds(self) -> float:
        """Seconds of training so far, earlier processes included."""
        return self._before + time.perf_counter() - self._start

    @property
    def how_to_resume(self) -> str:
        """The exact command, or call, that continues this run."""
        if self.directory is None:
            return "nothing was saved, because run_dir is None"
        if not builds_problem(self.config) and not recipe.is_known(self.problem):
            return f"continue with twinax.resume({str(self.directory.path)!r}, problem=...)"
        launch = f"launch --processes {self._processes} " if self._processes > 1 else ""
        return f"continue with: twinax {launch}resume {self.directory.path}"

    @property
    def last_saved(self) -> str:
        return f"the last good checkpoint is {self.saved}" if self.saved else "there is no checkpoint"

    def note(self, kind: str, sentence: str) -> None:
        """Something that went wrong and ended nothing: said once of its kind, and kept in the summary."""
        if kind not in self._notes:
            self.progress.say(sentence)
            self._notes[kind] = sentence

    def log(self, rows: Sequence[Row], shown: Mapping[str, Any] | None = None) -> None:
        """Log rows, and hand them to sinks with what the last one's evaluation has `shown`: pictures and films.

        `Removed` when the run directory has gone.
        """
        self._must_be_there()
        self.logger.write(rows)
        self.deliveries.deliver(rows, **shown or {})
        for kind, sentence in self.logger.mishaps.items():
            self.note(kind, sentence)

    def save(self, state: State, window: Any = None, owed: Row | None = None) -> None:
        """Write a checkpoint of now, the weights and the summary; older checkpoints beyond the plan's number go.

        `owed` is the row of this step while its evaluation is still to come. A state that is worth nothing is not
        written: it raises `Diverged`.
        """
        bad = self._watch.find(state) if self.done else None
        if bad is not None:
            raise diverged(self, self.done, *bad)
        if self.directory is None:
            self.summary = self._summarize("running")
            return
        self._must_be_there()
        self.logger.sync()
        meta = {
            "step": self.done,
            "plan": self.plan.as_dict(),
            "seconds": self.seconds,
            "speed": self.speed,
            "compile_seconds": self.compile_seconds,
            "window": window,
            "owed": owed,
            "changes": self.changes,
            "called": self.called,
            "log": self.logger.account(),
            "parameters": self._parameters,
            "command": self.command,
            "config": self.config,
        }
        self.saved = checkpoint.save(checkpoint.place(self.directory.path, self.done), state, meta)
        self.settle(state)
        self._write_summary("running")

    def settle(self, state: State) -> None:
        """What follows a checkpoint: its networks alone, and fewer old checkpoints. Doing it again changes nothing."""
        if self.directory is not None:
            self.directory.write_weights(self._members(state.networks))
            checkpoint.prune(self.directory.path, self.plan.keep)

    def end(self, status: str, **facts: Any) -> None:
        """Write the table, and last of all the summary."""
        if status == "finished" and (doubtful := doubt(self.logger.rows)) is not None:
            self.note("loss", doubtful)
        if self.directory is not None:
            self.directory.write_csv(self.logger.rows)
        self._facts = facts
        self._write_summary(status, **facts)

    def result(self, state: State) -> Run:
        return Run(self.summary, state, self.logger.rows, self.directory.path if self.directory else None)

    def film(self, state: State) -> None:
        """Film an episode of the first seed. The run has ended before: what happens here costs the film alone."""
        if self.directory is None:
            return
        first = state if self.plan.seeds == 1 else tree.map_leaves(lambda x: x[0], state)
        self._list(first)
        film, mishap = episodes.show(self.problem, first, self.plan.seed, self.directory)
        if mishap is not None:
            self.note("episode", f"no film of an episode: {mishap}")
            self._write_summary(self.summary["status"], **self._facts)
        if film is not None:
            self.deliveries.show(self.done, {"episode": film})

    def _list(self, state: State) -> None:
        """Put what the family wants to be listed into the summary."""
        try:
            tables = self.problem.present.tables(state)
        except Exception as error:  # a stranger's reward or world may raise anything; the training is worth more
            self.note("tables", f"no tables: {error}")
        else:
            self._tables = {name: {"columns": list(one.columns), "rows": one.rows} for name, one in tables.items()}
        self._draw(state)
        if self._tables or {"tables", "drawings"} & self._notes.keys():
            self._write_summary(self.summary["status"], **self._facts)

    def _draw(self, state: State) -> None:
        """Put pictures that the family draws at the end beside those of the last evaluation."""
        if self.directory is None:
            return
        try:
            drawn = self.problem.present.drawings(state)
        except Exception as error:  # the same stranger's world
            return self.note("drawings", f"no drawings: {error}")
        if drawn:
            pictures.add(self.directory.pictures_path, drawn, self.done)

    def _write_summary(self, status: str, **facts: Any) -> None:
        self.summary = self._summarize(status) | facts
        if self.directory is not None:
            self.directory.write_summary(self.summary)

    def _summarize(self, status: str) -> dict[str, Any]:
        timing = {
            "seconds": self.seconds,
            "steps_per_second": self.speed * self.problem.present.unit.per_step,
            "compile_seconds": float(self.compile_seconds),
        }
        present = self.problem.present
        facts = {name: number * self.done for name, number in present.columns.items()}
        facts |= {"parameters": self._parameters, "problem": present.describe()}
        facts |= {"unit": {"name": present.unit.name, "per_step": present.unit.per_step}, "counts": present.columns}
        facts["titles"] = {name: [one.title, one.meaning, one.tile] for name, one in self.problem.judge.titles.items()}
        facts = {**best(self.logger.rows, self.problem.judge.best), **facts}
        if self._tables:
            facts["tables"] = self._tables
        if self._notes:
            facts["notes"] = list(self._notes.values())
        row = self.logger.rows[-1] if self.logger.rows else None
        return summarize(self.plan, status, self.done, row, self.metrics, timing, facts, self.command)

    def _members(self, networks: Any) -> dict[str, Any]:
        """Networks that get a file each; those of several seeds in a directory for each seed."""
        members, plan = self.problem.present.members, self.plan
        if plan.seeds == 1:
            return members(networks)
        return {
            f"seed_{plan.seed + k}/{name}": network
            for k in range(plan.seeds)
            for name, network in members(tree.map_leaves(lambda x, k=k: x[k], networks)).items()
        }

    def _must_be_there(self) -> None:
        """Open files of a removed directory take rows without a word, and a save would make a new directory."""
        if self.directory is None or _identity(self.directory.path) == self._place:
            return
        raise removed(self, self.directory.path)


@contextmanager
def new_run(
    problem: Problem, plan: TrainOptions, directory: RunDirectory | None, first: State, config: Any, **options: Any
) -> Iterator[Bookkeeping]:
    """The bookkeeping of a training that begins: its directory is made and held, its configuration written."""
    settings = container(config) if config is not None else None
    with ExitStack() as stack:
        if directory is not None:
            directory.create()
            stack.enter_context(directory.lock())
            directory.refuse_if_used()  # again: another process may have been faster
            directory.write_origin(problem, settings)
        command = command_line(plan, settings is not None)
        yield stack.enter_context(Bookkeeping(problem, plan, directory, first, settings, command, **options))


def named_seeds(plan: TrainOptions) -> str:
    """The seeds of a run, by their first and last."""
    return f"seed {plan.seed}" if plan.seeds == 1 else f"seeds {plan.seed} to {plan.seed + plan.seeds - 1}"


def owed_row(meta: Mapping[str, Any], rows: Sequence[Row]) -> Row | None:
    """The row that a checkpoint's evaluation still had to complete; None when it is in the log."""
    row, step = meta.get("owed"), meta["step"]
    if not isinstance(row, dict) or row.get("step") != step or rows and rows[-1]["step"] >= step:
        return None
    return dict(row)


def _number(values: Mapping[str, Any] | None, name: str) -> float:
    value = (values or {}).get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
