"""`train` and `resume`: from a problem to a trained run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twinax import console
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.parts import Unit
from twinax.problem import Problem
from twinax.runs import checkpoint, metrics
from twinax.runs.bookkeeping import Bookkeeping, new_run, owed_row
from twinax.runs.callbacks import Callback, Training, check_callbacks
from twinax.runs.directory import RunDirectory, container
from twinax.runs.divergence import Diverged
from twinax.runs.endings import CallbackFailed, EvaluationFailed, Removed, Run
from twinax.runs.interrupt import Interrupted
from twinax.runs.recorder import Recorder
from twinax.runs.session import Session
from twinax.runs.sinks import make_sinks
from twinax.runs.summary import command_line
from twinax.train_options import TrainOptions, choose_options

__all__ = [
    "CallbackFailed",
    "Diverged",
    "EvaluationFailed",
    "Interrupted",
    "Removed",
    "Run",
    "Training",
    "resume",
    "train",
]

Announce = Callable[[Mapping[str, Any]], None]


@checked
def train(
    problem: Problem,
    options: TrainOptions | None = None,
    *,
    run_dir: Path | str | None = None,
    progress: bool | None = None,
    config: Mapping[str, Any] | None = None,
    announce: Announce | None = None,
    writes: bool = True,
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Any] = (),
    **changed: Any,
) -> Run:
    """Train a problem from scratch.

    options    how it is run; its fields may be given here as well: mode, steps, seed, seeds, dtype, ...
    run_dir    where log, checkpoints and summary go; None writes nothing
    progress   True or None: a bar on a terminal, two lines elsewhere; False: silence
    config     the configuration to keep with the run, so that `twinax resume` can build the problem again
    announce   is told the number of parameters before the first step
    writes     False in all but one of several processes that train together
    callbacks  functions (run, step, metrics) that see every row of the log, and may stop the run or change settings
    sinks      places where the log goes besides: `twinax.runs.Sink` objects, or functions of rows

    >>> run = train(problem, mode="jax", steps=20_000, seed=0)              # doctest: +SKIP
    >>> run.summary["total_variation"], run.networks.policy                 # doctest: +SKIP
    """
    check_callbacks(callbacks)
    unit = problem.present.unit
    plan = choose_options(options, changed).counted(unit.column, unit.per_step).with_intervals()
    places = [*make_sinks(plan.logger), *sinks] if writes else []
    directory = RunDirectory(Path(run_dir)) if run_dir is not None else None
    if directory is not None:
        directory.refuse_if_used()
    engine = _started(problem, plan, announce)
    _meet()  # all have looked at the directory before one of them makes it
    first = engine.state()
    shown = {"processes": engine.processes, "show": progress, "sinks": places}
    with new_run(problem, plan, directory if writes else None, first, config, **shown) as book:
        book.save(first, window=Recorder(plan).window)
        return _run(Session(engine, book, callbacks=callbacks))


@checked
def resume(
    run_dir: Path | str,
    problem: Problem | None = None,
    *,
    trust: bool = False,
    progress: bool | None = None,
    config: Mapping[str, Any] | None = None,
    announce: Announce | None = None,
    warn: Callable[[str], None] | None = None,
    writes: bool = True,
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Any] = (),
    **changed: Any,
) -> Run:
    """Go on with a run from its newest usable checkpoint; what is None stays as it was.

    A run whose steps are all done, but which was killed or failed before it was finished, is finished.

    problem    what is trained; a run that was started in Python knows the call that made its problem, if all that was
               given there can be written down, and builds it again
    trust      whether code of other packages may run that the files of somebody else's run name
    changed    fields of `TrainOptions`: steps are those of the whole run, those already done included; the mode may
               differ from before, since every engine reads every engine's checkpoints; dtype and seeds may not
    warn       gets a sentence for each checkpoint that is refused (default: printed on standard error)
    writes     False in all but one of several processes that go on together
    callbacks  as in `train`; settings that they changed before stay changed
    sinks      as in `train`; each goes on where it was

    >>> run = resume("runs/first", steps=40_000)                            # doctest: +SKIP
    """
    directory = RunDirectory(Path(run_dir))
    directory.must_exist()
    check_callbacks(callbacks)
    problem = directory.read_problem(trust, use="resume") if problem is None else problem
    with ExitStack() as stack:
        if writes:
            stack.enter_context(directory.lock())
        path = checkpoint.latest(directory.path, refused=(warn or console.warn) if writes else _ignore)
        meta = checkpoint.read_meta(path)
        plan = _resumed_plan(directory, meta, changed, problem.present.unit)
        places = [*make_sinks(plan.logger), *sinks] if writes else []
        engine = _started(problem, plan, announce)
        first = engine.state()
        state, meta = checkpoint.load(path, like=first)
        engine.load(state)
        if problem.present.not_saved:
            (warn or console.warn)(problem.present.not_saved)
        done, window, settings, rows, logged = int(meta["step"]), meta.get("window"), meta.get("config"), [], 0
        if writes:
            for step in checkpoint.steps(directory.path):
                if step > done:
                    checkpoint.set_aside(checkpoint.place(directory.path, step))
            if config is not None:
                settings = container(config)
                directory.write_config(settings, problem.present.sources)
            logged = metrics.last_step(directory.metrics_path)
            rows = metrics.trim(directory.metrics_path, done, meta.get("log"), warn or console.warn)
        book = Bookkeeping(
            problem,
            plan,
            directory if writes else None,
            first,
            settings,
            _commands(meta, command_line(plan, settings is not None, "resume(run")),
            done=done,
            rows=rows,
            timing=meta,
            saved=path,
            processes=engine.processes,
            show=progress if writes else False,
            sinks=places,
            logged=logged,
        )
        book.called = bool(meta.get("called"))
        owed = owed_row(meta, rows) if writes else None
        session = Session(engine, stack.enter_context(book), window, callbacks)
        session.change_again(meta.get("changes") or {})
        return _run(session, resumed=True, owed=owed)


def _started(problem: Problem, options: TrainOptions, announce: Announce | None) -> Any:
    from twinax import engines

    engine = engines.make_engine(problem, options)
    problem.prove.check(options.mode)
    engine.start(options.seed)
    if announce is not None:
        announce({"parameters": engine.num_parameters})
    return engine


def _meet() -> None:
    """Wait for the other processes, if there are any."""
    from twinax.engines import agreed

    agreed(0)


def _run(session: Session, **options: Any) -> Run:
    run, book = session.run(**options), session.book
    speed, loss = run.summary["steps_per_second"], run.summary.get("loss", math.nan)
    unit, reason = book.problem.present.unit, run.summary.get("stopped")
    why = f"stopped early: {reason}; " if reason else ""
    book.progress.say(
        f"{book.plan.mode}: {why}{unit.told(book.done)}, loss {loss:.4g}, {speed:,.1f} {unit.name} per second"
    )
    return run


def _resumed_plan(
    directory: RunDirectory, meta: Mapping[str, Any], changed: Mapping[str, Any], unit: Unit
) -> TrainOptions:
    stored, done = dict(meta.get("plan") or {}), int(meta["step"])
    if "steps" not in stored:
        raise TwinaxError(f"the checkpoint of step {done} in {directory.path} was not written by a training")
    for name in ("dtype", "seeds"):
        if changed.get(name) is not None and changed[name] != stored[name]:
            raise TwinaxError(
                f"the run {directory.path} was trained with {name}={stored[name]} and cannot go on with "
                f"{name}={changed[name]}; leave {name} out or start a new training"
            )
    plan = TrainOptions.stored(stored, **changed).counted(unit.column, unit.per_step)
    if plan.steps < done or plan.steps == done and _has_finished(directory, done):
        raise TwinaxError(
            f"the run {directory.path} has done {done} steps and was asked for {plan.steps} in all: nothing is left "
            f"to do; for more use `twinax resume {directory.path} trainer.steps={2 * done or 1000}`"
        )
    return plan


def _commands(meta: Mapping[str, Any], latest: str) -> str:
    """What made a run: the command that began it and those that went on with it, a line for each."""
    before = [line for line in str(meta.get("command") or "").split("\n") if line]
    return "\n".join(before if before[-1:] == [latest] else [*before, latest])


def _has_finished(directory: RunDirectory, done: int) -> bool:
    """Whether all that follows the last step was written as well: the summary that says so comes last."""
    try:
        summary = directory.read_summary()
    except TwinaxError:
        return False
    return summary.get("status") == "finished" and summary.get("steps") == done


def _ignore(sentence: str) -> None:
    pass
