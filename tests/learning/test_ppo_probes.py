"""PPO learns the probe worlds: its critic against values in closed form, which a wrong bootstrap misses by far."""

from __future__ import annotations

import numpy as np
import pytest

from twinax.engines import make_engine
from twinax.envs import PROBES
from twinax.envs._probes import Probe
from twinax.optimizer import Optimizer
from twinax.ppo import problem

pytestmark = pytest.mark.usefixtures("quick_compilation")

GAMMA, TRACE = 0.9, 0.95
ITERATIONS, WORLDS, EPOCHS, MINIBATCHES = 100, 16, 4, 4
# Whole episodes of every probe with a time limit.
STEPS = 15
SMALL: dict = {
    "hidden": (16, 16),
    "num_envs": WORLDS,
    "num_steps": STEPS,
    "num_epochs": EPOCHS,
    "num_minibatches": MINIBATCHES,
}
FALLING = Optimizer(learning_rate=1e-2, eps=1e-5, clip_norm=0.5, decay_steps=ITERATIONS * EPOCHS * MINIBATCHES)


def learned(world: Probe, seen: list[float], advantage: str = "gae") -> tuple[np.ndarray, np.ndarray]:
    """What the critic says after a training, and what is true, of some observations."""
    settings = {**SMALL, "value_clip": 0.0, "ent_coef": 0.0, "gamma": GAMMA, "gae_lambda": TRACE}
    settings["normalise_rewards"] = False  # values are known of rewards as they are
    subject = problem(world, optimizer=FALLING, advantage=advantage, film=False, **settings)
    engine = make_engine(subject, mode="jax", chunk=100)
    engine.start(0)
    engine.run(ITERATIONS)
    rows = np.array(seen)[:, None]
    return np.asarray(engine.state().networks["agent"].value(rows.astype(np.float32))), world.value(rows, GAMMA)


@pytest.mark.parametrize(
    ("name", "seen", "miss"),
    [
        ("endless", [0], 0.01),
        ("far_restart", [-1, 1], 0.01),
        pytest.param("constant_reward", [0], 0.001, marks=pytest.mark.slow),
        pytest.param("seen_reward", [-1, 1], 0.001, marks=pytest.mark.slow),
        pytest.param("delayed_reward", [0, 1], 0.001, marks=pytest.mark.slow),
        # Ends are drawn: the last minibatches have a few more or fewer than their share.
        pytest.param("random_end", [0], 0.1, marks=pytest.mark.slow),
        pytest.param("choice", [-1, 1], 0.001, marks=pytest.mark.slow),
        pytest.param("aim", [-1, 1], 0.005, marks=pytest.mark.slow),
    ],
)
def test_the_critic_learns_what_a_probe_is_worth(name, seen, miss):
    found, value = learned(PROBES[name](), seen)
    np.testing.assert_allclose(found, value, rtol=0, atol=miss)


def cut_short(limit: int) -> float:
    """What `endless` seems to be worth when its time limit is taken for an end.

    Every step looks alike, so the critic is the V at which advantages are 0 in the mean: of a step with k steps left
    A = sum over i < k - 1 of (gamma lambda)^i (1 + gamma V - V) + (gamma lambda)^(k - 1) (1 - V).
    """
    decay = GAMMA * TRACE
    paid = sum(decay**i for k in range(1, limit + 1) for i in range(k))
    held = sum(decay**i * (1 - GAMMA * (i < k - 1)) for k in range(1, limit + 1) for i in range(k))
    return paid / held


def test_a_time_limit_taken_for_an_end_is_learned_as_one():
    found, value = learned(PROBES["endless"](), [0], advantage="cleanrl")
    wrong = cut_short(PROBES["endless"]().time_limit)
    np.testing.assert_allclose(found, wrong, atol=0.01)
    assert value[0] == pytest.approx(10) and wrong < 3
