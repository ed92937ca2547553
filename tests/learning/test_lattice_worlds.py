"""Sets, bags, trees, rings and spins: every world is learned, judged by the exact total variation."""

from __future__ import annotations

import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import Exploration, PolicyOptions

WORLDS = {
    "set": (tx.envs.Sets(6, 3), 600),
    "set with stop": (tx.envs.Sets(5, 3, stop=True), 600),
    "bag": (tx.envs.Bags(3, 4, tx.envs.BagModes(equal=3)), 600),
    "perfect_tree": (tx.envs.PerfectTree(4), 600),
    "rings": (tx.envs.RingGraphs(3, reward=tx.envs.Ring(100.0, 1.0)), 3000),
    "ising": (tx.envs.Ising(2, sigma=0.3), 1000),
}
LARGER = {
    # Detailed balance still has a total variation of 0.012 here after twice as many steps.
    "ising of nine": (tx.envs.Ising(3, sigma=0.1), 4000),
}
OBJECTIVES = ("trajectory_balance", "detailed_balance")


def trained(name: str, objective: str, mode: str):
    env, steps = {**WORLDS, **LARGER}[name]
    large = steps > 1000
    problem = tx.gflownet.problem(
        env,
        objective,
        batch_size=256 if large else 64,
        policy=PolicyOptions(hidden=(128, 128) if large else (64, 64), backward="uniform"),
        exploration=Exploration(epsilon=0.1),
        optimizer=tx.Optimizer(
            learning_rate=2e-3 if large else 4e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.002
        ),
    )
    engine = make_engine(problem, mode=mode, chunk=300)
    engine.start(0)
    before = engine.evaluate()["total_variation"]
    engine.run(steps)
    metrics = engine.evaluate()
    assert before > 0.05, "an untrained policy must be far from the target, or the test shows nothing"
    assert metrics["total_variation"] < 0.01, metrics["total_variation"]
    assert abs(metrics["log_z_error"]) < 0.02
    return metrics


@pytest.mark.parametrize("name", ["set with stop"])
def test_learns(name: str):
    trained(name, "trajectory_balance", "jax")


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_is_learned_in_jax(name: str, objective: str):
    trained(name, objective, "jax")


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_larger_worlds_are_learned_by_trajectory_balance(name: str):
    trained(name, "trajectory_balance", "jax")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "hybrid"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_is_learned_in_every_mode(name: str, objective: str, mode: str):
    trained(name, objective, mode)
