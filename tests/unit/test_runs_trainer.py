"""The loop between chunks: rows, evaluations, checkpoints, resume, Ctrl-C and losses that go bad."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from twinax import engines, tree
from twinax.bridge import load_weights
from twinax.errors import TwinaxError
from twinax.runs import Diverged, Interrupted, checkpoint, resume, train
from twinax.runs.directory import RunDirectory
from twinax.runs.summary import command_line
from twinax.train_options import TrainOptions

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import runs_probe
from twinax import runs
from twinax.errors import TwinaxError
runs_probe.install()
options = json.loads(sys.argv[2])
problem = runs_probe.ProbeProblem(**options.pop("problem", {}))
try:
    runs.train(problem, **options)
except TwinaxError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(getattr(error, "exit_code", 1))
"""


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    made = []

    def make(*arguments, **keywords):
        made.append(ProbeEngine(*arguments, **keywords))
        return made[-1]

    monkeypatch.setattr(engines, "make_engine", make)
    return made


@pytest.fixture
def start():
    """Trainings in processes of their own; none outlives its test."""
    processes = []

    def begin(**options):
        command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), json.dumps(options)]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        process.stderr.close()


def wait_for_step(run_dir: Path, step: int):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (run_dir / "metrics.jsonl").exists() and any(row["step"] >= step for row in rows_of(run_dir)):
            return
        time.sleep(0.02)
    pytest.fail(f"step {step} was not reached")


def rows_of(run_dir):
    return RunDirectory(Path(run_dir)).read_metrics()


def timeless(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def assert_equal_states(one, other):
    other = tree.named_leaves(other)
    for name, leaf in tree.named_leaves(one).items():
        np.testing.assert_array_equal(leaf, other[name], err_msg=name)


def test_rows_evaluations_and_summary(tmp_path):
    run_dir = tmp_path / "run"
    run = train(ProbeProblem(), mode="torch", steps=25, log_every=10, evaluate_every=8, run_dir=run_dir, progress=False)
    assert [row["step"] for row in run.metrics] == [1, 8, 10, 16, 20, 24, 25]
    assert [row["step"] for row in run.metrics if "total_variation" in row] == [8, 16, 24, 25]
    assert all({"step", "loss", "loss_mean", "seconds", "grad_norm"} <= row.keys() for row in run.metrics)
    assert [row["seconds"] for row in run.metrics] == sorted(row["seconds"] for row in run.metrics)
    assert run.dir == run_dir and int(run.state.step) == 25
    np.testing.assert_array_equal(run.networks.policy["weight"], run.state.networks.policy["weight"])
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 8, 10, 16, 20, 24, 25]
    assert json.loads(lines[-1])["kl"] is None and "Infinity" not in "".join(lines)
    assert not any("picture" in name for row in run.metrics for name in row)
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["steps"] == 25 and summary["mode"] == "torch"
    assert summary["compile_seconds"] == 0.25 and summary["parameters"] == 4 and summary["steps_per_second"] > 0
    assert summary["total_variation"] == run.summary["total_variation"] == run.metrics[-1]["total_variation"]
    assert summary["loss"] == run.metrics[-1]["loss"] and summary["threads"] >= 1 and "twinax" in summary["versions"]
    assert not (run_dir / ".lock").exists() and (run_dir / "plots" / "pictures.safetensors").exists()


def test_loss_mean_is_the_mean_since_the_last_row():
    every = train(ProbeProblem(), steps=40, log_every=1, evaluate_every=0, progress=False).metrics
    losses = [row["loss"] for row in every]
    rows = train(ProbeProblem(), steps=40, log_every=15, evaluate_every=0, progress=False).metrics
    assert [row["step"] for row in rows] == [1, 15, 30, 40]
    np.testing.assert_allclose(
        [row["loss_mean"] for row in rows],
        [losses[0], np.mean(losses[1:15]), np.mean(losses[15:30]), np.mean(losses[30:])],
    )


