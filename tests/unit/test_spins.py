"""Spins: golden partition functions by two ways, rules, exact moments, samples against them, bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from twinax.envs import Ising, Spins, SpinState, check_env, enumerate_states, sample_spins
from twinax.envs._ising_partition import torus_log_partition
from twinax.errors import TwinaxError

GOLDEN = {
    3: (6.669744604, 8.456456374, 6.555564632, None, 9.010260941, 16.541695727),
    4: (11.771470359, 14.561093024, 11.771470359, 14.561093024, 15.504726539, 28.868067938),
    6: (26.44494918, 32.05729491, 26.44494918, 32.05729491, 34.07408067, 64.08669014),
    9: (59.49704979, 71.51272316, 59.49694212, 70.99844967, 75.86391374, 143.32861870),
    10: (73.45309780, 88.18770062, 73.45309780, 88.18770062, 93.50906646, 176.78632189),
}
SIGMAS = (0.1, 0.2, -0.1, -0.2, 0.22, 0.44)


@pytest.mark.parametrize("side", GOLDEN)
def test_golden_partition_functions(side):
    for sigma, wanted in zip(SIGMAS, GOLDEN[side], strict=True):
        if wanted is not None and (side < 10 or sigma in (0.1, 0.44)):
            assert Ising(side, sigma).log_partition == pytest.approx(wanted, abs=1e-8)


def everything(places: int) -> SpinState:
    bits = np.arange(2**places)[:, None] >> np.arange(places) & 1
    return SpinState((2 * bits - 1).astype(np.int32), np.ones(2**places, bool))


@pytest.mark.parametrize("side", [2, 3, 4])
@pytest.mark.parametrize(("sigma", "field"), [(0.1, 0.0), (0.2, 0.3), (-0.2, -0.1), (2.0, 0.0), (-3.0, 0.0)])
def test_the_transfer_matrix_says_what_summing_says(side, sigma, field):
    env = Ising(side, sigma, field)
    log_reward = env.log_reward(everything(side**2))
    assert np.logaddexp.reduce(log_reward) == pytest.approx(env.log_partition, rel=1e-12)


def test_neighbours_on_a_side_of_two_count_once():
    assert Ising(2, 0.1).log_partition == pytest.approx(2.853577508, abs=1e-9)
    # All of 2^9 states are beyond the range of float64 below the best rows: no number is better than -inf.
    assert Ising(3, -300.0).log_partition is None


MOMENTS = {
    (3, 0.1): (4.842892, 5.701166, 0.459977),
    (4, 0.1): (7.298166, 10.311837, 0.342766),
    (4, 0.2): (22.065864, 5.734748, 0.764712),
}


def moments(side: int, sigma: float):
    """Sum over edges of s s', entropy, |m|: exact, by summing."""
    env, state = Ising(side, sigma), everything(side**2)
    log_reward = env.log_reward(state)
    p = np.exp(log_reward - env.log_partition)
    shown = env.measures(state, p)
    edges = float(p @ env.neighbours(state.spins)) / 2
    assert shown["agreement"] == pytest.approx(edges / (2 * side**2))
    return edges, float(p @ (env.log_partition - log_reward)), shown["magnetisation"]


@pytest.mark.parametrize(("side", "sigma"), MOMENTS)
def test_golden_moments(side, sigma):
    np.testing.assert_allclose(moments(side, sigma), MOMENTS[side, sigma], atol=6e-7)


def test_rules_fit_together():
    report = check_env(Ising(2, 0.3, 0.1))
    assert (report.states, report.done, report.edges, report.longest) == (81, 16, 4 * 2 * 27, 4)
    assert report.frameworks == ("numpy", "jax", "torch")
    graph = enumerate_states(Ising(3))
    assert len(graph.done) == Ising(3).num_states == 19_683
    assert graph.log_z == pytest.approx(6.669744604, abs=1e-9)


@pytest.mark.parametrize("env", [Ising(5), pytest.param(Ising(9), marks=pytest.mark.slow)], ids=repr)
def test_large_systems_are_walked(env):
    assert not check_env(env, limit=500).enumerated


def test_couplings_of_any_kind():
    rng = np.random.default_rng(0)
    couplings, fields = rng.normal(size=(4, 4)) / 2, rng.normal(size=4) / 2
    env = Spins.of(couplings, fields)
    check_env(env)
    paid = [
        sum(couplings[i, j] * x[i] * x[j] for i in range(4) for j in range(4) if i != j) + fields @ np.array(x)
        for x in itertools.product([-1, 1], repeat=4)
    ]
    assert enumerate_states(env).log_z == pytest.approx(float(np.logaddexp.reduce(paid)), abs=1e-12)
    # What is on the diagonal would only be a constant of finished systems, and pay early on the way.
    assert env == Spins.of(couplings, fields) and hash(env) == hash(Spins.of(couplings, fields))
    assert env != Spins.of(couplings)


