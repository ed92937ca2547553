"""Couplings learned together with their sampler: the likeliest ones, in every mode, and with few steps back."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax.engines import make_engine
from twinax.envs import Ising, LearnedCouplings
from twinax.gflownet import EnergyOptions, PolicyOptions

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from exact_couplings import likeliest_couplings

ENV = Ising(3, sigma=0.15).with_reward(LearnedCouplings(samples=1000, seed=1))
WANTED = likeliest_couplings(ENV.observed().spins.astype(np.float64))


def trained(mode: str, updates: int, objective: str = "trajectory_balance", **energy):
    """The couplings, and what an evaluation says."""
    problem = tx.gflownet.problem(
        ENV,
        objective,
        batch_size=128,
        policy=PolicyOptions(hidden=(128, 128), backward="uniform"),
        optimizer=tx.Optimizer(
            learning_rate=4e-3, rates={"log_z": 0.1, "energy": 1e-2}, decay_steps=updates, decay_to=0.002
        ),
        energy=EnergyOptions(**energy),
    )
    engine = make_engine(problem, mode=mode, chunk=200)
    engine.start(0)
    engine.run(updates)
    return engine.state().networks.energy["learned_couplings"], engine.evaluate()


def distance(one, other) -> float:
    return float(np.sqrt(np.mean(np.square(one - other))))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "hybrid", "jax"])
def test_every_mode_learns_the_likeliest_couplings(mode):
    couplings, found = trained(mode, 800, steps=5)
    assert distance(couplings, WANTED) < 0.006, distance(couplings, WANTED)
    # The policy has learned to sample what the couplings have become.
    assert found["total_variation"] < 0.05 and abs(found["log_z_error"]) < 0.06
    best = ENV.given({**ENV.constants(), "learned_couplings": WANTED})
    exact = best.measures(ENV.observed(), np.full(1000, 1e-3))["data_log_likelihood"]
    assert exact - 2e-3 < found["data_log_likelihood"] <= exact + 1e-6
    true = ENV.reward.true_couplings(ENV)
    assert found["coupling_accuracy"] == pytest.approx(-np.log(distance(couplings, true)), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["detailed_balance", "log_partition_variance"])
def test_other_objectives_teach_the_sampler_as_well(objective):
    couplings, found = trained("jax", 1500, objective, retrace=True)
    assert distance(couplings, WANTED) < 0.008 and found["total_variation"] < 0.06


@pytest.mark.slow
def test_a_penalty_leaves_the_best_of_a_penalised_likelihood():
    weight = 0.05
    couplings, _ = trained("jax", 1500, l1=weight)
    near = Ising(3, 1.0).couplings() > 0
    far = ~near & ~np.eye(9, dtype=bool)
    assert np.abs(couplings[far]).mean() < 0.7 * np.abs(WANTED[far]).mean()
    assert 0.05 < couplings[near].min() and couplings[near].mean() < WANTED[near].mean()
    # Where a coupling is not 0, data and model differ by the weight in E[x_i x_j], elsewhere by less.
    systems = 2.0 * (np.arange(512)[:, None] >> np.arange(9) & 1) - 1
    paid = ((systems @ couplings) * systems).sum(1)
    law = np.exp(paid - np.logaddexp.reduce(paid))
    seen = ENV.observed().spins.astype(np.float64)
    gap = seen.T @ seen / len(seen) - (systems * law[:, None]).T @ systems
    large = np.abs(couplings) > 0.01
    assert (large & far).any()
    np.testing.assert_allclose(gap[large], weight * np.sign(couplings[large]), atol=0.02)
    assert np.abs(gap).max() < weight + 0.02