def test_a_longer_run_has_the_rows_of_a_shorter_one_and_then_its_own(tmp_path):
    options = {"log_every": 10, "evaluate_every": 0, "progress": False}
    train(ProbeProblem(), steps=25, run_dir=tmp_path / "run", **options)
    longer = resume(tmp_path / "run", ProbeProblem(), steps=40, progress=False)
    whole = train(ProbeProblem(), steps=40, **options)
    assert [row["step"] for row in longer.metrics] == [1, 10, 20, 25, 30, 40]
    # The row at the end of the shorter run takes nothing away from the mean of steps 21 to 30.
    assert timeless(longer.metrics[-2:]) == timeless(whole.metrics[-2:])
    # A report says how to do it again: both calls, and one that changes nothing only once.
    began, went_on = longer.summary["command"].split("\n")
    assert began.startswith("twinax.train(problem, mode='jax', steps=25")
    assert went_on.startswith("twinax.resume(run, mode='jax', steps=40")


def test_nothing_is_written_without_a_run_dir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(ProbeProblem(), steps=5, progress=False)
    assert run.dir is None and os.listdir(tmp_path) == [] and len(run.metrics) == 5


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_chunks_do_not_change_the_numbers(probe, chunk):
    options = {"steps": 50, "log_every": 4, "evaluate_every": 9, "progress": False}
    expected = train(ProbeProblem(), chunk=50, **options)
    run = train(ProbeProblem(), chunk=chunk, **options)
    assert timeless(run.metrics) == timeless(expected.metrics)
    assert_equal_states(run.state, expected.state)
    assert probe[-1].calls[0] == 1 and max(probe[-1].calls) <= chunk and sum(probe[-1].calls) == 50


def test_slow_steps_make_short_chunks(probe, monkeypatch):
    monkeypatch.setattr("twinax.runs.session._CHUNK_SECONDS", 0.05)
    train(ProbeProblem(pause=0.005), steps=60, chunk=20, progress=False)
    assert probe[-1].calls[0] == 1 and max(probe[-1].calls[2:]) <= 10


def test_several_seeds(tmp_path):
    run = train(ProbeProblem(), steps=12, seeds=3, run_dir=tmp_path / "run", progress=False)
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert isinstance(row["loss"], float) and len(row["loss_per_seed"]) == len(row["grad_norm"]) == 3
    np.testing.assert_allclose(row["loss"], np.mean(row["loss_per_seed"]))
    assert len(row["total_variation"]) == 3 and run.summary["seeds"] == 3
    again = resume(tmp_path / "run", ProbeProblem(), steps=20, progress=False)
    expected = train(ProbeProblem(), steps=20, seeds=3, progress=False)
    assert_equal_states(again.state, expected.state)


def test_the_networks_alone_have_files_of_their_own(tmp_path):
    run = train(ProbeProblem(), steps=12, run_dir=tmp_path / "one", progress=False)
    loaded = load_weights(tmp_path / "one" / "weights" / "networks.safetensors", like=ProbeProblem().init(5).networks)
    np.testing.assert_array_equal(loaded.policy["weight"], run.networks.policy["weight"])
    assert np.abs(loaded.policy["weight"]).min() > 0, "as they are after the training"
    run = train(ProbeProblem(), steps=12, seed=4, seeds=2, run_dir=tmp_path / "two", progress=False)
    for k, seed in enumerate((4, 5)):
        path = tmp_path / "two" / "weights" / f"seed_{seed}" / "networks.safetensors"
        loaded = load_weights(path, like=ProbeProblem().init(0).networks)
        np.testing.assert_array_equal(loaded.policy["weight"], run.networks.policy["weight"][k])


def test_checkpoints_come_when_planned_and_old_ones_go(tmp_path):
    train(ProbeProblem(), steps=50, checkpoint_every=10, keep=2, run_dir=tmp_path / "run", progress=False)
    assert checkpoint.steps(tmp_path / "run") == [40, 50]


def test_resume_equals_an_uninterrupted_run(tmp_path, start):
    options = {"log_every": 4, "evaluate_every": 10, "checkpoint_every": 7, "progress": False}
    whole = train(ProbeProblem(), steps=40, run_dir=tmp_path / "whole", **options)
    process = start(
        problem={"pause": 0.02}, steps=40, run_dir=str(tmp_path / "killed"), config={"seed": 0}, chunk=3, **options
    )
    wait_for_step(tmp_path / "killed", 24)
    process.kill()
    process.communicate()
    with open(tmp_path / "killed" / "metrics.jsonl", "a") as file:
        file.write('{"step": 39, "lo')
    run = resume(tmp_path / "killed", ProbeProblem(), mode="torch", progress=False)
    assert_equal_states(run.state, whole.state)
    assert timeless(run.metrics) == timeless(whole.metrics)
    assert timeless(rows_of(tmp_path / "killed")) == timeless(rows_of(tmp_path / "whole"))
    assert run.summary["mode"] == "torch" and run.summary["status"] == "finished"
    assert [row["seconds"] for row in run.metrics] == sorted(row["seconds"] for row in run.metrics)


