"""Worlds with another reward than their own."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from twinax import ops
from twinax.envs import (
    BlackBox,
    Corners,
    Environment,
    GridReward,
    Hypergrid,
    Ising,
    Uniform,
    check_env,
    enumerate_states,
)
from twinax.envs._rewarded import Rewarded
from twinax.errors import TwinaxError

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import DIAMOND, BitStrings, TableWorld


@dataclass(frozen=True)
class Ones:
    """A reward for strings: two for each one that is written."""

    base: float = 2.0

    def log_reward(self, env, state):
        return np.log(self.base) * ops.sum(ops.cast(state.bits > 0, "float32"), -1)


def test_a_world_with_the_field_is_the_same_world_with_another_reward():
    env = Hypergrid(2, 8, GridReward.hard()).with_reward(Corners())
    assert env == Hypergrid(2, 8, Corners()) and env.num_modes == 0
    assert env.with_reward(GridReward()).num_modes == 4, "modes are those of the reward that is there"


def test_what_a_world_measures_does_not_depend_on_who_pays():
    world = Ising(2)
    env, states = world.with_reward(Uniform()), enumerate_states(world).states
    weights = np.full(len(states.done), 1 / len(states.done))
    assert env.titles == world.titles and set(env.titles) == {"magnetisation", "agreement"}
    assert env.measures(states, weights) == world.measures(states, weights) != {}


def test_a_world_without_the_field_keeps_its_rules():
    env = BitStrings(3).with_reward(Ones())
    assert repr(env) == "Rewarded(env=BitStrings(length=3), reward=Ones(base=2.0))"
    assert env == BitStrings(3).with_reward(Ones()) and hash(env) == hash(BitStrings(3).with_reward(Ones()))
    check_env(env)
    assert enumerate_states(env).log_z == pytest.approx(3 * np.log(3))
    assert env.with_reward(Uniform(2.0)) == Rewarded(BitStrings(3), Uniform(2.0)), "not one around the other"
    assert env.length == 3, "a reward may read what the world has besides"


def test_every_member_of_the_contract_is_the_worlds():
    own = {"log_reward", "log_energy", "reward", "with_reward", "watch", "constant"}
    own |= {"num_modes", "mode", "modes", "log_partition", "measures", "titles"}  # of the world's own reward
    own |= {"learnable", "observed"}  # of the reward that is given
    own |= {"made_rows", "knowing", "is_known"}  # only quicker: observed as a whole, states are the same
    contract = {name for name, _ in inspect.getmembers(Environment) if not name.startswith("_")}
    assert contract - own <= set(vars(Rewarded)), "a member that is not handed on has the default's answer"


def test_the_modes_of_a_world_are_those_of_its_own_reward():
    class Marked(BitStrings):
        num_modes = 2

        def mode(self, state):
            return ops.cast(state.bits[:, 0] > 0, "int32")

    assert Marked(3).num_modes == 2 and Marked(3).with_reward(Ones()).num_modes == 0


def test_a_world_that_has_the_field_and_computes_otherwise_is_not_left_with_its_own_reward():
    class Stubborn(Hypergrid):
        def log_reward(self, state):
            return ops.cast(state.position[:, 0], "float32")

    env = Stubborn(2, 4).with_reward(Uniform(5.0))
    assert np.exp(env.log_reward(env.reset(2))) == pytest.approx([5.0, 5.0])


class Bare(BitStrings):
    """A world that leaves its reward to others."""

    log_reward = Environment.log_reward


def test_a_world_without_any_reward_says_so_and_can_be_given_one():
    with pytest.raises(TwinaxError, match=r"Bare has no reward: .*problem\(env, reward=\.\.\.\)"):
        check_env(Bare(2))
    check_env(Bare(2).with_reward(Ones()))


def test_objects_are_the_state_without_done():
    assert Hypergrid(2, 4).objects(Hypergrid(2, 4).reset(3)).shape == (3, 2)
    assert BitStrings(3).objects(BitStrings(3).reset(2)).tolist() == [[-1] * 3] * 2
    assert BitStrings(3).text(BitStrings(3).objects(BitStrings(3).reset(2)), 1) == "[-1, -1, -1]"


def test_objects_of_several_arrays_are_named():
    from typing import Any, NamedTuple

    class Two(NamedTuple):
        row: Any
        length: Any
        done: Any

    class Pair(BitStrings):
        pass

    state = Two(np.array([[1, 2], [3, 4]]), np.array([1, 2]), np.ones(2, bool))
    objects = Pair(3).objects(state)
    assert list(objects) == ["row", "length"]
    assert Pair(3).text(objects, 1) == "row=[3, 4], length=2"
    box = BlackBox(lambda x: x["row"].sum(1) * x["length"])
    assert np.exp(box.log_reward(Pair(3), state)) == pytest.approx([3.0, 14.0])


def test_a_graph_written_as_a_table():
    world = TableWorld(DIAMOND, finished=(4, 5), max_steps=3)
    check_env(world.with_reward(lambda nodes: 1.0 + np.ravel(nodes)))
