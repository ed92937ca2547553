"""How a training ends: what is saved before what may fail, kills after the last step, runs that ran away."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinax import engines, tree
from twinax.bridge import load_weights
from twinax.cli._errors import describe
from twinax.errors import TwinaxError
from twinax.runs import Diverged, EvaluationFailed, Removed, checkpoint, films, metrics, pictures, resume, train
from twinax.runs.bookkeeping import Bookkeeping
from twinax.runs.directory import RunDirectory

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

OPTIONS: dict[str, Any] = {"log_every": 3, "evaluate_every": 10, "checkpoint_every": 10, "progress": False}


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", ProbeEngine)


def timeless(run_dir):
    rows = RunDirectory(Path(run_dir)).read_metrics()
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def assert_same_end(run_dir, whole_dir):
    """All that two finished runs leave is equal, but for the clock."""
    assert timeless(run_dir) == timeless(whole_dir)
    assert checkpoint.steps(run_dir) == checkpoint.steps(whole_dir)
    like = ProbeProblem().init(0)
    states = [tree.named_leaves(checkpoint.load(checkpoint.latest(where), like)[0]) for where in (run_dir, whole_dir)]
    for name, leaf in states[0].items():
        np.testing.assert_array_equal(leaf, states[1][name], err_msg=name)
    weights = load_weights(Path(run_dir) / "weights" / "networks.safetensors", like=like.networks)
    np.testing.assert_array_equal(weights.policy["weight"], states[0]["networks.policy.weight"])
    own, theirs = (RunDirectory(Path(where)) for where in (run_dir, whole_dir))
    assert len(own.csv_path.read_text().splitlines()) == len(theirs.csv_path.read_text().splitlines())
    drop = {"seconds", "steps_per_second", "command", "plan"}
    summaries = [{k: v for k, v in one.read_summary().items() if k not in drop} for one in (own, theirs)]
    assert summaries[0] == summaries[1] and summaries[0]["status"] == "finished"


class Broken:
    """A stranger's metric that fails at one step until it is mended."""

    def __init__(self, step, error):
        self.step, self.error = step, error

    def __call__(self, step):
        if step == self.step:
            raise self.error


@pytest.mark.parametrize("step", [10, 15, 40], ids=["at a checkpoint", "between two", "at the end"])
@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), TwinaxError("the world is ill")])
def test_an_evaluation_that_fails_loses_nothing(tmp_path, step, error):
    every = {"evaluate_every": 5}
    whole = train(ProbeProblem(), steps=40, run_dir=tmp_path / "whole", **OPTIONS | every)
    run_dir = tmp_path / "run"
    with pytest.raises(
        EvaluationFailed, match=f"evaluation after step {step} failed.*saved in .*{step:010d}"
    ) as caught:
        train(ProbeProblem(judged=Broken(step, error)), steps=40, run_dir=run_dir, **OPTIONS | every)
    assert str(error) in str(caught.value) and "\n" not in str(caught.value)
    assert describe(caught.value)[1] == 1 and int(caught.value.run.state.step) == step
    assert checkpoint.steps(run_dir)[-1] == step
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "failed"
    # It fails again as long as it is not mended, and then goes on as if nothing had been.
    with pytest.raises(EvaluationFailed, match=f"evaluation after step {step} failed"):
        resume(run_dir, ProbeProblem(judged=Broken(step, error)), progress=False)
    run = resume(run_dir, ProbeProblem(), progress=False)
    assert run.summary["total_variation"] == whole.summary["total_variation"]
    assert timeless(run_dir) == timeless(tmp_path / "whole")


def test_an_evaluation_that_fails_without_a_run_dir_gives_what_was_trained():
    with pytest.raises(EvaluationFailed, match="nothing was saved, because run_dir is None") as caught:
        train(ProbeProblem(judged=Broken(20, ValueError("odd"))), steps=20, progress=False)
    assert int(caught.value.run.state.step) == 20


@pytest.mark.parametrize("module", [films, pictures])
@pytest.mark.parametrize("error", [RuntimeError("no fonts"), OSError(errno.ENOSPC, "No space left on device")])
def test_films_and_pictures_never_end_a_run(tmp_path, monkeypatch, capsys, module, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(module, "save", fail)
    run = train(ProbeProblem(), steps=20, run_dir=tmp_path / "run", **OPTIONS | {"progress": None})
    assert run.summary["status"] == "finished" and checkpoint.steps(tmp_path / "run")[-1] == 20
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("no ")]
    assert len(said) == 1 and str(error) in said[0]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["notes"] == said


