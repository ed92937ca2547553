"""Worlds of many actions, drawn by levels, and worlds whose trajectories all have one length."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from twinax import ops, parity
from twinax.envs import Hypergrid, check_env
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions, problem
from twinax.gflownet._exploration import action_draws, sample_actions

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

PLACES, WORDS, ROWS = 9, 8, 200_000
FRAMEWORKS = {"numpy": np.asarray, "torch": torch.as_tensor, "jax": jnp.asarray}


def given(shape, seed=0):
    rng = np.random.default_rng(seed)
    logits = np.repeat(3 * rng.standard_normal((1, PLACES * WORDS)), ROWS, 0)
    mask = rng.random(PLACES * WORDS) < 0.4
    mask[:WORDS] = False  # a place without any word
    return logits, np.repeat(mask[None], ROWS, 0), rng.random((ROWS, len(shape))), np.ones(ROWS)


@pytest.mark.parametrize("shape", [(PLACES, WORDS), (PLACES * WORDS,)], ids=["two levels", "one level"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_actions_by_levels_have_the_policy_s_distribution(shape, temperature):
    logits, mask, uniform, explore = given(shape)
    actions = sample_actions(logits, mask, uniform, explore, 0.0, temperature, shape)
    wanted = ops.softmax(logits[:1] / temperature, mask[:1])[0]
    frequencies = np.bincount(actions, minlength=PLACES * WORDS) / ROWS
    assert (frequencies[~mask[0]] == 0).all()
    np.testing.assert_allclose(frequencies, wanted, atol=5 * np.sqrt(0.25 / ROWS))


def test_exploring_is_uniform_over_what_is_allowed():
    shape = (PLACES, WORDS)
    logits, mask, uniform, _ = given(shape)
    actions = sample_actions(logits, mask, uniform, np.zeros(ROWS), 1.0, 1.0, shape)
    frequencies = np.bincount(actions, minlength=PLACES * WORDS) / ROWS
    np.testing.assert_allclose(frequencies, mask[0] / mask[0].sum(), atol=5 * np.sqrt(0.25 / ROWS))


@pytest.mark.parametrize("shape", [(PLACES, WORDS), (PLACES * WORDS,)], ids=["two levels", "one level"])
def test_equal_draws_give_equal_actions_in_every_framework(shape):
    results = [
        np.asarray(
            sample_actions(
                *(make(np.float32(x) if x.dtype == float else x)[:5000] for x in given(shape)), 0.0, 1.0, shape
            )
        )
        for make in FRAMEWORKS.values()
    ]
    assert (results[0] == results[1]).mean() > 0.9999 and (results[0] == results[2]).mean() > 0.9999
    assert (results[0] < PLACES * WORDS).all()


def test_rows_at_the_edges():
    """Nothing allowed gives some action; one allowed gives that one, whatever the draw and the temperature."""
    shape, rows = (PLACES, WORDS), 4
    logits = np.full((rows, PLACES * WORDS), -50.0, np.float32)
    mask = np.zeros((rows, PLACES * WORDS), bool)
    mask[1:, 40] = True
    draws = np.array([[0.5, 0.5], [2.0**-24, 2.0**-24], [1 - 2.0**-24, 1 - 2.0**-24], [0.5, 0.5]], np.float32)
    with np.errstate(all="raise"):
        actions = sample_actions(logits, mask, draws, np.ones(rows), 0.0, 1e-6, shape)
    assert 0 <= actions[0] < PLACES * WORDS and (actions[1:] == 40).all()


def test_few_actions_have_a_number_each_and_many_one_for_each_level():
    assert action_draws(64, (64,)) == 64 and action_draws(65, (65,)) == 1 and action_draws(3840, (15, 256)) == 2
    wide = problem(BitStrings(40), batch_size=4)
    assert wide.draws()["action"].shape == (40, 4, 2)
    assert problem(Hypergrid(2, 3), batch_size=4).draws()["action"].shape == (5, 4, 3)


def test_a_wide_world_of_one_length_is_proven_in_every_mode():
    wide = problem(
        BitStrings(33),
        "detailed_balance",
        batch_size=3,
        policy=PolicyOptions(hidden=(8,)),
        metrics=MetricOptions(fifo=10, samples=4, exact_limit=0),
    )
    assert wide.compile.sizes == (), "nothing is ragged"
    parity.check(wide, steps=2).raise_if_different()


def test_what_is_said_of_lengths_and_shapes_is_checked():
    class Ragged(Hypergrid):
        fixed_length = True

    with pytest.raises(TwinaxError, match="fixed_length says 5 actions for every trajectory, not 1"):
        check_env(Ragged(2, 3))
    with pytest.raises(TwinaxError, match="fixed_length says 77 actions for every trajectory"):
        check_env(Ragged(4, 20), limit=100)

    class Odd(BitStrings):
        action_shape = (3, 3)

    with pytest.raises(TwinaxError, match=r"action_shape of Odd is \(3, 3\)"):
        check_env(Odd(3))
