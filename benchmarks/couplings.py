"""How near learned couplings come to the likeliest ones, by how many steps back a fake is made.

    python benchmarks/couplings.py     # writes .cache/benchmarks/couplings.json
    python benchmarks/figures.py       # puts the table into docs/worlds_lattice.md

A torus of 3 x 3 spins with sigma 0.2 is small enough for the likeliest couplings of its 2,000 systems to be known, by
Newton's method over all 512. The last row accepts by the ratio with all policies' terms turned round, as two public
programs do.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import twinax as tx
from twinax.engines import make_engine
from twinax.gflownet import EnergyOptions, PolicyOptions, _local_search

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"

UPDATES = 1500
ENV = tx.envs.Ising(3, sigma=0.2).with_reward(tx.envs.LearnedCouplings(samples=2000))


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Root of the mean square of the differences."""
    return float(np.sqrt(np.mean(np.square(one - other))))


def trained(steps: int, likeliest: np.ndarray) -> dict[str, float]:
    """One training with so many steps back, judged."""
    problem = tx.gflownet.problem(
        ENV,
        batch_size=128,
        policy=PolicyOptions(hidden=(128, 128), backward="uniform"),
        optimizer=tx.Optimizer(
            learning_rate=3e-3, rates={"log_z": 0.1, "energy": 5e-3}, decay_steps=UPDATES, decay_to=0.01
        ),
        energy=EnergyOptions(steps=steps),
    )
    engine = make_engine(problem, mode="jax", chunk=300)
    engine.start(0)
    acceptance = engine.run(UPDATES)["acceptance"]
    found = engine.evaluate()
    couplings = engine.state().networks.energy["learned_couplings"]
    names = ("coupling_accuracy", "data_log_likelihood", "total_variation")
    return {
        "steps": steps or ENV.max_steps,
        "acceptance": float(acceptance[-UPDATES // 5 :].mean()),
        "to_likeliest": distance(couplings, likeliest),
        **{name: float(found[name]) for name in names},
    }


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "unit"))
    from exact_couplings import likeliest_couplings

    likeliest = likeliest_couplings(ENV.observed().spins.astype(np.float64))
    true = ENV.reward.true_couplings(ENV)
    best = ENV.given({**ENV.constants(), "learned_couplings": likeliest}).measures(ENV.observed(), np.full(2000, 5e-4))
    rows = [trained(steps, likeliest) for steps in (1, 3, 6, 0)]
    honest = _local_search.accept_log_ratio
    _local_search.accept_log_ratio = lambda old, new: 2 * (new.log_reward - old.log_reward) - honest(old, new)
    turned = trained(3, likeliest)
    CACHE.mkdir(parents=True, exist_ok=True)
    results = {
        "updates": UPDATES,
        "rows": rows,
        "turned": turned,
        "likeliest": {"to_true": distance(likeliest, true), "data_log_likelihood": best["data_log_likelihood"]},
    }
    (CACHE / "couplings.json").write_text(json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