def test_the_film_at_the_end_never_ends_a_run(tmp_path, monkeypatch, capsys):
    def show(self, state, seed):
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "finished"
        raise KeyError("a stranger's renderer")

    monkeypatch.setattr(ProbeProblem, "film", True, raising=False)
    monkeypatch.setattr(ProbeProblem, "show", show)
    run = train(ProbeProblem(), steps=5, run_dir=tmp_path / "run", progress=None)
    assert run.summary["status"] == "finished"
    assert "no film of an episode: KeyError" in capsys.readouterr().err
    assert "KeyError" in json.loads((tmp_path / "run" / "summary.json").read_text())["notes"][0]


class Killed(BaseException):
    """Ends a training as a kill does: no handler of the library knows it."""


def kill(patch, owner, name, when, after):
    """Let the n-th call of a function be the last thing that a training does."""
    original, count = getattr(owner, name), [0]

    def killed(*arguments, **keywords):
        count[0] += 1
        if count[0] == when and not after:
            raise Killed
        result = original(*arguments, **keywords)
        if count[0] == when:
            raise Killed
        return result

    patch.setattr(owner, name, killed)


@pytest.mark.parametrize(
    ("owner", "name", "when", "after"),
    [
        (checkpoint, "save", 3, True),  # the checkpoint is there, its weights are not
        (RunDirectory, "write_weights", 3, True),  # the weights are there, old checkpoints too
        (checkpoint, "prune", 3, True),
        (ProbeEngine, "evaluate", 2, False),  # the last evaluation
        (Bookkeeping, "log", 5, True),  # logged, but no table
        (RunDirectory, "write_csv", 1, True),  # the table, but no summary that says finished
    ],
)
def test_a_run_that_was_killed_after_its_last_checkpoint_is_finished(tmp_path, owner, name, when, after):
    run_dir = tmp_path / "run"
    train(ProbeProblem(), steps=20, keep=2, run_dir=tmp_path / "whole", **OPTIONS)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        kill(patch, owner, name, when, after)
        train(ProbeProblem(), steps=20, keep=2, run_dir=run_dir, **OPTIONS)
    assert checkpoint.steps(run_dir)[-1] == 20
    assert RunDirectory(run_dir).read_summary()["status"] == "running"
    run = resume(run_dir, ProbeProblem(), progress=False)
    assert run.summary["steps_per_second"] > 0, "of the process that made the steps"
    assert_same_end(run_dir, tmp_path / "whole")
    with pytest.raises(TwinaxError, match="nothing is left to do"):
        resume(run_dir, ProbeProblem(), progress=False)


def count_writes(patch, stop_at=0, after=False):
    """Count what a training does to the disk; the given one is the last, or the last thing before its end."""
    done = [0]

    def watched(function):
        def call(*arguments, **keywords):
            done[0] += 1
            if done[0] == stop_at and not after:
                raise Killed
            result = function(*arguments, **keywords)
            if done[0] == stop_at and after:
                raise Killed
            return result

        return call

    for owner, name in ((os, "replace"), (os, "fsync"), (shutil, "rmtree"), (metrics.MetricsFile, "write")):
        patch.setattr(owner, name, watched(getattr(owner, name)))
    return done


@pytest.mark.parametrize("part", range(4))
def test_a_kill_at_any_write_changes_nothing(tmp_path, part):
    """Every fourth of all moments, in turns before and after the write."""
    options = {**OPTIONS, "steps": 8, "keep": 1, "evaluate_every": 4, "checkpoint_every": 4}
    with pytest.MonkeyPatch.context() as patch:
        total = count_writes(patch)
        train(ProbeProblem(), run_dir=tmp_path / "whole", **options)
    assert total[0] > 40
    for number in range(1 + part, total[0] + 1, 4):
        run_dir = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            count_writes(patch, number, after=number % 8 > 3)
            train(ProbeProblem(), run_dir=run_dir, **options)
        if not checkpoint.steps(run_dir):
            train(ProbeProblem(), run_dir=run_dir, **options)
        elif RunDirectory(run_dir).read_summary().get("status") != "finished":
            resume(run_dir, ProbeProblem(), progress=False)
        assert_same_end(run_dir, tmp_path / "whole")


