"""Further rewards of the hypergrid: golden partition functions, exact levels, modes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from twinax.envs import Cosine, Deceptive, GridReward, GridState, Hypergrid, Sparse, Tiers, check_env
from twinax.errors import TwinaxError


def cells(dim: int, side: int) -> GridState:
    position = np.indices((side,) * dim).reshape(dim, -1).T.astype(np.int32)
    return GridState(position, np.ones(len(position), bool))


GOLDEN = {
    Cosine(0.1, 0.5): (6.654276304, 30.065093661, 47.141496565, 16_102.001946386),
    Deceptive(1e-5, 0.1, 2.0): (10.80064, 19.20256, 46.404, 9_960.0),
    Sparse(1e-6): (3.000064, 3.000256, 3.0004, 15.16),
}


@pytest.mark.parametrize("reward", GOLDEN, ids=lambda reward: type(reward).__name__)
def test_golden_partition_functions(reward):
    for (dim, side), wanted in zip(((2, 8), (2, 16), (2, 20), (4, 20)), GOLDEN[reward], strict=True):
        z = math.fsum(np.exp(Hypergrid(dim, side, reward).log_reward(cells(dim, side))))
        assert z == pytest.approx(wanted, rel=2e-10), (dim, side)


def test_the_deceptive_grid_of_sixteen_to_the_fourth():
    z = math.fsum(np.exp(Hypergrid(4, 16, Deceptive()).log_reward(cells(4, 16))))
    assert z == pytest.approx(4_512.65536, rel=1e-10)


@pytest.mark.parametrize("side", [2, 5, 11, 20, 21, 31, 101])
def test_levels_of_the_deceptive_grid_are_those_of_rational_arithmetic(side):
    tiers = Deceptive().tiers(np.arange(side)[:, None], side).tolist()
    for s in range(side):
        a = abs(Fraction(s, side - 1) - Fraction(1, 2))
        assert tiers[s] == int(a > Fraction(1, 10)) + int(Fraction(3, 10) < a < Fraction(4, 10)), (side, s)


def test_modes_of_waves_are_cells_above_the_threshold_grouped_by_peaks():
    for side in (8, 16, 20):
        assert Hypergrid(2, side, Cosine()).num_modes == 0
    for dim, side, high in ((2, 32, 12), (2, 64, None), (3, 40, None)):
        env, state = Hypergrid(dim, side, Cosine()), cells(dim, side)
        threshold = 0.1 + 0.5 * (0.8 * 2 / math.sqrt(2 * math.pi)) ** dim
        wanted = np.exp(env.log_reward(state)) >= threshold
        mode = env.mode(state)
        np.testing.assert_array_equal(mode >= 0, wanted)
        assert high is None or wanted.sum() == high
        assert sorted(set(mode.tolist()) - {-1}) == list(range(env.num_modes))
        # Cells of one mode lie together.
        for number in range(env.num_modes):
            position = state.position[mode == number]
            assert (np.ptp(position, axis=0) < side / 8).all()


def test_modes_of_the_deceptive_and_the_sparse_grid():
    env, state = Hypergrid(2, 16, Deceptive()), cells(2, 16)
    reward = env.log_reward(state)
    np.testing.assert_array_equal(env.mode(state) >= 0, reward == reward.max())
    assert env.num_modes == 4 and set(env.mode(state).tolist()) == {-1, 0, 1, 2, 3}
    assert Hypergrid(2, 5, Deceptive()).num_modes == 0
    sparse = Hypergrid(3, 6, Sparse())
    found = cells(3, 6).position[sparse.mode(cells(3, 6)) >= 0]
    assert sparse.num_modes == len(found) == 7 and set(found.ravel().tolist()) == {1, 4}
    assert [1, 1, 1] not in found.tolist()


def test_tables_of_levels_say_what_the_rules_say():
    axis = np.arange(8)[:, None]
    bands = GridReward(0.1, 0.5, 2.0)
    by_axis = Tiers(tuple(bands.tiers(axis, 8).tolist()), (0.1, 0.6, 2.6))
    deceptive = Tiers(tuple(Deceptive().tiers(axis, 8).tolist()), (0.10001, 1e-5, 2.00001))
    state = cells(3, 8)
    for table, rule in ((by_axis, bands), (deceptive, Deceptive())):
        one, other = Hypergrid(3, 8, table), Hypergrid(3, 8, rule)
        np.testing.assert_allclose(one.log_reward(state), other.log_reward(state), rtol=1e-12)
        assert one.num_modes == other.num_modes == 8
        np.testing.assert_array_equal(one.mode(state) >= 0, other.mode(state) >= 0)


def test_a_table_of_cells_can_be_anything():
    parity = Tiers(tuple((np.indices((4, 4)).sum(0) % 2).ravel().tolist()), (1.0, 3.0))
    env = Hypergrid(2, 4, parity)
    np.testing.assert_allclose(np.exp(env.log_reward(cells(2, 4))).reshape(4, 4)[:2, :2], [[1, 3], [3, 1]])
    assert env.num_modes == 0
    check_env(env)


@pytest.mark.parametrize("reward", [Cosine(), Deceptive(), Sparse(), Tiers((0, 1, 2, 1), (0.5, 1.0, 2.0))])
def test_every_framework_agrees(reward):
    check_env(Hypergrid(2, 4, reward))


def test_modes_are_the_same_in_every_framework():
    import jax.numpy as jnp
    import torch

    for reward in (Cosine(), Deceptive(), Sparse(), Tiers((0, 1) * 16, (0.5, 1.0))):
        env, state = Hypergrid(2, 32, reward), cells(2, 32)
        wanted = env.mode(state)
        for convert in (jnp.asarray, torch.from_numpy):
            np.testing.assert_array_equal(np.asarray(env.mode(GridState(*map(convert, state)))), wanted)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Cosine(r0=0.0), "r0 of Cosine is 0.0; it must be finite and above 0"),
        (lambda: Deceptive(r2=float("nan")), "r2 of Deceptive is nan"),
        (lambda: Hypergrid(2, 3, Sparse()), "side is 3; make it at least 4"),
        (lambda: Tiers((0, 2), (1.0, 2.0)), "levels has the level 2, but rewards has 2 levels"),
        (lambda: Tiers((), (1.0,)), "levels is empty"),
        (lambda: Tiers((0, 1), (1.0, 0.0)), "gives level 1 the reward 0.0"),
        (
            lambda: Hypergrid(2, 4, Tiers((0, 1, 1), (1.0, 2.0))),
            "3 entries on a grid .* give 4, .* or 16",
        ),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(TwinaxError, match=words):
        make()
