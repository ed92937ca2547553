"""A policy of each kind of network learns the target of a small world, judged by the exact total variation, and engines
agree on it."""

from __future__ import annotations

import pytest
from shown_worlds import Arrows, Couples, GrowingBits, ShownBits

import twinax as tx
from twinax.engines import make_engine
from twinax.networks import GraphNetwork, PairNetwork, TokenTransformer

SIZES = {"width": 32, "heads": 4, "layers": 2, "feedforward": 32}
CASES = {
    "transformer": (ShownBits(4), TokenTransformer(**SIZES)),
    "causal transformer": (GrowingBits(4), TokenTransformer(causal=True, **SIZES)),
    "graph": (Arrows(3), GraphNetwork(**SIZES)),
    "pairs": (Couples(6), PairNetwork(**SIZES)),
}


def small(name: str, objective: str = "trajectory_balance", steps: int = 900, batch_size: int = 32):
    env, network = CASES[name]
    optimizer = tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01)
    return tx.gflownet.problem(env, objective, network=network, batch_size=batch_size, optimizer=optimizer)


@pytest.mark.parametrize("name", CASES)
def test_learns(name: str):
    engine = make_engine(small(name), mode="jax", chunk=300)
    engine.start(0)
    before = engine.evaluate()["total_variation"]
    engine.run(900)
    metrics = engine.evaluate()
    assert before > 0.15
    assert metrics["total_variation"] < 0.02
    assert abs(metrics["log_z_error"]) < 0.05


@pytest.mark.parametrize("name", CASES)
def test_modes_agree(name: str):
    tx.parity.check(small(name, "detailed_balance", batch_size=8), steps=5, seed=1).raise_if_different()
