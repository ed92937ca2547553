"""Callbacks: what they see, stop and change, what a resume keeps of it, and what their errors cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax import engines
from twinax.errors import TwinaxError
from twinax.runs import CallbackFailed, checkpoint, resume, train

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem


class Settled(ProbeEngine):
    """The probe with two settings, of which the loss logs one."""

    def __init__(self, problem, options):
        super().__init__(problem, options)
        self.settings = {"learning_rate": np.array(0.5), "epsilon": np.array([0.1, 0.0, 9.0], np.float32)}

    def run(self, steps):
        return {**super().run(steps), "rate": np.full(steps, float(self.settings["learning_rate"]))}


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    made = []
    monkeypatch.setattr(engines, "make_engine", lambda *a, **k: made.append(Settled(*a, **k)) or made[-1])
    return made


QUIET = {"progress": False, "log_every": 5, "evaluate_every": 20, "checkpoint_every": 10}


def test_a_callback_sees_every_row_of_the_log_whatever_the_chunks(tmp_path):
    seen = []
    for chunk in (3, 100):
        rows = []
        run = train(ProbeProblem(), steps=42, chunk=chunk, callbacks=[lambda *a, r=rows: r.append(a[1:])], **QUIET)
        assert [step for step, _ in rows] == [1, 5, 10, 15, 20, 25, 30, 35, 40, 42]
        assert [metrics for _, metrics in rows] == run.metrics
        assert [step for step, row in rows if "total_variation" in row] == [20, 40, 42]
        seen.append([{**row, "seconds": 0} for _, row in rows])
    assert seen[0] == seen[1]
    alone = train(ProbeProblem(), steps=42, **QUIET)
    assert [{**row, "seconds": 0} for row in alone.metrics] == seen[0], "watching changes nothing"


def test_a_stop_is_a_clean_end_and_resume_goes_on(tmp_path):
    def early(run, step, metrics):
        if step == 15 and metrics["loss"] < 10:
            run.stop("good enough")

    whole = train(ProbeProblem(), steps=40, run_dir=tmp_path / "whole", **QUIET)
    run = train(ProbeProblem(), steps=40, run_dir=tmp_path / "run", callbacks=[early], **QUIET)
    assert (run.summary["status"], run.summary["steps"], run.summary["stopped"]) == ("stopped", 15, "good enough")
    assert "total_variation" in run.metrics[-1] and run.summary["total_variation"] is not None, "it was judged"
    assert int(run.state.step) == 15 and checkpoint.steps(tmp_path / "run")[-1] == 15
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"
    again = resume(tmp_path / "run", ProbeProblem(), callbacks=[early], progress=False)
    assert again.summary["status"] == "finished" and "stopped" not in again.summary
    assert [row["step"] for row in again.metrics] == [row["step"] for row in whole.metrics]
    np.testing.assert_array_equal(again.networks.policy["weight"], whole.networks.policy["weight"])


def test_a_stop_at_the_last_step_is_an_end(tmp_path):
    run = train(ProbeProblem(), steps=10, callbacks=[lambda run, step, _: run.stop() if step == 10 else None], **QUIET)
    assert run.summary["status"] == "finished"


def halve(run, step, metrics):
    """The rate is halved in every tenth step."""
    if step % 10 == 0:
        run.change(learning_rate=run.settings["learning_rate"] / 2)


def test_changes_hold_from_the_next_step_on_and_over_a_resume(tmp_path):
    run = train(ProbeProblem(), steps=30, callbacks=[halve], run_dir=tmp_path / "a", **QUIET)
    rates = {row["step"]: row["rate"] for row in run.metrics}
    assert [rates[step] for step in (1, 10, 15, 20, 25, 30)] == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125]

    class Stop(Exception):
        pass

    def kill(run, step, metrics):
        if step == 25:
            raise Stop

    with pytest.raises(CallbackFailed):
        train(ProbeProblem(), steps=30, callbacks=[halve, kill], run_dir=tmp_path / "b", **QUIET)
    again = resume(tmp_path / "b", ProbeProblem(), callbacks=[halve], progress=False)
    assert {row["step"]: row["rate"] for row in again.metrics} == rates


@pytest.mark.parametrize("call", range(1, 60, 3))
def test_a_kill_at_any_moment_repeats_no_change(tmp_path, monkeypatch, call):
    """A process that dies while it writes: what callbacks did is done once, whenever that was."""
    import os

    class Killed(BaseException):
        pass

    real, count = os.replace, [0]

    def replace(*given, **options):
        count[0] += 1
        if count[0] == call:
            raise Killed
        return real(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        try:
            train(ProbeProblem(), steps=30, callbacks=[halve], run_dir=tmp_path / "b", **QUIET)
        except Killed:
            pass
    if not (tmp_path / "b" / "checkpoints").exists() or not checkpoint.steps(tmp_path / "b"):
        return
    try:
        run = resume(tmp_path / "b", ProbeProblem(), callbacks=[halve], progress=False)
    except TwinaxError as error:
        assert "nothing is left" in str(error)
        return
    rates = {row["step"]: row["rate"] for row in run.metrics}
    assert [rates.get(step) for step in (1, 10, 15, 20, 25, 30)] == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125]


def test_what_the_configuration_says_by_now_wins_over_an_earlier_change(tmp_path, probe, monkeypatch):
    with pytest.raises(CallbackFailed):
        train(ProbeProblem(), steps=30, callbacks=[halve, fails_at_20], run_dir=tmp_path / "b", **QUIET)
    other = Settled.__init__

    def init(self, problem, options):
        other(self, problem, options)
        self.settings["learning_rate"] = np.array(3.0)

    monkeypatch.setattr(Settled, "__init__", init)
    run = resume(tmp_path / "b", ProbeProblem(), progress=False)
    assert run.metrics[-1]["rate"] == 3.0


def fails_at_20(run, step, metrics):
    if step == 20:
        raise ValueError("no\nscore")


def test_a_callback_that_raises_loses_nothing_and_is_named(tmp_path):
    with pytest.raises(CallbackFailed) as caught:
        train(ProbeProblem(), steps=30, callbacks=[fails_at_20], run_dir=tmp_path / "run", **QUIET)
    text = str(caught.value)
    assert "the callback fails_at_20 failed after step 20 (ValueError: no score)" in text and "\n" not in text
    assert "twinax.resume(" in text and caught.value.run.summary["status"] == "failed"
    assert checkpoint.steps(tmp_path / "run")[-1] == 20
    assert [row["step"] for row in caught.value.run.metrics][-1] == 20
    assert resume(tmp_path / "run", ProbeProblem(), progress=False).summary["steps"] == 30


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"learning_rat": 1.0}, "unknown setting 'learning_rat'; known: epsilon, learning_rate. Did you mean"),
        (
            {"epsilon": 0.1},
            "the setting 'epsilon' cannot become 0.1: it is [0.10000000149011612, 0.0, 9.0], and takes 3",
        ),
        ({"learning_rate": float("nan")}, "cannot become nan"),
        ({"learning_rate": "fast"}, "cannot become 'fast'"),
    ],
)
def test_settings_that_are_none_are_refused(changed, part):
    with pytest.raises(CallbackFailed) as caught:
        train(ProbeProblem(), steps=5, callbacks=[lambda run, *_: run.change(changed)], progress=False)
    assert part in str(caught.value)


def test_a_run_without_a_directory_can_be_watched_and_stopped():
    run = train(
        ProbeProblem(), steps=10, callbacks=[lambda run, step, _: run.stop("x") if step == 5 else None], **QUIET
    )
    assert run.summary["steps"] == 5 and run.dir is None and int(run.state.step) == 5


@pytest.mark.parametrize("mode", ["torch", "hybrid", "jax"])
def test_a_step_size_changes_without_a_new_compilation(mode, monkeypatch):
    monkeypatch.undo()
    problem = tx.gflownet.problem(
        tx.envs.Hypergrid(dim=2, side=3), batch_size=4, optimizer=tx.Optimizer(rates={"log_z": 0.1})
    )
    engine = engines.make_engine(problem, mode=mode, chunk=4)
    engine.start(0)
    engine.run(1)
    before, compiled = engine.state(), engine.compile_seconds
    engine.settings |= {"learning_rate": np.array(0.0)}
    engine.run(2)
    after = engine.state()
    np.testing.assert_array_equal(after.networks.policy.layers[0].weight, before.networks.policy.layers[0].weight)
    assert after.networks.log_z != before.networks.log_z, "it has a rate of its own"
    engine.settings |= {"learning_rate": np.array(1e-3), "learning_rate/log_z": np.array(0.0)}
    engine.run(1)
    last = engine.state()
    assert last.networks.log_z == after.networks.log_z and engine.compile_seconds == compiled
    assert (last.networks.policy.layers[0].weight != after.networks.policy.layers[0].weight).any()
