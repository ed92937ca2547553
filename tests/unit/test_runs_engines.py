"""Resume with the real engines: bit for bit within a mode, and from one mode to another."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax import tree

SCRIPT = """
import json, sys
import twinax as tx
from twinax import runs
sys.path.insert(0, sys.argv[1])
import test_runs_engines
runs.train(test_runs_engines.PROBLEMS[sys.argv[3]](), **json.loads(sys.argv[2]))
"""
OPTIONS = {"steps": 30, "checkpoint_every": 10, "evaluate_every": 15, "chunk": 8, "progress": False}


def problem():
    return tx.gflownet.problem(
        tx.envs.Hypergrid(dim=2, side=4, reward=tx.envs.GridReward(0.1, 0.5, 2.0)),
        objective="trajectory_balance",
        batch_size=4,
        policy=tx.gflownet.PolicyOptions(hidden=(8,)),
        metrics=tx.gflownet.MetricOptions(fifo=64, samples=16),
    )


def hunt():
    """Prioritised replay that is full after three epochs, so that the ring has wrapped around where a run is cut."""
    replay = tx.iqn.ReplayOptions(buffer_size=24, frame_stack=2, alpha=0.5)
    learners = tx.iqn.Learners(
        count=2, width=8, num_quantiles=3, num_act_quantiles=3, num_cosines=4, batch_size=8, replay=replay
    )
    world = tx.envs.TreasureHunt(height=5, width=5, num_agents=2, turns=8, radius=1, spawn_prob=0.2)
    return tx.iqn.problem(world, {"iqn": learners}, num_envs=2, evaluation_num_envs=2, film=False)


PROBLEMS = {"gflownet": problem, "iqn": hunt}


def compare(one, other, tolerance=0.0):
    expected = tree.named_leaves(other)
    for name, leaf in tree.named_leaves(one).items():
        assert leaf.dtype == expected[name].dtype, name
        np.testing.assert_allclose(leaf, expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


def timeless(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("mode", ["torch", pytest.param("hybrid", marks=pytest.mark.slow), "jax"])
@pytest.mark.parametrize("family", PROBLEMS)
def test_killed_and_resumed_equals_uninterrupted(tmp_path, family, mode):
    if mode != "jax":
        pytest.importorskip("torch")
    problem = PROBLEMS[family]
    whole = tx.train(problem(), mode=mode, run_dir=tmp_path / "whole", **OPTIONS)
    # The killed run has far more steps to go, so that the kill hits a chunk or a save, never the end.
    options = OPTIONS | {
        "mode": mode,
        "steps": 100_000,
        "keep": 10_000,
        "log_every": 1,
        "run_dir": str(tmp_path / "killed"),
    }
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), json.dumps(options), family]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "killed" / "checkpoints" / "0000000010").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
    _forget_after(tmp_path / "killed", 20)
    run = tx.resume(tmp_path / "killed", problem(), steps=30, progress=False)
    compare(run.state, whole.state)
    assert timeless(run.metrics) == timeless(whole.metrics)


def _forget_after(run_dir: Path, last: int) -> None:
    """The process may have been killed late; checkpoints of later steps would leave nothing to resume."""
    import shutil

    for path in (run_dir / "checkpoints").iterdir():
        if path.name.isdecimal() and int(path.name) > last:
            shutil.rmtree(path)


def test_torch_resumed_in_jax_mode(tmp_path):
    pytest.importorskip("torch")
    options = OPTIONS | {"dtype": "float64"}
    whole = tx.train(problem(), mode="torch", **options)
    tx.train(problem(), mode="torch", run_dir=tmp_path / "run", **options | {"steps": 12})
    run = tx.resume(tmp_path / "run", problem(), mode="jax", steps=30, progress=False)
    compare(run.state, whole.state, 1e-9)
    assert run.summary["mode"] == "jax" and run.metrics[-1]["total_variation"] == pytest.approx(
        whole.metrics[-1]["total_variation"], abs=1e-9
    )


def test_a_learning_rate_that_is_far_too_high_names_the_term(tmp_path):
    bad = tx.gflownet.problem(
        tx.envs.Hypergrid(dim=2, side=4), optimizer=tx.Optimizer(name="sgd", learning_rate=1e30), batch_size=4
    )
    with pytest.raises(tx.runs.Diverged, match="no longer finite.*last good checkpoint is"):
        tx.train(bad, mode="jax", steps=50, run_dir=tmp_path / "run", progress=False)


@pytest.mark.parametrize("mode", ["torch", "jax"])
def test_a_finite_loss_does_not_hide_parameters_that_ran_away(tmp_path, mode):
    """With Adam and a step size of 1e10 the sampler always stops at once, and the loss is small."""
    if mode == "torch":
        pytest.importorskip("torch")
    bad = tx.gflownet.problem(
        tx.envs.Hypergrid(dim=2, side=6),
        optimizer=tx.Optimizer(learning_rate=1e10, rates={"log_z": 0.1}),
        batch_size=8,
        policy=tx.gflownet.PolicyOptions(hidden=(16,)),
        metrics=tx.gflownet.MetricOptions(fifo=64, samples=16),
    )
    options = {"steps": 20, "chunk": 5, "checkpoint_every": 5, "progress": False}
    with pytest.raises(tx.runs.Diverged, match=r"the parameter '.*' has grown to .*e\+1\d, and .*0000000000;"):
        tx.train(bad, mode=mode, run_dir=tmp_path / "run", **options)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "diverged"
