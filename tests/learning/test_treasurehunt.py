"""Agents in the treasure hunt learn to gather: their score against that of random agents, in both modes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from twinax import conf
from twinax.engines import make_engine

LAST = 50


def scores(mode: str, seed: int, epochs: int) -> tuple[np.ndarray, float]:
    """The score in each epoch of the default preset, and that of random agents."""
    config = conf.compose(["experiment=treasurehunt", "evaluation.film=false", "evaluation.num_envs=64"])
    engine = make_engine(conf.build_problem(config), mode=mode, chunk=config.trainer.chunk)
    engine.start(seed)
    return np.concatenate([engine.run(10)["score"] for _ in range(epochs // 10)]), engine.evaluate()["score_random"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_default_preset_learns_within_three_minutes(seed):
    began = time.perf_counter()
    found, chance = scores("jax", seed, 600)
    assert time.perf_counter() - began < 180
    assert chance > 0, "three times a negative score would show nothing"
    assert found[-LAST:].mean() > 3 * chance
    assert found[-LAST:].mean() > 3 * found[:LAST].mean(), "it is learned on the way, not there at first"


@pytest.mark.slow
def test_both_modes_have_one_learning_curve():
    epochs, seeds = 200, (0, 1, 2)
    # Means of blocks of epochs: (seeds, blocks) for each mode.
    jax, torch = (
        np.stack([scores(mode, seed, epochs)[0].reshape(-1, LAST).mean(1) for seed in seeds])
        for mode in ("jax", "torch")
    )
    assert (jax[:, -1] > jax[:, 0] + 20).all(), "they must learn within this time, or the test shows nothing"
    # The difference of two means of three: t(1 - 0.05 / 8, 4) = 4.31 holds for all four blocks at once.
    spread = np.sqrt((jax.var(0, ddof=1) + torch.var(0, ddof=1)) / len(seeds))
    assert (np.abs(jax.mean(0) - torch.mean(0)) < 4.31 * np.maximum(spread, 1.0)).all(), (jax, torch)
