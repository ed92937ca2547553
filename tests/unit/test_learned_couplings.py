"""Couplings that are learned: data that are read or refused, what is paid, and how a fit is judged."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import twinax as tx
from twinax.envs import Ising, LearnedCouplings, PlainSpins, Sets, Spins, SpinState, check_env
from twinax.errors import TwinaxError

SPINS = np.array([[1, -1, 1, 1], [-1, -1, 1, 1], [1, 1, 1, 1]])
MATRIX = np.array([[0.0, 0.5, 0.0, 0.1], [0.3, 0.0, 0.0, 0.0], [0.0, 0.2, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def everything(places: int) -> SpinState:
    bits = np.array(list(itertools.product([-1, 1], repeat=places)), np.int32)
    return SpinState(bits, np.ones(len(bits), bool))


def test_every_kind_of_file_says_the_same(tmp_path):
    np.save(tmp_path / "spins.npy", SPINS)
    np.savetxt(tmp_path / "spins.csv", SPINS, fmt="%d", delimiter=",")
    (tmp_path / "named.csv").write_text("a,b,c,d\n" + (tmp_path / "spins.csv").read_text())
    np.savez(tmp_path / "spins.npz", spins=SPINS.astype(np.int8))
    for name in ("spins.npy", "spins.csv", "named.csv", "spins.npz"):
        reward = LearnedCouplings(str(tmp_path / name))
        env = Ising(2).with_reward(reward)
        np.testing.assert_array_equal(env.observed().spins, SPINS)
        assert env.observed().done.all() and env.files == (tmp_path / name,)
        assert reward.true_couplings(env) is None, "where data come from is not guessed from the world"
    assert LearnedCouplings(SPINS) == LearnedCouplings(SPINS.tolist()) and len({LearnedCouplings(SPINS)}) == 1


def test_true_couplings_are_known_by_three_ways(tmp_path):
    wanted = (MATRIX + MATRIX.T) / 2
    np.savez(tmp_path / "both.npz", spins=SPINS, couplings=MATRIX + np.diag([5.0, 0, 0, 0]))
    np.save(tmp_path / "j.npy", MATRIX)
    known = (
        LearnedCouplings(str(tmp_path / "both.npz")),
        LearnedCouplings(SPINS, str(tmp_path / "j.npy")),
        LearnedCouplings(SPINS, MATRIX),
    )
    for reward in known:
        np.testing.assert_allclose(reward.true_couplings(Ising(2).with_reward(reward)), wanted)
    simulated = Spins.of(MATRIX).with_reward(LearnedCouplings(samples=3))
    np.testing.assert_allclose(simulated.reward.true_couplings(simulated), wanted)


def test_simulated_data_follow_the_worlds_law_and_the_seed():
    world = Ising(3, sigma=0.15, field=0.1)
    state = everything(9)
    law = np.exp(world.log_reward(state) - world.log_partition)
    number = 20_000
    env = world.with_reward(LearnedCouplings(samples=number, seed=3))
    drawn = env.observed().spins
    for mine, exact in ((drawn.sum(1), state.spins.sum(1)), (world.neighbours(drawn), world.neighbours(state.spins))):
        mean = law @ exact
        assert abs(mine.mean() - mean) < 4 * np.sqrt(law @ (exact - mean) ** 2 / number)
    again, other = (world.with_reward(LearnedCouplings(samples=9, seed=seed)).observed().spins for seed in (3, 4))
    np.testing.assert_array_equal(again, world.with_reward(LearnedCouplings(samples=9, seed=3)).observed().spins)
    assert (again != other).any()
    # Too many spins to look at all systems.
    assert Ising(5).with_reward(LearnedCouplings(samples=7)).observed().spins.shape == (7, 25)


def test_rules_and_reward_fit_together():
    env = Ising(2, 0.3, 0.1).with_reward(LearnedCouplings(SPINS))
    assert check_env(env).frameworks == ("numpy", "jax", "torch")
    state = everything(4)
    # Before anything is learned the world's fields alone pay.
    np.testing.assert_allclose(env.log_reward(state), 0.1 * state.spins.sum(1), rtol=1e-6)
    learned = env.given({**env.constants(), "learned_couplings": MATRIX + np.diag([3.0, 1.0, 0.0, 2.0])})
    paid = [sum(MATRIX[i, j] * x[i] * x[j] for i in range(4) for j in range(4)) + 0.1 * x.sum() for x in state.spins]
    np.testing.assert_allclose(learned.log_reward(state), paid, rtol=1e-12, atol=1e-12)
    assert learned.log_partition == pytest.approx(float(np.logaddexp.reduce(paid)), abs=1e-12)
    assert env.log_partition != learned.log_partition


def test_any_number_of_spins_will_do():
    env = PlainSpins(3).with_reward(LearnedCouplings(np.array([[1, 1, -1], [1, 1, 1]])))
    assert check_env(env).done == 8 and env.log_partition == pytest.approx(3 * np.log(2))


def test_measures_are_those_of_a_slow_loop():
    fields = np.array([0.2, 0.0, -0.3, 0.1])
    env = Spins.of(MATRIX, fields).with_reward(LearnedCouplings(SPINS, 2 * MATRIX))
    half = (MATRIX + MATRIX.T) / 2
    found = env.given({**env.constants(), "learned_couplings": half}).measures(everything(4), np.full(16, 1 / 16))

    def paid(x):
        return float(x @ half @ x + fields @ x)

    log_z = np.logaddexp.reduce([paid(x) for x in everything(4).spins])
    assert found["data_log_likelihood"] == pytest.approx(np.mean([paid(x) for x in SPINS]) - log_z, abs=1e-12)
    alone = 0.0
    for x in SPINS:
        for place in range(4):
            flipped = x.copy()
            flipped[place] *= -1
            alone += paid(x) - np.logaddexp(paid(x), paid(flipped))
    assert found["pseudo_likelihood"] == pytest.approx(alone / len(SPINS), abs=1e-12)
    # The true J is twice this one, so the error is as large as it is.
    assert found["coupling_accuracy"] == pytest.approx(-np.log(np.sqrt(np.mean(half**2))))
    np.testing.assert_array_equal(found["picture/couplings/learned"], half)
    np.testing.assert_array_equal(found["picture/couplings/true"], 2 * half)
    assert {name for name in found if "/" not in name} <= set(env.titles)
    assert {"magnetisation", "coupling_accuracy"} <= set(Ising(2).with_reward(LearnedCouplings(SPINS)).titles)
    assert "couplings" in env.pictures


def test_what_cannot_be_known_is_left_out():
    env = Ising(5).with_reward(LearnedCouplings(np.ones((2, 25))))
    found = env.measures(env.observed(), np.full(2, 0.5))
    assert "data_log_likelihood" not in found and "coupling_accuracy" not in found and env.log_partition is None
    assert found["pseudo_likelihood"] == pytest.approx(25 * np.log(0.5))


def write(path, content):
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda at: LearnedCouplings(str(at / "no.npz")), r"no\.npz cannot be read: No such file"),
        (lambda at: LearnedCouplings(str(at / "no.npy")), r"no\.npy cannot be read: No such file"),
        (lambda at: LearnedCouplings(str(at / "no.csv")), r"no\.csv cannot be read as CSV: No such file"),
        (lambda at: LearnedCouplings(write(at / "a.npy", b"1,-1")), "is no npy file of numbers"),
        (lambda at: LearnedCouplings(write(at / "a.npz", b"1,-1")), "this is no npz file"),
        (lambda at: LearnedCouplings(write(at / "a.csv", b"1,-1\n1\n")), "has 1 columns in row 1, counted from 0"),
        (lambda at: LearnedCouplings(write(at / "b.csv", b"1,-1\n1,up\n")), "has 'up' in row 1"),
        (lambda at: LearnedCouplings(SPINS * 0.5), "has 0.5 in row 0, column 0, counted from 0; spins are -1 or 1"),
        (lambda at: LearnedCouplings((SPINS + 1) // 2), "of zeros and ones, 2 x - 1 makes spins"),
        (lambda at: LearnedCouplings(np.where(SPINS > 0, np.nan, -1.0)), "has nan in row 0, column 0"),
        (lambda at: LearnedCouplings(SPINS[:1]), r"shape \(1, 4\); it must be a table of at least 2 systems"),
        (lambda at: LearnedCouplings(SPINS[0]), r"shape \(4,\)"),
        (lambda at: LearnedCouplings([["up", "down"]] * 2), "no table of numbers"),
        (lambda at: LearnedCouplings([[1, -1], [1]]), "data is no table of numbers"),
        (lambda at: LearnedCouplings(SPINS, np.zeros((3, 3))), r"\(3, 3\), but the data have 4 spins"),
        (lambda at: LearnedCouplings(SPINS, np.full((4, 4), np.inf)), "not finite"),
        (lambda at: LearnedCouplings(couplings=MATRIX), "no data were given"),
        (lambda at: LearnedCouplings(samples=1), "samples is 1; it must be at least 2"),
        (lambda at: LearnedCouplings(seed=-1), "seed is -1"),
        (
            lambda at: tx.gflownet.problem(Ising(3).with_reward(LearnedCouplings(SPINS))),
            "the data have 4 columns, but the world has 9 spins",
        ),
        (lambda at: tx.gflownet.problem(PlainSpins(3).with_reward(LearnedCouplings())), "no couplings of its own"),
        (lambda at: tx.gflownet.problem(PlainSpins(3)).init(0) and PlainSpins(3).log_reward(None), "has no reward"),
        (lambda at: PlainSpins(1), "number is 1; it must be at least 2"),
        (lambda at: tx.gflownet.problem(Sets(4, 2).with_reward(LearnedCouplings(SPINS))), "Sets has none"),
    ],
)
def test_what_is_no_data_is_said_in_a_sentence(make, words, tmp_path):
    with pytest.raises(TwinaxError, match=words):
        make(tmp_path)


def test_an_npz_without_spins_is_said(tmp_path):
    np.savez(tmp_path / "x.npz", samples=SPINS)
    with pytest.raises(TwinaxError, match="has no array 'spins'"):
        LearnedCouplings(str(tmp_path / "x.npz"))
