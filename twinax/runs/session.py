"""The loop between chunks: run, log, evaluate, save, and stop in good order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax import tree
from twinax.errors import MissingExtra, TwinaxError
from twinax.problem import State
from twinax.runs import checkpoint, episodes, films, pictures
from twinax.runs.directory import RunDirectory
from twinax.runs.interrupt import Interrupted, Interrupts
from twinax.runs.logger import Logger
from twinax.runs.metrics import Row
from twinax.runs.plan import Plan
from twinax.runs.progress import Progress
from twinax.runs.recorder import Recorder, merge
from twinax.runs.summary import best, summarize

# A chunk should not last longer than this, so that the log, the bar and Ctrl-C stay lively.
_CHUNK_SECONDS = 2.0


class Diverged(TwinaxError):
    """A loss that is no longer finite; its text names the term, the step and the last good checkpoint."""

    def __init__(self, sentence: str, step: int, term: str, checkpoint: Path | None):
        super().__init__(sentence)
        self.step = step
        self.term = term
        self.checkpoint = checkpoint


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


class Session:
    """One process's share of a training, from `done` steps to the plan's last.

    The chunks' lengths follow the clock; no number of the training depends on them.
    """

    def __init__(
        self,
        engine: Any,
        plan: Plan,
        logger: Logger,
        directory: RunDirectory | None,
        config: Any,
        command: str,
        done: int = 0,
        seconds: float = 0.0,
        window: Mapping[str, Any] | None = None,
    ):
        self.engine = engine
        self.plan = plan
        self.logger = logger
        self.directory = directory
        self.config = config
        self.command = command
        self.done = done
        self.recorder = Recorder(plan, window)
        self.metrics: dict[str, Any] = {}
        self.saved: Path | None = None
        self._summary: dict[str, Any] = {}
        self._films_refused = False
        self._before = seconds
        self._start = time.perf_counter()
        self._first = (0, 0.0)
        self._later = (0, 0.0)

    @property
    def seconds(self) -> float:
        """Seconds of training so far, earlier processes included."""
        return self._before + time.perf_counter() - self._start

    @property
    def speed(self) -> float:
        """Steps per second after the first chunk, which compiles; evaluation and saving do not count."""
        steps, seconds = self._later
        if not steps:
            steps, seconds = self._first[0], self._first[1] - self.engine.compile_seconds
        return steps / seconds if seconds > 0 else 0.0

    @property
    def how_to_resume(self) -> str:
        """The exact command, or call, that continues this run."""
        if self.directory is None:
            return "nothing was saved, because run_dir is None"
        if self.config is None:
            return f"continue with twinax.resume({str(self.directory.path)!r}, problem=...)"
        number = self.engine.processes
        launch = f"launch --processes {number} " if number > 1 else ""
        return f"continue with: twinax {launch}resume {self.directory.path}"

    def run(self, progress: Progress) -> Run:
        """Train to the plan's last step."""
        from twinax import engines
        from twinax.engines._hosts import agreed

        saving = "then saving; " if self.directory else ""
        notice = f"stopping after the running chunk, {saving}Ctrl-C again stops at once"
        with Interrupts(lambda: progress.say(notice)) as stop:
            try:
                while self.done < self.plan.steps:
                    self._chunk(progress)
                    # A signal may have reached one of several processes alone; they stop together.
                    code = agreed(stop.exit_code if stop.requested else 0)
                    if code and self.done < self.plan.steps:
                        raise self._interrupted(code)
            except engines.NonFinite as error:
                raise self._diverged(error.step, error.term) from error
            except KeyboardInterrupt:
                sentence = f"stopped at once; {self._last_saved()}; {self.how_to_resume}"
                raise Interrupted(sentence, stop.exit_code) from None
        result = self._result()
        if self.directory is not None:
            first = result.state if self.plan.seeds == 1 else tree.map_leaves(lambda x: x[0], result.state)
            episodes.show(self.engine.problem, first, self.plan.seed, self.directory, progress.say)
        return result

    def save(self, status: str = "running") -> None:
        """Write a checkpoint of now and the summary; older checkpoints beyond the plan's number go."""
        self._summary = self.summary(status)
        # With several processes all of them must ask for the state; one writes it.
        state = self.engine.state() if self.directory is not None or self.engine.processes > 1 else None
        if self.directory is None or state is None:
            return
        self.logger.sync()
        meta = {
            "step": self.done,
            "plan": self.plan.as_dict(),
            "seconds": self.seconds,
            "window": self.recorder.window,
            "log": self.logger.account(),
            "parameters": self.engine.num_parameters,
            "command": self.command,
            "config": self.config,
        }
        self.saved = checkpoint.save(checkpoint.place(self.directory.path, self.done), state, meta)
        self.directory.write_weights(self._members(state.networks))
        checkpoint.prune(self.directory.path, self.plan.keep)
        self.directory.write_summary(self._summary)

    def _members(self, networks: Any) -> dict[str, Any]:
        """Networks that get a file each; those of several seeds in a directory for each seed."""
        members, plan = self.engine.problem.members, self.plan
        if plan.seeds == 1:
            return members(networks)
        return {
            f"seed_{plan.seed + k}/{name}": network
            for k in range(plan.seeds)
            for name, network in members(tree.map_leaves(lambda x, k=k: x[k], networks)).items()
        }

    def summary(self, status: str) -> dict[str, Any]:
        """The summary of now."""
        timing = {
            "seconds": self.seconds,
            "steps_per_second": self.speed,
            "compile_seconds": float(self.engine.compile_seconds),
        }
        problem = self.engine.problem
        facts = {"parameters": int(self.engine.num_parameters), "problem": problem.describe()}
        facts = {**best(self.logger.rows, problem.best), **facts}
        row = self.logger.rows[-1] if self.logger.rows else None
        return summarize(self.plan, status, self.done, row, self.metrics, timing, facts, self.command)

    def _chunk(self, progress: Progress) -> None:
        # Processes that train together must agree on the length of a chunk, so none looks at its clock.
        speed = self.speed if self._later[0] and self.engine.processes == 1 else 0.0
        count = self.plan.next_chunk(self.done, int(speed * _CHUNK_SECONDS) if speed else self.plan.chunk)
        began, clock = self.seconds, time.perf_counter()
        values = self.engine.run(count)
        self._measure(count, time.perf_counter() - clock)
        rows = self.recorder.rows(self.done, values, began, self.seconds)
        self.done += count
        if self.plan.evaluates(self.done):
            self._evaluate(rows[-1], progress)
        self.logger.write(rows)
        progress.update(self.done, float(np.mean(values["loss"][-1])), self.speed)
        if self.plan.saves(self.done):
            self.save("finished" if self.done == self.plan.steps else "running")

    def _measure(self, count: int, seconds: float) -> None:
        if not self._first[0]:
            self._first = (count, seconds)
        else:
            self._later = (self._later[0] + count, self._later[1] + seconds)

    def _evaluate(self, row: Row, progress: Progress) -> None:
        found = self.engine.evaluate()
        self.metrics = {name: value for name, value in found.items() if not name.startswith(films.PREFIX)}
        merge(row, self.metrics)
        if self.directory is not None:
            pictures.save(self.directory.pictures_path, pictures.select(self.metrics), self.done)
            self._film(self.directory, films.select(found), progress)

    def _film(self, directory: RunDirectory, found: Mapping[str, np.ndarray], progress: Progress) -> None:
        """Write the films; a missing library costs the films, not the training."""
        try:
            films.save(directory.films, found, self.done)
        except MissingExtra as error:
            if not self._films_refused:
                progress.say(f"no films: {error}")
            self._films_refused = True

    def _result(self) -> Run:
        if self.directory is not None:
            self.directory.write_csv(self.logger.rows)
        path = self.directory.path if self.directory else None
        return Run(self._summary, self.engine.state(), self.logger.rows, path)

    def _interrupted(self, exit_code: int) -> Interrupted:
        self.save("interrupted")
        saved = f"and saved in {self.saved}" if self.saved else ""
        sentence = f"stopped at step {self.done} of {self.plan.steps} {saved}".rstrip()
        return Interrupted(f"{sentence}; {self.how_to_resume}", exit_code, self._result())

    def _diverged(self, step: int, term: str) -> Diverged:
        if self.directory is not None:
            self.directory.write_csv(self.logger.rows)
            self.directory.write_summary(self.summary("diverged") | {"bad_step": step, "bad_term": term})
        sentence = (
            f"the training stopped at step {step}: '{term}' is no longer finite and was the first to go bad; "
            f"{self._last_saved()}; lower the step size (optimizer.learning_rate) or check the reward"
        )
        return Diverged(sentence, step, term, self.saved)

    def _last_saved(self) -> str:
        return f"the last good checkpoint is {self.saved}" if self.saved else "there is no checkpoint"