def test_kill_before_the_first_chunk_ends(tmp_path, start):
    process = start(problem={"pause": 30}, steps=40, run_dir=str(tmp_path / "run"))
    deadline = time.monotonic() + 30
    while not checkpoint.steps(tmp_path / "run") and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    run = resume(tmp_path / "run", ProbeProblem(), progress=False)
    assert_equal_states(run.state, train(ProbeProblem(), steps=40, progress=False).state)


def test_a_bad_checkpoint_is_skipped_and_kept_aside(tmp_path):
    run_dir = tmp_path / "run"
    whole = train(ProbeProblem(), steps=40, checkpoint_every=10, run_dir=run_dir, progress=False)
    arrays = checkpoint.place(run_dir, 40) / "state.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:100])
    refused = []
    run = resume(run_dir, ProbeProblem(), progress=False, warn=refused.append)
    assert len(refused) == 1 and "0000000040" in refused[0]
    assert timeless(run.metrics) == timeless(whole.metrics)
    assert_equal_states(run.state, whole.state)
    assert (run_dir / "checkpoints" / "0000000040.refused").is_dir() and 40 in checkpoint.steps(run_dir)


def test_resume_says_what_cannot_be(tmp_path):
    run_dir = tmp_path / "run"
    train(ProbeProblem(), steps=10, run_dir=run_dir, progress=False)
    with pytest.raises(TwinaxError, match="has done 10 steps and was asked for 10 in all.*trainer.steps=20"):
        resume(run_dir, ProbeProblem())
    with pytest.raises(TwinaxError, match="dtype=float32 and cannot go on with dtype=float64"):
        resume(run_dir, ProbeProblem(), steps=20, dtype="float64")
    with pytest.raises(TwinaxError, match="seeds=1 and cannot go on with seeds=2"):
        resume(run_dir, ProbeProblem(), steps=20, seeds=2)
    with pytest.raises(TwinaxError, match=r"shape \(3,\) but the problem needs \(5,\)"):
        resume(run_dir, ProbeProblem(width=5), steps=20)
    with pytest.raises(TwinaxError, match="there is no run directory"):
        resume(tmp_path / "absent", ProbeProblem())
    assert not (run_dir / ".lock").exists()
    assert rows_of(run_dir)[-1]["step"] == 10


def test_one_training_per_directory(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    with directory.lock(), pytest.raises(TwinaxError, match="is being trained by process"):
        train(ProbeProblem(), steps=5, run_dir=tmp_path / "run", progress=False)
    train(ProbeProblem(), steps=5, run_dir=tmp_path / "run", progress=False)
    with directory.lock(), pytest.raises(TwinaxError, match="is being trained by process"):
        resume(tmp_path / "run", ProbeProblem(), steps=9, progress=False)
    with pytest.raises(TwinaxError, match="already holds a training"):
        train(ProbeProblem(), steps=5, run_dir=tmp_path / "run", progress=False)


def test_a_disk_that_fills_up_in_the_middle(tmp_path, monkeypatch):
    run_dir, real, calls = tmp_path / "run", os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch, pytest.raises(TwinaxError, match="No space left on device"):
        patch.setattr(os, "fsync", full)
        train(ProbeProblem(), steps=500, checkpoint_every=10, run_dir=run_dir, progress=False)
    assert not (run_dir / ".lock").exists()
    run = resume(run_dir, ProbeProblem(), progress=False, warn=pytest.fail)
    assert_equal_states(run.state, train(ProbeProblem(), steps=500, progress=False).state)


def test_float64_is_kept(tmp_path):
    train(ProbeProblem(), steps=10, dtype="float64", run_dir=tmp_path / "run", progress=False)
    run = resume(tmp_path / "run", ProbeProblem(), steps=20, progress=False)
    assert run.state.networks.log_z.dtype == np.float64 and run.summary["dtype"] == "float64"


def test_a_loss_that_is_not_finite(tmp_path):
    run_dir = tmp_path / "run"
    with pytest.raises(Diverged, match="step 35: 'log_z' is no longer finite.*0000000030") as caught:
        train(ProbeProblem(bad_at=35), steps=60, checkpoint_every=10, run_dir=run_dir, progress=False)
    assert (caught.value.step, caught.value.term) == (35, "log_z")
    assert caught.value.checkpoint == checkpoint.place(run_dir, 30) == checkpoint.latest(run_dir)
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "diverged"
    run = resume(run_dir, ProbeProblem(), progress=False)
    assert run.summary["status"] == "finished"
    with pytest.raises(Diverged, match="there is no checkpoint"):
        train(ProbeProblem(bad_at=3), steps=60, progress=False)


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path, start):
    run_dir = tmp_path / "run"
    config = {"experiment": "probe", "seed": 0}
    process = start(problem={"pause": 0.01}, steps=5000, run_dir=str(run_dir), config=config, chunk=20)
    wait_for_step(run_dir, 3)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert f"continue with: twinax resume {run_dir}" in text and "Traceback" not in text
    assert "stopping after the running chunk, then saving" in text
    saved = checkpoint.steps(run_dir)[-1]
    assert 3 <= saved < 5000 and f"stopped at step {saved} of 5000" in text
    assert json.loads((run_dir / "summary.json").read_text())["status"] == "interrupted"
    run = resume(run_dir, ProbeProblem(), steps=saved + 30, progress=False)
    whole = train(ProbeProblem(), steps=saved + 30, log_every=5, progress=False)
    assert_equal_states(run.state, whole.state)


