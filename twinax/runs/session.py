"""The loop between chunks: run, log, save, evaluate, and stop in good order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinax.problem import State
from twinax.runs import endings, films, pictures
from twinax.runs.bookkeeping import Bookkeeping
from twinax.runs.callbacks import Callback, Training, fitting
from twinax.runs.endings import Run
from twinax.runs.metrics import Row
from twinax.runs.recorder import Recorder, merge

# A chunk should not last longer than this, so that the log, the bar and Ctrl-C stay lively.
_CHUNK_SECONDS = 2.0


class Session:
    """One process's share of a training, from the steps done to the plan's last.

    The chunks' lengths follow the clock; no number of the training depends on them.
    """

    def __init__(
        self,
        engine: Any,
        book: Bookkeeping,
        window: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ):
        self.engine, self.book, self.plan, self.callbacks = engine, book, book.plan, list(callbacks)
        self.recorder = Recorder(book.plan, window, book.problem.present.columns)
        directory = book.directory.path if book.directory is not None else None
        self._training = Training(engine, book.logger.rows, book.plan.steps, directory)
        self._state: State | None = None
        self._first = (0, 0.0)
        self._later = (0, 0.0)

    @property
    def speed(self) -> float:
        """Steps per second after the first chunk, which compiles; evaluation and saving do not count."""
        steps, seconds = self._later
        if not steps:
            steps, seconds = self._first[0], self._first[1] - self.engine.compile_seconds
        return steps / seconds if seconds > 0 else 0.0

    def run(self, resumed: bool = False, owed: Row | None = None) -> Run:
        """Train to the plan's last step; of a `resumed` run first what its checkpoint `owed`."""
        from twinax.engines import agreed

        book, plan = self.book, self.plan
        saving = "then saving; " if book.directory else ""
        with endings.guarded(book, f"stopping after the running chunk, {saving}Ctrl-C again stops at once") as stop:
            if resumed:
                self._catch_up(owed)
            while book.done < plan.steps and self._training.stopped is None:
                self._chunk()
                # A signal may have reached one of several processes alone; they stop together.
                code = agreed(stop.exit_code if stop.requested else 0)
                if code and book.done < plan.steps and self._training.stopped is None:
                    raise endings.interrupted(book, code, self._save())
            assert self._state is not None
            if book.done < plan.steps:
                book.end("stopped", stopped=self._training.stopped)
            else:
                book.end("finished")
            if not stop.requested:
                book.film(self._state)
        return book.result(self._state)

    def _chunk(self) -> None:
        book, plan = self.book, self.plan
        # Processes that train together must agree on the length of a chunk, so none looks at its clock.
        speed = self.speed if self._later[0] and self.engine.processes == 1 else 0.0
        # What callbacks see, and so what they do, must not depend on the clock.
        at_rows = bool(self.callbacks)
        count = plan.next_chunk(book.done, int(speed * _CHUNK_SECONDS) if speed else plan.chunk, at_rows)
        began, clock = book.seconds, time.perf_counter()
        values = self.engine.run(count)
        self._measure(count, time.perf_counter() - clock)
        rows = self.recorder.rows(book.done, values, began, book.seconds)
        book.done += count
        book.called = False
        # The row of an evaluation waits for it. The checkpoint does not: an evaluation may fail, or take long.
        seen = self.callbacks and rows and rows[-1]["step"] == book.done
        owed = rows.pop() if seen or plan.evaluates(book.done) else None
        book.log(rows)
        book.progress.update(book.done, float(np.mean(values["loss"][-1])), self.speed)
        # A state that nobody keeps is not copied, but for the last.
        if plan.saves(book.done) and (book.directory or self.engine.processes > 1 or book.done == plan.steps):
            self._save(owed)
        if owed is not None:
            self._complete(owed, plan.evaluates(book.done))

    def _complete(self, row: Row, evaluates: bool) -> None:
        """What follows the last step of a chunk before its row is logged: an evaluation, and the callbacks."""
        shown = self._evaluate(row) if evaluates else {}
        if self._call(row) and not evaluates:
            shown = self._evaluate(row)
        self.book.log([row], shown)

    def _call(self, row: Row) -> bool:
        """Let callbacks see a row; whether one of them stopped the run. What they change or stop is saved at once."""
        if not self.callbacks:
            return False
        book, engine, training = self.book, self.engine, self._training
        before = dict(engine.settings)
        for callback in self.callbacks:
            try:
                callback(training, book.done, dict(row))
            except Exception as error:  # a person's own function may raise anything
                engine.settings = before
                book.log([row])
                raise endings.callback_failed(book, callback, error, self._save()) from error
        changed = [name for name in before if not np.array_equal(before[name], engine.settings[name])]
        for name in changed:
            was = book.changes.get(name, {"was": np.asarray(before[name]).tolist()})["was"]
            book.changes[name] = {"was": was, "is": np.asarray(engine.settings[name]).tolist()}
        stops = training.stopped is not None and book.done < self.plan.steps
        if changed or stops:
            book.called = True
            state = self._save(row)
            self._state = state if stops else self._state
        return stops

    def change_again(self, changes: Mapping[str, Any]) -> None:
        """Go on with what callbacks had changed; where the configuration says something else by now, that holds."""
        for name, change in changes.items():
            now = self.engine.settings.get(name)
            if now is not None and np.array_equal(np.asarray(now), np.asarray(change["was"], np.asarray(now).dtype)):
                self.engine.settings[name] = fitting(name, change["is"], self.engine.settings)
                self.book.changes[name] = dict(change)

    def _catch_up(self, owed: Row | None) -> None:
        """Do what a process that was killed after its last checkpoint left undone."""
        from twinax.engines import agreed

        book, ended = self.book, self.book.done == self.plan.steps
        state = self.engine.state()
        book.settle(state)
        self._state = state if ended else None
        # One process alone has read the log; all of them take part in an evaluation.
        owes = bool(agreed(int(owed is not None)))
        evaluates = self.plan.evaluates(book.done) and (owes or ended)
        if owed is not None and not book.called:
            self._complete(owed, evaluates)
            return
        shown = self._evaluate(owed if owed is not None else {"step": book.done}) if evaluates else {}
        if owed is not None:
            book.log([owed], shown)

    def _save(self, owed: Row | None = None) -> State:
        """Keep a checkpoint of now; its state."""
        book = self.book
        book.speed, book.compile_seconds = self.speed, float(self.engine.compile_seconds)
        state = self.engine.state()
        book.save(state, self.recorder.window, owed)
        # The last one is handed to the caller; earlier ones would only take up memory.
        self._state = state if book.done == self.plan.steps else None
        return state

    def _measure(self, count: int, seconds: float) -> None:
        if not self._first[0]:
            self._first = (count, seconds)
        else:
            self._later = (self._later[0] + count, self._later[1] + seconds)

    def _evaluate(self, row: Row) -> dict[str, Any]:
        """Put an evaluation into its row, and give what it shows; when it fails, the training that it was to judge is
        saved all the same."""
        book = self.book
        try:
            measured = self.engine.evaluate()
            metrics = {name: value for name, value in measured.items() if not name.startswith(films.PREFIX)}
            merge(row, metrics)
            arrays, told = pictures.select(measured), book.problem.judge.pictures
            shown: dict[str, Any] = {"pictures": pictures.maps(arrays, told)}
        except Exception as error:  # a stranger's world, network or metric may raise anything
            raise endings.evaluation_failed(book, error, self._state or self._save(row)) from error
        book.metrics = metrics
        if book.directory is None:
            return shown
        place, step = book.directory, book.done
        for kind, save in (
            ("pictures", lambda: pictures.save(place.pictures_path, arrays, step, told)),
            ("films", lambda: films.save(place.films, films.select(measured), step)),
        ):
            try:
                written = save()
                shown |= {"films": written} if kind == "films" else {}
            except Exception as error:  # of Pillow or of a stranger's frames; the training is worth more
                book.note(kind, f"no {kind}: {error}")
        return shown
