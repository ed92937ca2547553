"""Long arrays of worlds and rewards: read in every framework, given as data, and never compiled in."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import pytest
import torch
from small_worlds import BitStrings

from twinax.envs import Environment, check_env
from twinax.errors import TwinaxError


@dataclass(frozen=True)
class Listed:
    """A reward that is a table over the numbers of strings."""

    length: int

    def constants(self, env):
        return {"listed": np.arange(2.0**self.length)}

    def log_reward(self, env, state):
        from twinax import ops

        number = ops.sum(ops.cast(state.bits > 0, "int32") * ops.like(2 ** np.arange(self.length), state.bits), -1)
        return ops.take(env.constant("listed", state.bits), ops.cast(number, "int32"))


class Tabled(BitStrings):
    """A world with a constant of its own."""

    def constants(self):
        return {**super().constants(), "weights": np.arange(3.0)}


def full(env: Environment, reference):
    from twinax import ops

    state = env.reset(2)
    return ops.like(type(state)(np.array([[1, 0, 1], [0, 0, 1]], np.int32), np.ones(2, bool)), reference)


@pytest.mark.parametrize(
    "reference", [np.zeros(()), torch.zeros(()), jax.numpy.zeros(())], ids=["numpy", "torch", "jax"]
)
def test_a_reward_reads_its_table_in_every_framework(reference):
    env = BitStrings(3).with_reward(Listed(3))
    np.testing.assert_array_equal(np.asarray(env.log_reward(full(env, reference))), [5.0, 4.0])
    check_env(env)


def test_what_is_given_takes_the_place_of_the_constants_and_changes_no_identity():
    env = Tabled(3).with_reward(Listed(3))
    assert sorted(env.constants()) == ["listed", "weights"]
    given = env.given({name: 10 + x for name, x in env.constants().items()})
    np.testing.assert_array_equal(given.log_reward(full(env, np.zeros(()))), [15.0, 14.0])
    np.testing.assert_array_equal(given.env.constant("weights", np.zeros(())), [10, 11, 12])
    np.testing.assert_array_equal(env.log_reward(full(env, np.zeros(()))), [5.0, 4.0])
    assert given == env and hash(given) == hash(env)


def test_given_constants_are_arguments_of_a_program():
    env = BitStrings(12).with_reward(Listed(12))

    def rewards(constants, state):
        return env.given(constants).log_reward(state)

    state = jax.tree.map(jax.numpy.asarray, env.reset(2))
    program = jax.make_jaxpr(rewards)(env.constants(), state)
    assert max((np.size(x) for x in program.consts), default=0) < 100


def test_two_constants_of_one_name_are_refused():
    class Both(BitStrings):
        def constants(self):
            return {"listed": np.zeros(2)}

    with pytest.raises(TwinaxError, match="both have a constant 'listed'"):
        Both(3).with_reward(Listed(3)).constants()


def test_constants_that_are_no_arrays_are_refused():
    class Lists(BitStrings):
        def constants(self):
            return {"weights": [1.0]}

    with pytest.raises(TwinaxError, match="constant 'weights' of Lists is list"):
        check_env(Lists(3))
