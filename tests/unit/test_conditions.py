"""What is refused before a GFlowNet is trained: worlds whose rules are broken, and objectives that they cannot have."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from twinax import ops, parity, runs
from twinax.envs import Corners, GridState, Hypergrid, check_env
from twinax.envs.checking import QUICK_LIMIT
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions, ReplayOptions, objectives, problem

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import DIAMOND, BitStrings, LeftToRight, TableWorld
from test_envs import BROKEN, ForgottenParent, NarrowMask, NumpyInside, OtherInTorch, TooLong, WrongModes, WrongPaths

SMALL = {"batch_size": 4, "policy": PolicyOptions(hidden=(8,)), "metrics": MetricOptions(fifo=8, samples=8)}


class NoWayOut(Hypergrid):
    """One cannot stop in cells whose first coordinate is 1."""

    def forward_mask(self, state):
        mask = super().forward_mask(state)
        stop = ops.like(np.arange(self.dim + 1) == self.dim, state.position)[None]
        return mask & ~(stop & (state.position[:, :1] == 1))


class PaidAtTheEnd(BitStrings):
    """Unfinished strings have no reward."""

    def log_reward(self, state):
        return ops.where(state.done, super().log_reward(state), -float("inf"))


class PaidForStopping(Hypergrid):
    """A cell is worth more when one has stopped there."""

    def log_reward(self, state):
        return super().log_reward(state) + ops.cast(state.done, "float32")


# Every training is preceded by the check


@pytest.mark.parametrize("mode", ["torch", "hybrid", "jax"])
def test_training_refuses_a_broken_world_in_every_mode(mode, tmp_path):
    broken = problem(ForgottenParent(2, 4), **SMALL)
    with pytest.raises(TwinaxError, match=r"the backward mask forbids the way back of an allowed .*\[0, 0\].*action 1"):
        runs.train(broken, mode=mode, steps=2, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resuming_refuses_a_broken_world(tmp_path):
    runs.train(problem(Hypergrid(2, 4), **SMALL), mode="torch", steps=2, run_dir=tmp_path, progress=False)
    with pytest.raises(TwinaxError, match="the backward mask forbids the way back"):
        runs.resume(tmp_path, problem(ForgottenParent(2, 4), **SMALL), steps=4, mode="torch")


def test_parity_refuses_a_broken_world():
    with pytest.raises(TwinaxError, match="the backward mask forbids the way back"):
        parity.check(problem(ForgottenParent(2, 4), **SMALL), modes=("torch", "jax"), steps=1)


# The quick form holds the same rules


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_the_quick_check_finds_what_the_long_one_finds(kind):
    with pytest.raises(TwinaxError, match=BROKEN[kind]):
        check_env(kind(2, 4), quick=True)


RARE = (TooLong, WrongPaths, NarrowMask, WrongModes)
"""Rules about the graph as a whole, which walks cannot decide, and those that few states break."""
IN_WALKS = [kind for kind in BROKEN if kind not in RARE]


@pytest.mark.parametrize("kind", IN_WALKS, ids=lambda kind: kind.__name__)
def test_the_quick_check_finds_them_in_large_worlds(kind):
    env = kind(2, 24)
    assert 2 * env.side**2 > QUICK_LIMIT
    with pytest.raises((TwinaxError, IndexError)):
        check_env(env, quick=True)


@pytest.mark.parametrize("mode", ["torch", "jax"])
@pytest.mark.parametrize("env", [Hypergrid(4, 20), BitStrings(40)], ids=["grid", "bits"])
def test_the_check_takes_a_fraction_of_a_second(env, mode):
    import jax
    import torch  # what a training imports anyway

    jax.devices(), torch.zeros(1)
    before = time.process_time()
    problem(env, **SMALL).prove.check(mode)
    assert time.process_time() - before < 0.6  # a third of that on a machine that does nothing else


def test_a_check_is_made_once_for_each_world(monkeypatch):
    from twinax.gflownet import _conditions

    calls = []
    real = _conditions.inspect_env
    monkeypatch.setattr(_conditions, "inspect_env", lambda *a, **k: calls.append(1) or real(*a, **k))
    for name in ("tb", "db", "subtb"):
        problem(Hypergrid(3, 5), name, **SMALL).prove.check("jax")
    assert len(calls) == 1


def test_each_mode_runs_the_rules_in_its_frameworks():
    problem(OtherInTorch(2, 4), **SMALL).prove.check("jax")
    for mode in ("torch", "hybrid"):
        with pytest.raises(TwinaxError, match="log_reward is not the same in torch as in numpy"):
            problem(OtherInTorch(2, 4), **SMALL).prove.check(mode)
    with pytest.raises(TwinaxError, match=r"do not run under jax\.jit"):
        problem(NumpyInside(2, 4), **SMALL).prove.check("jax")


# What an environment is made of


class Undone(NamedTuple):
    position: np.ndarray


class NoDone(Hypergrid):
    def reset(self, batch):
        return Undone(np.zeros((batch, self.dim), np.int32))


class WideSource(Hypergrid):
    def reset(self, batch):
        return GridState(np.zeros((batch, self.dim)), np.zeros(batch, bool))


class ListSource(Hypergrid):
    def reset(self, batch):
        return GridState([[0] * self.dim] * batch, np.zeros(batch, bool))


class OneSource(Hypergrid):
    def reset(self, batch):
        return GridState(np.zeros((1, self.dim), np.int32), np.zeros(batch, bool))


class WideDone(Hypergrid):
    def reset(self, batch):
        return GridState(np.zeros((batch, self.dim), np.int32), np.zeros((batch, 1), bool))


class NoActions(Hypergrid):
    num_actions = 0


class IntegerReward(Hypergrid):
    def log_reward(self, state):
        return ops.sum(state.position, -1)


class EndlessPaths(Hypergrid):
    def log_paths_ratio(self, state):
        return ops.full(state.position.shape, -float("inf"), state.position, "float32")


class FewPaths(Hypergrid):
    def log_paths_ratio(self, state):
        return super().log_paths_ratio(state)[:, :1]


@dataclass(frozen=True)
class Unhashable(Hypergrid):
    extra: list = field(default_factory=list)


ODD = {
    NoDone: "a state of NoDone has no leaf `done`",
    WideSource: r"reset of WideSource gives an array of float64.*; use int32, bool or float32",
    ListSource: r"reset\(3\) of ListSource gives int in its state; it must be NumPy arrays of 3 rows",
    OneSource: r"reset\(3\) of OneSource gives an array of shape \(1, 2\)",
    WideDone: r"`done` of reset\(3\) of WideDone is bool of shape \(3, 1\)",
    NoActions: "num_actions of NoActions is 0; it must be a whole number, at least 1",
    IntegerReward: "log_reward gives int.*; it must be floats",
    EndlessPaths: "log_paths_ratio is not finite for an allowed backward action",
    FewPaths: r"log_paths_ratio gives the shape \(3, 1\), but it must be \(3, 2\)",
    Unhashable: "Unhashable cannot be hashed .*; make it a frozen dataclass",
}


@pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
def test_odd_environments_are_told_in_a_sentence(kind):
    for quick in (False, True):
        with pytest.raises(TwinaxError, match=ODD[kind]):
            check_env(kind(2, 4), quick=quick)


def test_what_is_no_environment_is_refused():
    with pytest.raises(TwinaxError, match="envs.check_env: env is 3; it must be a twinax Environment"):
        check_env(3)


# What objectives ask of states


@pytest.mark.parametrize("env", [NoWayOut(2, 4), NoWayOut(4, 20)], ids=["enumerated", "walked"])
def test_modified_detailed_balance_needs_that_every_state_can_stop(env):
    check_env(env, quick=True)  # the world is sound
    problem(env, "detailed_balance", **SMALL).prove.check("jax")
    words = r"modified_detailed_balance .* NoWayOut\(dim=.* state position=\[1, .* cannot stop; use detailed_balance"
    with pytest.raises(TwinaxError, match=words):
        problem(env, "modified_detailed_balance", **SMALL).prove.check("jax")
    with pytest.raises(TwinaxError, match=words):
        runs.train(problem(env, "mdb", **SMALL), mode="torch", steps=1)


def test_objectives_that_read_rewards_of_unfinished_states_need_them():
    problem(PaidAtTheEnd(3), "trajectory_balance", **SMALL).prove.check("jax")
    words = r"forward_looking reads the reward of .*PaidAtTheEnd.* bits=\[-1, .* is -inf; use detailed_balance"
    with pytest.raises(TwinaxError, match=words):
        problem(PaidAtTheEnd(3), "forward_looking", **SMALL).prove.check("jax")


def test_modified_detailed_balance_needs_the_reward_that_is_paid_for_stopping():
    # F(s) = R(s) / P_F(stop | s) holds for the reward of the object, wherever it is read.
    problem(PaidForStopping(2, 4), "forward_looking", **SMALL).prove.check("jax")
    words = r"modified_detailed_balance .* log-reward .* PaidForStopping.* position=\[0, 0\].* once stopped"
    with pytest.raises(TwinaxError, match=words):
        problem(PaidForStopping(2, 4), "modified_detailed_balance", **SMALL).prove.check("jax")


def test_conditions_go_by_what_is_needed_and_not_by_a_name():
    class Mine(objectives.TrajectoryBalance):
        needs = frozenset({"log_pf_stop"})

    with pytest.raises(TwinaxError, match="Mine divides by"):
        problem(NoWayOut(2, 4), Mine(), **SMALL).prove.check("jax")


@pytest.mark.parametrize("env", [Hypergrid(2, 4), BitStrings(3), LeftToRight(3), TableWorld(DIAMOND, (4, 5), 3)])
def test_sound_worlds_are_accepted_for_every_objective(env):
    for name, kind in objectives.OBJECTIVES.items():
        if env.stops or name != "modified_detailed_balance":
            replay = ReplayOptions(size=40, batch_size=2 if kind.of_data else 0)
            problem(env, name, replay=replay, **SMALL).prove.check("jax")


def test_a_variance_needs_two_trajectories():
    with pytest.raises(TwinaxError, match="the batch size is 1, but log_partition_variance .* make it at least 2"):
        problem(Hypergrid(2, 4), "vargrad", **{**SMALL, "batch_size": 1})
    problem(Hypergrid(2, 4), "vargrad", **{**SMALL, "batch_size": 2})


def test_numbers_whose_squares_are_no_float32_are_refused():
    with pytest.raises(TwinaxError, match=r"the log-reward is beyond 1e\+15; its square is no float32 .*position"):
        problem(Hypergrid(2, 4, Corners(sigma=1e-40)), **SMALL).prove.check("jax")
    with pytest.raises(TwinaxError, match="the initial log Z is .*; every entry must be finite, and below"):
        problem(Hypergrid(2, 4), log_z=(1e39,), **SMALL)
