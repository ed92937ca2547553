"""Distributions over graphs of three variables are learned exactly."""

from __future__ import annotations

import pytest
from golden_graphs import samples

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import Exploration, PolicyOptions


def trained(objective: str, mode: str, steps: int = 900, learning_rate: float = 2e-3):
    problem = tx.gflownet.problem(
        tx.envs.DAG(data=samples(3)),
        objective,
        batch_size=32,
        policy=PolicyOptions(hidden=(64, 64), backward="uniform"),
        exploration=Exploration(epsilon=0.2),
        optimizer=tx.Optimizer(learning_rate=learning_rate, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        log_z=(-36.0,),
    )
    engine = make_engine(problem, mode=mode, chunk=300)
    engine.start(0)
    assert engine.evaluate()["total_variation"] > 0.3
    engine.run(steps)
    return engine.evaluate()


def check(metrics) -> None:
    assert metrics["total_variation"] < 0.01
    assert abs(metrics["log_z_error"]) < 0.01
    assert metrics["entropy"] == pytest.approx(2.967641, abs=0.01)
    assert metrics["expected_edges"] == pytest.approx(1.863884, abs=0.02)
    assert min(metrics[f"{name}_correlation"] for name in ("edge", "path", "blanket")) > 0.999
    assert metrics["picture/edges/target"][0, 1] == pytest.approx(0.386809, abs=6e-7)
    assert metrics["picture/edges/learned"][0, 1] == pytest.approx(0.386809, abs=0.01)


def test_modified_detailed_balance_learns_the_posterior():
    check(trained("modified_detailed_balance", "jax"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "mode"),
    [
        ("modified_detailed_balance", "torch"),
        ("modified_detailed_balance", "hybrid"),
        ("trajectory_balance", "jax"),
        ("trajectory_balance", "torch"),
    ],
)
def test_others_learn_it_too(objective: str, mode: str):
    check(trained(objective, mode))
