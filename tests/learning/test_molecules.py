"""All strings of two blocks are learned in proportion to their molecules' properties, judged exactly."""

from __future__ import annotations

import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import Exploration, PolicyOptions

pytest.importorskip("rdkit")


def check_learned(objective: str, mode: str) -> None:
    steps = 1500 if objective == "trajectory_balance" else 3000
    problem = tx.gflownet.problem(
        tx.envs.Molecules(length=2, reward=tx.envs.Properties(beta=4.0, synthesis=1.0)),
        objective,
        batch_size=32,
        policy=PolicyOptions(hidden=(64, 64), backward="uniform"),
        exploration=Exploration(epsilon=0.1),
        optimizer=tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
    )
    engine = make_engine(problem, mode=mode, chunk=500)
    engine.start(0)
    assert engine.evaluate()["total_variation"] > 0.3, "an untrained policy must be far from the target"
    engine.run(steps)
    metrics = engine.evaluate()
    assert metrics["total_variation"] < 0.01
    assert abs(metrics["log_z_error"]) < 0.01


def test_trajectory_balance_learns_in_jax():
    check_learned("trajectory_balance", "jax")


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective, mode",
    [("detailed_balance", "jax"), ("trajectory_balance", "torch"), ("trajectory_balance", "hybrid")],
)
def test_other_objectives_and_modes_learn(objective: str, mode: str):
    check_learned(objective, mode)