def test_a_second_ctrl_c_stops_at_once(tmp_path, start):
    run_dir = tmp_path / "run"
    process = start(problem={"pause": 0.2}, steps=5000, run_dir=str(run_dir), chunk=1000)
    wait_for_step(run_dir, 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, text = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert "stopped at once" in text and f"twinax.resume('{run_dir}', problem=...)" in text
    assert time.monotonic() - began < 5
    assert checkpoint.steps(run_dir) == [0]


def test_ctrl_c_inside_compiled_code(tmp_path, start):
    process = start(problem={"deaf": True}, steps=10, run_dir=str(tmp_path / "run"))
    while not checkpoint.steps(tmp_path / "run"):
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "10 steps" in process.stderr.readline()
    assert "stopping after the running chunk" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in text
    assert resume(tmp_path / "run", ProbeProblem(), progress=False).summary["steps"] == 10


def test_ctrl_c_gives_the_run_so_far():
    problem = ProbeProblem()
    handler = signal.getsignal(signal.SIGINT)
    original = ProbeEngine.run

    def interrupted_run(self, steps):
        os.kill(os.getpid(), signal.SIGINT)
        return original(self, steps)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted, match="nothing was saved") as caught:
        patch.setattr(ProbeEngine, "run", interrupted_run)
        train(problem, steps=100, progress=False)
    assert caught.value.exit_code == 130 and int(caught.value.run.state.step) == 1
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"steps": 2.5}, "whole number"),
        ({"steps": True}, "whole number"),
        ({"steps": 2**31}, "32 bits"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "smaller seed"),
        ({"seeds": 0}, "seeds is 0"),
        ({"log_every": 0}, "log_every is 0"),
        ({"evaluate_every": -1}, "evaluate_every is -1"),
        ({"dtype": "float23"}, "Did you mean 'float32'"),
        ({"keep": 0}, "keep is 0"),
    ],
)
def test_bad_numbers(unchecked, tmp_path, options, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        train(ProbeProblem(), **{"steps": 10, "run_dir": tmp_path / "run"} | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("argv", "configured", "expected"),
    [
        (["/home/me/.venv/bin/twinax", "train", "run.name=a b"], True, "twinax train 'run.name=a b'"),
        (["/home/me/twinax/cli/__main__.py", "train"], True, "twinax train"),
        (["train.py", "seed=1"], True, "python train.py seed=1"),
        (["my_study.py"], False, "twinax.train(problem, mode='jax', steps=10, seed=0, seeds=1,"),
        (["-c"], True, "twinax.train(problem, mode='jax', steps=10"),
    ],
)  # fmt: skip
def test_the_command_is_kept(monkeypatch, argv, configured, expected):
    monkeypatch.setattr(sys, "argv", argv)
    assert command_line(TrainOptions(steps=10), configured).startswith(expected)
