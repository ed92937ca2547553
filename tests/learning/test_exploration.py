"""Exploration finds what a policy alone does not, and in the end the policy is the one that it would be without."""

from __future__ import annotations

import numpy as np
import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import Exploration, MetricOptions, PolicyOptions, problem

FAR = tx.envs.Hypergrid(dim=2, side=24, reward=tx.envs.GridReward(1e-4, 0.5, 2.0))
"""Four modes in the corners, and next to nothing between them."""
NEAR = tx.envs.Hypergrid(dim=2, side=8, reward=tx.envs.GridReward(0.1, 0.5, 2.0))


@pytest.mark.slow
def test_rewards_for_what_is_new_find_all_modes_in_every_seed():
    found = {}
    for scale in (0.0, 0.1):
        made = problem(
            FAR,
            batch_size=16,
            policy=PolicyOptions(hidden=(64, 64), backward="uniform"),
            exploration=Exploration(intrinsic=scale, intrinsic_steps=1500, intrinsic_widths=(64, 64, 32)),
            metrics=MetricOptions(fifo=1000, samples=64),
        )
        engine = make_engine(made, mode="jax", seeds=4, chunk=500)
        engine.start(0)
        engine.run(2000)
        found[scale] = {name: np.asarray(value) for name, value in engine.evaluate().items()}
    assert (found[0.0]["modes_found"] <= 2).all() and (found[0.0]["total_variation"] > 0.7).all()
    assert (found[0.1]["modes_found"] == 4).all() and (found[0.1]["total_variation"] < 0.2).all()


WAYS = {
    "heads": ("trajectory_balance", Exploration(thompson_heads=4)),
    "heads, detailed balance": ("detailed_balance", Exploration(thompson_heads=4)),
    "new objects": ("trajectory_balance", Exploration(intrinsic=1.0, intrinsic_steps=500)),
    "new edges": ("detailed_balance", Exploration(intrinsic=0.1, intrinsic_steps=500, intrinsic_form="edge")),
    "both": ("subtrajectory_balance", Exploration(thompson_heads=4, intrinsic=0.1, intrinsic_steps=500)),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_in_the_end_the_target_is_learned(way):
    objective, exploration = WAYS[way]
    made = problem(
        NEAR,
        objective,
        batch_size=32,
        policy=PolicyOptions(hidden=(64, 64)),
        optimizer=tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=1500, decay_to=0.01),
        exploration=exploration,
    )
    engine = make_engine(made, mode="jax", chunk=500)
    engine.start(0)
    logs = engine.run(1500)
    found = engine.evaluate()
    assert found["total_variation"] < 0.01 and abs(found["log_z_error"]) < 0.01
    if exploration.intrinsic:
        assert logs["intrinsic_reward"][0] > 0.01 > 0 == logs["intrinsic_reward"][500]
