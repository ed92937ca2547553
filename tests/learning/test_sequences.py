"""Small worlds of sequences are learned, judged by the exact total variation."""

from __future__ import annotations

import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.envs._bit_modes import BLOCKS
from twinax.gflownet import Exploration, PolicyOptions

TOY = tx.envs.Sequences(4, "abc", "variable", tx.envs.DoubledLetters(2.0, 0.01))
HIDDEN = tx.envs.BitModes(1.0, 1.0, modes=tuple(BLOCKS[k] for k in (0, 2, 4)))
WORLDS = {"variable": TOY, **{order: tx.envs.BitSequences(8, 2, order, HIDDEN) for order in ("append", "both", "any")}}


def check_learned(order: str, objective: str, mode: str) -> None:
    flat = objective == "detailed_balance"
    steps = 3000 if flat else 2000
    problem = tx.gflownet.problem(
        WORLDS[order],
        objective,
        batch_size=64 if flat or order == "variable" else 32,
        policy=PolicyOptions(hidden=(64, 64), backward="uniform"),
        exploration=Exploration(epsilon=0.3 if flat else 0.1),
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
    check_learned("variable", "trajectory_balance", "jax")


@pytest.mark.slow
@pytest.mark.parametrize("order", list(WORLDS))
@pytest.mark.parametrize("objective", ["trajectory_balance", "detailed_balance"])
def test_every_order_is_learned(order: str, objective: str):
    check_learned(order, objective, "jax")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "hybrid"])
def test_every_mode_learns(mode: str):
    check_learned("append", "trajectory_balance", mode)