def test_a_stopped_run_is_finished_where_it_is(tmp_path):
    """Asked for no more steps than there are, a run that was only stopped becomes a finished one."""
    with pytest.raises(EvaluationFailed):
        train(ProbeProblem(judged=Broken(10, ValueError())), steps=40, run_dir=tmp_path / "run", **OPTIONS)
    train(ProbeProblem(), steps=10, run_dir=tmp_path / "whole", **OPTIONS)
    resume(tmp_path / "run", ProbeProblem(), steps=10, progress=False)
    assert_same_end(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("value", [1e10, np.inf, np.nan])
@pytest.mark.parametrize("kept", [True, False])
def test_parameters_that_ran_away_are_no_checkpoint(tmp_path, value, kept):
    run_dir = tmp_path / "run" if kept else None
    # At its last step: the loss of that step has not seen it yet.
    with pytest.raises(Diverged, match="step 30: the parameter 'policy.weight'") as caught:
        train(ProbeProblem(grow_at=30, grow_to=value), steps=30, run_dir=run_dir, **OPTIONS)
    assert describe(caught.value)[1] == 1 and (caught.value.step, caught.value.term) == (30, "policy.weight")
    if run_dir is None:
        assert "there is no checkpoint" in str(caught.value)
        return
    assert caught.value.checkpoint == checkpoint.latest(run_dir) == checkpoint.place(run_dir, 20)
    assert RunDirectory(run_dir).read_summary()["status"] == "diverged"
    assert resume(run_dir, ProbeProblem(), progress=False).summary["status"] == "finished"


def test_large_parameters_are_no_divergence(tmp_path):
    run = train(ProbeProblem(grow_at=30, grow_to=9e5), steps=30, run_dir=tmp_path / "run", **OPTIONS)
    assert run.summary["status"] == "finished" and "notes" not in run.summary


def test_ctrl_c_does_not_keep_what_ran_away(tmp_path, monkeypatch):
    original = ProbeEngine.run

    def interrupted(self, steps):
        if int(self.states[0].step) >= 20:
            os.kill(os.getpid(), 2)
        return original(self, steps)

    monkeypatch.setattr(ProbeEngine, "run", interrupted)
    with pytest.raises(Diverged):
        train(ProbeProblem(grow_at=21), steps=90, chunk=1, run_dir=tmp_path / "run", **OPTIONS)
    assert checkpoint.steps(tmp_path / "run")[-1] == 20


@pytest.mark.parametrize("at", ["log", "save"])
@pytest.mark.parametrize("moved", [True, False])
def test_a_run_directory_that_goes_away_is_noticed(tmp_path, monkeypatch, at, moved):
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    original = getattr(Bookkeeping, at)

    def remove(self, *arguments, **options):
        if self.done == 20 and run_dir.exists():
            shutil.move(run_dir, elsewhere) if moved else shutil.rmtree(run_dir)
        return original(self, *arguments, **options)

    monkeypatch.setattr(Bookkeeping, at, remove)
    with pytest.raises(
        Removed, match="removed or moved away during the training, which stopped at step 20 of 40"
    ) as caught:
        train(ProbeProblem(), steps=40, run_dir=run_dir, **OPTIONS)
    assert describe(caught.value)[1] == 1 and not run_dir.exists()
    if moved:
        train(ProbeProblem(), steps=40, run_dir=tmp_path / "whole", **OPTIONS)
        monkeypatch.undo()
        monkeypatch.setattr(engines, "make_engine", ProbeEngine)
        resume(elsewhere, ProbeProblem(), progress=False)
        assert timeless(elsewhere) == timeless(tmp_path / "whole")


def test_a_log_that_goes_away_is_written_anew(tmp_path, capsys):
    def remove(step):
        if step == 20:
            (tmp_path / "run" / "metrics.jsonl").unlink()

    train(ProbeProblem(), steps=40, run_dir=tmp_path / "whole", **OPTIONS)
    run = train(ProbeProblem(judged=remove), steps=40, run_dir=tmp_path / "run", **OPTIONS | {"progress": None})
    assert timeless(tmp_path / "run") == timeless(tmp_path / "whole")
    assert "is written anew" in run.summary["notes"][0] and "is written anew" in capsys.readouterr().err


def test_a_strangers_step_that_fails_leaves_its_mark(tmp_path, monkeypatch, capsys):
    original = ProbeEngine.run

    def fail(self, steps):
        if int(self.states[0].step) == 20:
            raise KeyError("a stranger's world")
        return original(self, steps)

    monkeypatch.setattr(ProbeEngine, "run", fail)
    with pytest.raises(KeyError):
        train(ProbeProblem(), steps=40, run_dir=tmp_path / "run", **OPTIONS | {"progress": None})
    assert RunDirectory(tmp_path / "run").read_summary()["status"] == "failed"
    assert "the last good checkpoint is" in capsys.readouterr().err