def test_ising_is_a_case_of_couplings(double_precision):
    import jax.numpy as jnp
    import torch

    spins = np.random.default_rng(0).integers(-1, 2, (20, 25)).astype(np.int32)
    state = SpinState(spins, (spins != 0).all(1))
    one, other = Ising(5, 0.17, 0.3), Spins.of(Ising(5, 0.17).couplings(), np.full(25, 0.3))
    wanted = one.log_reward(state)
    for convert in (np.asarray, jnp.asarray, torch.from_numpy):
        for env in (one, other):
            np.testing.assert_allclose(env.log_reward(SpinState(*map(convert, state))), wanted, rtol=1e-12, atol=1e-12)


def test_samples_have_the_exact_moments():
    number = 2_000
    for side, sigma in ((3, 0.1), (4, 0.2)):
        env = Ising(side, sigma)
        x = sample_spins(env, number, seed=1, sweeps=60, chains=500, every=10)
        p = np.exp(env.log_reward(everything(side**2)) - env.log_partition)
        own = env.neighbours(x) / 2, np.abs(x.mean(1))
        all_x = everything(side**2).spins
        for mine, exact in zip(own, (env.neighbours(all_x) / 2, np.abs(all_x.mean(1))), strict=True):
            mean = p @ exact
            deviation = math.sqrt(p @ exact**2 - mean**2)
            assert abs(mine.mean() - mean) < 4 * deviation / math.sqrt(number)


def test_samples_of_a_torus_that_can_not_be_summed_agree_with_its_partition_function():
    """The derivative of log Z by sigma is E[x^T A x]: near the transition too, where single spins hardly move."""
    step, number = 1e-4, 500
    for sigma, field in ((0.22, 0.02), (-0.1, 0.1)):
        x = sample_spins(Ising(6, sigma, field), number, seed=2, sweeps=150, chains=250, every=40)
        mine = Ising(6, sigma).neighbours(x)
        coupled = torus_log_partition(6, sigma + step, field) - torus_log_partition(6, sigma - step, field)
        assert abs(mine.mean() - coupled / (2 * step)) < 4 * mine.std() / math.sqrt(number)
        magnetisation = x.sum(1)
        pulled = torus_log_partition(6, sigma, field + step) - torus_log_partition(6, sigma, field - step)
        assert abs(magnetisation.mean() - pulled / (2 * step)) < 4 * magnetisation.std() / math.sqrt(number)


def test_samples_follow_from_the_seed():
    env = Ising(3)
    one, other = (sample_spins(env, 7, seed=seed, sweeps=3, chains=4) for seed in (0, 1))
    np.testing.assert_array_equal(one, sample_spins(env, 7, seed=0, sweeps=3, chains=4))
    assert one.shape == (7, 9) and set(one.ravel()) == {-1, 1} and (one != other).any()


def test_systems_are_shown():
    spins = np.array([[1, -1, 0, 1]], np.int32)
    assert Ising(2).text(spins, 0) == "+- .+" and Spins.of(np.zeros((4, 4))).text(spins, 0) == "+-.+"
    picture = Ising(2).draw(spins, 0)
    assert picture.shape == (160, 160, 3) and picture.dtype == np.uint8
    up, down, empty = picture[40, 40, 0], picture[40, 120, 0], picture[120, 40, 0]
    assert up < empty < down
    # Equal spins side by side are parted by a line.
    same = Ising(3).draw(np.ones((1, 9), np.int32), 0)[..., 0]
    middle = len(same) // 6
    assert len(np.flatnonzero(np.diff((same[middle] > same[middle, middle]).astype(int)) == 1)) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ising(1), "side is 1; it must be at least 2"),
        (lambda: Ising(3, float("nan")), "sigma is nan; it must be finite"),
        (lambda: Spins.of([[0.0, 1.0], [0.0]]), "no matrix of numbers"),
        (lambda: Spins.of(np.zeros((2, 3))), "2 rows, one of 3 numbers"),
        (lambda: Spins.of(np.zeros(3)), r"the shape \(3,\)"),
        (lambda: Spins.of(np.zeros((2, 2)), np.zeros(3)), "3 fields for 2 spins"),
        (lambda: Spins.of(np.full((2, 2), np.inf)), "not all finite"),
        (lambda: sample_spins(Ising(3), 0), "number is 0"),
        (lambda: sample_spins(Ising(3), 1, hottest=2.0), "hottest is 2.0"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(TwinaxError, match=words):
        make()
