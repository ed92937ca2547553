"""Commands treat runs that were started in Python as those of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax.iqn import Learners, ReplayOptions


def train(problem, path="runs/python"):
    tx.train(problem, mode="torch", steps=2, run_dir=path, progress=False)
    return path


def gflownet():
    small = {"policy": tx.gflownet.PolicyOptions(hidden=(8,)), "metrics": tx.gflownet.MetricOptions(samples=8, fifo=64)}
    return tx.gflownet.problem(tx.envs.Hypergrid(2, 4), batch_size=4, **small)


def agents():
    sizes = {"width": 8, "num_quantiles": 4, "num_act_quantiles": 4, "num_cosines": 8, "batch_size": 4}
    group = Learners(count=2, replay=ReplayOptions(buffer_size=16, frame_stack=2), **sizes)
    world = tx.envs.TreasureHunt(num_agents=2, turns=6, height=8, width=8)
    return tx.iqn.problem(world, {"iqn": group}, evaluation_num_envs=1, film=False)


def test_list_eval_and_report(twinax):
    path = train(gflownet())
    assert path in twinax("list", "runs").out
    done = twinax("eval", path, "--seed", "3")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].strip() == "step 2, draws from seed 3"
    found = json.loads(Path(path, "eval.json").read_text())
    assert found["seeds"] == [3] and found["mode"] == "torch"
    same = tx.load(path).evaluate(seed=3)
    assert found["metrics"]["elbo"] == pytest.approx(same["elbo"])
    changed = twinax("eval", path, "--seed", "3", "trainer.mode=hybrid")
    assert changed.code == 0 and json.loads(Path(path, "eval.json").read_text())["mode"] == "hybrid"
    refused = twinax("eval", path, "env.side=8")
    assert refused.code != 0 and "'env.side=8' cannot change here" in refused.err and refused.err.count("\n") == 1
    assert twinax("report", path).code == 0
    page = Path(path, "report.html").read_text()
    best = tx.load(path).top_k(10)
    assert "Best objects" in page and all(f"<th>{text}</th>" in page for text in best.texts)


def test_play_and_export(twinax, monkeypatch):
    import io

    path = train(agents())
    monkeypatch.setattr("sys.stdin", io.StringIO("dq"))
    played = twinax("play", path, "--seed", "1")
    assert played.code == 0 and "score" in played.out, played.err
    done = twinax("export", path, "policy.onnx", "--agent", "1")
    assert done.code == 0, done.err
    run, loaded = tx.load(path), tx.deploy.load_policy("policy.onnx")
    views = np.random.default_rng(0).integers(0, 3, (9, *loaded.shape))
    np.testing.assert_array_equal(loaded.act(views), run.act(views, deterministic=True, agent=1))
    no_world = twinax("play", train(gflownet(), "runs/other"))
    assert no_world.code != 0 and "which has no play; it has sample, top_k, evaluate" in no_world.err


def test_eval_says_which_seeds_it_used(twinax, trained):
    import shutil

    shutil.copytree(trained, "copy")
    done = twinax("eval", "copy", "--seed", "7")
    assert "draws from seed 7" in done.out.splitlines()[0]
    refused = twinax("eval", "copy", "--seed", "-1")
    assert refused.code != 0 and "the seed is -1; it must be a whole number, at least 0" in refused.err


def test_eval_says_that_a_task_has_seeds_of_its_own():
    from twinax.offline._tasks import GymnasiumTask

    task = GymnasiumTask("Pendulum-v1", episodes=3, num_envs=2, seed=4)
    assert task.own_seeds == "episodes of Pendulum-v1 begin with its own seeds 4 to 5, whatever the draws"
