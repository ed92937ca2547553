"""Training on replayed objects learns the target distribution, judged by the exact total variation."""

from __future__ import annotations

import numpy as np
import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import Exploration, LocalSearchOptions, PolicyOptions, ReplayOptions

GRID = tx.envs.Hypergrid(dim=2, side=8, reward=tx.envs.GridReward(0.1, 0.5, 2.0))


def trained(objective="trajectory_balance", mode="jax", steps=1000, exploration=None, local_search=None, **replay):
    problem = tx.gflownet.problem(
        GRID,
        objective,
        batch_size=16,
        policy=PolicyOptions(hidden=(64, 64)),
        optimizer=tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        exploration=exploration or Exploration(),
        local_search=local_search or LocalSearchOptions(),
        replay=ReplayOptions(**replay),
    )
    engine = make_engine(problem, mode=mode, chunk=500)
    engine.start(0)
    before = engine.evaluate()["total_variation"]
    engine.run(steps)
    assert before > 0.5, "an untrained policy must be far from the target, or the test shows nothing"
    return engine.evaluate()


def check(metrics) -> None:
    assert metrics["total_variation"] < 0.01
    assert abs(metrics["log_z_error"]) < 0.01


def test_learns_with_a_replay_by_rank():
    check(trained(batch_size=16, size=1000, priority="rank"))


@pytest.mark.slow
@pytest.mark.parametrize("priority", ["uniform", "reward", "top", "loss"])
@pytest.mark.parametrize("objective", ["trajectory_balance", "detailed_balance"])
def test_every_priority_learns(objective, priority):
    check(trained(objective, batch_size=16, size=1000, priority=priority))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "hybrid"])
def test_learns_in_every_mode(mode):
    check(trained(mode=mode, batch_size=16, size=1000, priority="top"))


OFF_POLICY = {
    "epsilon": {"exploration": Exploration(epsilon=0.3)},
    "whole trajectories at random": {"exploration": Exploration(epsilon=0.3, per_trajectory=True)},
    "flatter": {"exploration": Exploration(temperature=2.0)},
    "replay by reward": {"batch_size": 48, "size": 500, "priority": "reward", "updates": 2, "backward": "uniform"},
    "local search": {"local_search": LocalSearchOptions(rounds=2, steps=4)},
    "all of them": {
        "exploration": Exploration(epsilon=0.1),
        "local_search": LocalSearchOptions(rounds=1, steps=4, accept="metropolis"),
        "batch_size": 16,
        "size": 500,
        "priority": "loss",
    },
}


@pytest.fixture(scope="module")
def on_policy():
    return trained()


@pytest.mark.slow
@pytest.mark.parametrize("way", OFF_POLICY)
def test_on_and_off_policy_agree_on_log_z(way, on_policy):
    """What is trained on, and how often, changes what is learned soon and never what is learned: log Z = log 22.4."""
    off_policy = trained(**OFF_POLICY[way])
    assert abs(on_policy["log_z"] - off_policy["log_z"]) < 0.01
    for metrics in (on_policy, off_policy):
        check(metrics)
        assert abs(metrics["log_z"] - np.log(22.4)) < 0.01
