"""`train` and `resume`: from a problem to a trained run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.problem import Problem
from twinax.runs import checkpoint, metrics
from twinax.runs.bookkeeping import Bookkeeping, new_run, owed_row
from twinax.runs.directory import RunDirectory, container
from twinax.runs.divergence import Diverged
from twinax.runs.endings import EvaluationFailed, Removed, Run
from twinax.runs.interrupt import Interrupted
from twinax.runs.plan import Plan
from twinax.runs.recorder import Recorder
from twinax.runs.session import Session
from twinax.runs.summary import command_line

__all__ = ["Diverged", "EvaluationFailed", "Interrupted", "Removed", "Run", "resume", "train"]


@checked
def train(
    problem: Problem,
    mode: str = "jax",
    steps: int = 1000,
    seed: int = 0,
    run_dir: Path | str | None = None,
    seeds: int = 1,
    dtype: str = "float32",
    log_every: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = False,
    progress: bool | None = None,
    config: Mapping[str, Any] | None = None,
    noise: str = "shared",
    chunk: int = 100,
    keep: int = 3,
    devices: int = 1,
    writes: bool = True,
) -> Run:
    """Train a problem from scratch.

    mode             torch, hybrid or jax
    run_dir          where log, checkpoints and summary go; None writes nothing
    seeds            how many seeds train side by side, `seed` being the first
    log_every        steps between two rows of the log (default: about a thousand rows in all)
    evaluate_every   steps between two evaluations (default: about twenty in all); 0 means only at the end
    checkpoint_every steps between two checkpoints (default: about ten in all); 0 means only at the start and the end
    progress         True or None: a bar on a terminal, two lines elsewhere; False: silence
    config           the configuration to keep with the run, so that `twinax resume` can build the problem again
    chunk            most steps that the engine runs in one go; changes no result
    keep             how many checkpoints stay on the disk
    devices          how many devices share out the worlds (jax mode)
    writes           False in all but one of several processes that train together

    >>> run = train(problem, mode="jax", steps=20_000, seed=0)              # doctest: +SKIP
    >>> run.summary["total_variation"], run.networks.policy                 # doctest: +SKIP
    """
    plan = Plan.make(
        steps,
        mode=_mode(mode),
        seed=seed,
        seeds=seeds,
        dtype=dtype,
        noise=noise,
        chunk=chunk,
        log_every=log_every,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        keep=keep,
        tensorboard=tensorboard,
        devices=devices,
    )
    directory = RunDirectory(Path(run_dir)) if run_dir is not None else None
    if directory is not None:
        directory.refuse_if_used()
    problem.prove.check(plan.mode)
    engine = _engine(problem, plan)
    engine.start(plan.seed)
    _meet()  # all have looked at the directory before one of them makes it
    first = engine.state()
    options = {"processes": engine.processes, "show": progress}
    with new_run(problem, plan, directory if writes else None, first, config, **options) as book:
        book.save(first, window=Recorder(plan).window)
        return _run(Session(engine, book))


@checked
def resume(
    run_dir: Path | str,
    problem: Problem,
    steps: int | None = None,
    mode: str | None = None,
    dtype: str | None = None,
    seeds: int | None = None,
    log_every: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool | None = None,
    progress: bool | None = None,
    config: Mapping[str, Any] | None = None,
    noise: str | None = None,
    chunk: int | None = None,
    keep: int | None = None,
    devices: int | None = None,
    warn: Callable[[str], None] | None = None,
    writes: bool = True,
) -> Run:
    """Go on with a run from its newest usable checkpoint; what is None stays as it was.

    A run whose steps are all done, but which was killed or failed before it was finished, is finished.

    steps            steps of the whole run, those already done included
    mode             may differ from before: every engine reads every engine's checkpoints
    dtype, seeds     must be those of the run
    warn             gets a sentence for each checkpoint that is refused (default: printed on standard error)
    writes           False in all but one of several processes that go on together

    >>> run = resume("runs/first", problem, steps=40_000)                   # doctest: +SKIP
    """
    directory = RunDirectory(Path(run_dir))
    directory.must_exist()
    with ExitStack() as stack:
        if writes:
            stack.enter_context(directory.lock())
        path = checkpoint.latest(directory.path, refused=(warn or _warn) if writes else _ignore)
        meta = checkpoint.read_meta(path)
        plan = _resumed_plan(
            directory,
            meta,
            steps=steps,
            mode=_mode(mode) if mode is not None else None,
            dtype=dtype,
            seeds=seeds,
            noise=noise,
            chunk=chunk,
            log_every=log_every,
            evaluate_every=evaluate_every,
            checkpoint_every=checkpoint_every,
            keep=keep,
            tensorboard=tensorboard,
            devices=devices,
        )
        problem.prove.check(plan.mode)
        engine = _engine(problem, plan)
        engine.start(plan.seed)
        first = engine.state()
        state, meta = checkpoint.load(path, like=first)
        engine.load(state)
        if problem.present.not_saved:
            (warn or _warn)(problem.present.not_saved)
        done, window, settings, rows = int(meta["step"]), meta.get("window"), meta.get("config"), []
        if writes:
            for step in checkpoint.steps(directory.path):
                if step > done:
                    checkpoint.set_aside(checkpoint.place(directory.path, step))
            if config is not None:
                settings = container(config)
                directory.write_config(settings, problem.present.sources)
            rows = metrics.trim(directory.metrics_path, done, meta.get("log"), warn or _warn)
        book = Bookkeeping(
            problem,
            plan,
            directory if writes else None,
            first,
            settings,
            str(meta.get("command") or command_line(plan, settings is not None)),
            done=done,
            rows=rows,
            timing=meta,
            saved=path,
            processes=engine.processes,
            show=progress if writes else False,
        )
        owed = owed_row(meta, rows) if writes else None
        return _run(Session(engine, stack.enter_context(book), window), resumed=True, owed=owed)


def _mode(name: str) -> str:
    from twinax import engines

    return engines.mode_name(name)


def _engine(problem: Problem, plan: Plan) -> Any:
    from twinax import engines

    return engines.make_engine(
        plan.mode,
        problem,
        dtype=plan.dtype,
        chunk=plan.chunk,
        seeds=plan.seeds,
        noise=plan.noise,
        devices=plan.devices,
    )


def _meet() -> None:
    """Wait for the other processes, if there are any."""
    from twinax.engines._hosts import agreed

    agreed(0)


def _run(session: Session, **options: Any) -> Run:
    run, book = session.run(**options), session.book
    speed, loss = run.summary["steps_per_second"], run.summary.get("loss", math.nan)
    book.progress.say(f"{book.plan.mode}: {book.done:,} steps, loss {loss:.4g}, {speed:,.1f} steps per second")
    return run


def _resumed_plan(directory: RunDirectory, meta: Mapping[str, Any], **changed: Any) -> Plan:
    stored, done = dict(meta.get("plan") or {}), int(meta["step"])
    if "steps" not in stored:
        raise TwinaxError(f"the checkpoint of step {done} in {directory.path} was not written by a training")
    for name in ("dtype", "seeds"):
        if changed[name] is not None and changed[name] != stored[name]:
            raise TwinaxError(
                f"the run {directory.path} was trained with {name}={stored[name]} and cannot go on with "
                f"{name}={changed[name]}; leave {name} out or start a new training"
            )
    plan = Plan.stored(stored, **changed)
    if plan.steps < done or plan.steps == done and _has_finished(directory, done):
        raise TwinaxError(
            f"the run {directory.path} has done {done} steps and was asked for {plan.steps} in all: nothing is left "
            f"to do; for more use `twinax resume {directory.path} trainer.steps={2 * done or 1000}`"
        )
    return plan


def _has_finished(directory: RunDirectory, done: int) -> bool:
    """Whether all that follows the last step was written as well: the summary that says so comes last."""
    try:
        summary = directory.read_summary()
    except TwinaxError:
        return False
    return summary.get("status") == "finished" and summary.get("steps") == done


def _ignore(sentence: str) -> None:
    pass


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)
