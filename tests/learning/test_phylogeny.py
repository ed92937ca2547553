"""The posterior over all trees of five taxa is learned, judged by the exact total variation."""

from __future__ import annotations

import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import Exploration, PolicyOptions

FIVE = ("AACGTACG", "AACGTTCG", "ACCGTTCA", "GCCTTTCA", "GCCTAACA")
STEPS = {"trajectory_balance": 2000, "detailed_balance": 5000, "forward_looking": 2000}


def check_learned(objective: str, mode: str, backward: str = "uniform") -> None:
    steps = STEPS[objective]
    problem = tx.gflownet.problem(
        tx.envs.PhylogeneticTree(sequences=FIVE, reward=tx.envs.Parsimony(temperature=1.0)),
        objective,
        batch_size=64,
        policy=PolicyOptions(hidden=(128, 128), backward=backward),
        exploration=Exploration(epsilon=0.1),
        optimizer=tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.02),
        network="mlp",
    )
    engine = make_engine(problem, mode=mode, chunk=500)
    engine.start(0)
    assert engine.evaluate()["total_variation"] > 0.3, "an untrained policy must be far from the target"
    engine.run(steps)
    metrics = engine.evaluate()
    assert metrics["total_variation"] < 0.01
    assert abs(metrics["log_z_error"]) < 0.01
    assert metrics["fewest_changes"] == 7


def test_forward_looking_learns_in_jax():
    check_learned("forward_looking", "jax")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["trajectory_balance", "detailed_balance"])
def test_other_objectives_learn(objective: str):
    check_learned(objective, "jax")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "hybrid"])
def test_every_mode_learns(mode: str):
    check_learned("trajectory_balance", mode)


@pytest.mark.slow
def test_the_maximum_entropy_backward_policy_learns():
    check_learned("trajectory_balance", "jax", "maxent")
