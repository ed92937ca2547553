"""Sequences in four orders, and strings of bits with hidden modes: counts, golden log Z and rewards by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import twinax as tx
from twinax.conf import build_problem, compose
from twinax.envs import BitModes, BitSequences, DoubledLetters, Sequences, check_env, enumerate_states
from twinax.envs._bit_modes import BLOCKS
from twinax.envs._edit_distance import edit_distance, edit_distances
from twinax.envs.state_rows import pick
from twinax.errors import TwinaxError

ORDERS = ("append", "both", "any", "variable")


def finished(graph):
    return pick(graph.states, np.flatnonzero(np.asarray(graph.done)))


def modes(*blocks: str) -> tuple[str, ...]:
    return tuple("".join(BLOCKS[int(block)] for block in row) for row in blocks)


@pytest.mark.parametrize(
    ("order", "states", "edges"), [("append", 40, 39), ("both", 40, 78), ("any", 64, 144), ("variable", 79, 78)]
)
def test_every_order_has_its_states_and_edges(order, states, edges):
    env = Sequences(3, "abc", order)
    report = check_env(env)
    assert (report.states, report.edges, report.longest) == (states, edges, env.max_steps)
    assert env.num_states == states


@pytest.mark.parametrize(("order", "states", "edges"), [("append", 87_381, 87_380), ("both", 87_381, 174_760)])
def test_eight_letters_of_four(order, states, edges):
    graph = enumerate_states(Sequences(8, "ACGT", order), 100_000)
    assert (len(graph.done), len(graph.source), int(graph.done.sum())) == (states, edges, 4**8)


@pytest.mark.slow
def test_eight_letters_of_four_in_any_order():
    graph = enumerate_states(Sequences(8, "ACGT", "any"), 400_000)
    assert (len(graph.done), len(graph.source)) == (390_625, 2_500_000)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_builds_the_same_objects(order):
    env = Sequences(3, "ab", order, min_length=3)
    states = finished(enumerate_states(env))
    texts = {env.text(env.objects(states), row) for row in range(len(states.done))}
    assert texts == {"".join(letters) for letters in itertools.product("ab", repeat=3)}


def test_letters_are_written_where_the_order_says():
    def after(order, *actions):
        env = Sequences(3, "abc", order, min_length=0)
        state = env.reset(1)
        for action in actions:
            state = env.step(state, np.array([action], np.int32))
        return env.text(env.objects(state), 0), bool(state.done[0])

    assert after("append", 0, 1) == ("ab", False)
    assert after("both", 0, 1, 5) == ("bac", True)  # a in front, b in front, c behind
    assert after("any", 3 * 2 + 1) == ("--b", False)
    assert after("variable", 2, 3) == ("c", True)
    assert after("variable", 3) == ("", True)


def test_one_stops_from_the_least_length_on():
    env = Sequences(3, "ab", min_length=2)
    assert check_env(env).states == env.num_states == 15 + 4 + 8
    assert env.forward_mask(env.reset(1)).tolist() == [[True, True, False]]


def test_a_sequence_begins_with_a_token_of_its_own():
    env = Sequences(3, "ab")
    seen = env.observe(env.step(env.reset(1), np.array([1], np.int32)))
    assert (seen.ids.tolist(), seen.vocabulary) == ([[3, 1, 2, 2]], 4)
    assert env.observation_size == 16


def test_letters_in_many_places_are_arranged_actions():
    assert Sequences(3, "ab", "any").action_shape == (3, 2)
    assert Sequences(3, "ab", "both").action_shape == (2, 2)
    assert Sequences(3, "ab", "append").action_shape == (2,)


def test_doubled_letters_are_those_that_python_counts():
    env, reward = Sequences(5, "abc"), DoubledLetters()
    states = finished(enumerate_states(env))
    texts = [env.text(env.objects(states), row) for row in range(len(states.done))]
    assert len(texts) == sum(3**k for k in range(1, 6))
    expected = [sum(text.count(pair) for pair in ("aa", "bb", "cc")) for text in texts]
    np.testing.assert_array_equal(reward.count(states), expected)
    paid = DoubledLetters(beta=2.0, least=0.01).log_reward(env, states)
    np.testing.assert_allclose(np.exp(paid), np.maximum((np.array(expected) / 2.5) ** 2, 0.01))


@pytest.mark.parametrize(
    ("bits", "names", "histogram", "log_z"),
    [
        (8, "0 2 4", [3, 24, 67, 88, 57, 16, 1], (4.553776009, 3.274579555, 2.042930386)),
        (
            16,
            "01 23 40 14",
            [4, 64, 480, 2240, 7001, 14864, 19962, 15008, 5315, 592, 6],
            (10.026039704, 6.209458011, 3.406665921),
        ),
    ],
)
def test_strings_of_bits_have_their_log_z(bits, names, histogram, log_z):
    hidden = modes(*names.split())
    every = np.array(list(itertools.product((0, 1), repeat=bits)))
    for (beta, scale), golden in zip(((3.0, None), (1.0, 1.0), (2.0, 1.0)), log_z, strict=True):
        env = BitSequences(bits, 8, reward=BitModes(beta, scale, modes=hidden))
        states = env.states_of_bits(every)
        np.testing.assert_array_equal(env.bits_of(states), every)
        assert math.log(np.exp(env.log_reward(states)).sum()) == pytest.approx(golden, abs=1e-9)
    nearest = env.reward.distances(env, states).min(1)
    assert np.bincount(nearest).tolist() == histogram


def test_words_do_not_change_what_strings_pay():
    reward = BitModes(1.0, 1.0, modes=modes("0", "2", "4"))
    for word, order in ((1, "both"), (2, "any"), (4, "append")):
        env = BitSequences(8, word, order, reward)
        assert enumerate_states(env).log_z == pytest.approx(3.274579555, abs=1e-9)
        check_env(env, quick=True)


def test_the_published_world():
    env = BitSequences()
    assert (env.max_steps, env.num_actions, env.num_modes, len(set(env.reward.strings(120)))) == (15, 256, 60, 60)
    assert BitSequences(order="any").num_actions == 3840
    check_env(env, quick=True)
    states: Any = env.test_states(0)
    assert states.letters.shape == (7200, 15)
    distances = env.reward.distances(env, states)
    flipped = [distances[mode * 120 + k, mode] for mode in range(60) for k in range(120)]
    assert flipped == list(range(120)) * 60
    assert env.log_reward(states)[1] == pytest.approx(-3 / 120)
    np.testing.assert_array_equal(env.modes(states), distances <= 30)
    other: Any = env.test_states(1)
    assert (states.letters != other.letters).any()


def test_another_reward_takes_the_place_of_hidden_modes():
    env: Any = BitSequences(8, 4).with_reward(lambda bits: 1.0 + bits.sum(1))
    assert env.log_reward(env.states_of_bits(np.ones((1, 8)))) == pytest.approx(math.log(9))
    assert (env.num_modes, env.test_states(0)) == (0, None)


def slow_edit_distance(one, other) -> int:
    table = np.zeros((len(one) + 1, len(other) + 1), int)
    table[0], table[:, 0] = range(len(other) + 1), range(len(one) + 1)
    for i, j in itertools.product(range(1, len(one) + 1), range(1, len(other) + 1)):
        exchanged = table[i - 1, j - 1] + (one[i - 1] != other[j - 1])
        table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, exchanged)
    return int(table[-1, -1])


def test_edit_distances_are_those_of_the_table():
    rng = np.random.default_rng(0)
    rows = np.full((24, 7), -1, np.int32)
    for row in rows:
        length = rng.integers(0, 8)
        row[:length] = rng.integers(0, 3, length)
    texts = [[letter for letter in row if letter >= 0] for row in rows.tolist()]
    expected = [[slow_edit_distance(one, other) for other in texts[:9]] for one in texts]
    np.testing.assert_array_equal(edit_distances(rows, rows[:9]), expected)
    import jax.numpy as jnp

    np.testing.assert_array_equal(edit_distance(jnp.asarray(rows), jnp.asarray(rows[:9])), expected)


def test_modes_may_be_near_by_insertions():
    env = BitSequences(8, 4, reward=BitModes(1.0, 1.0, "edit", modes=("00001111",)))
    states = env.states_of_bits(np.array([[0, 0, 0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1, 1, 1]]))
    assert env.log_reward(states).tolist() == [0, -2]
    assert env.distance(env.objects(states), env.objects(states)).tolist() == [[0, 2], [2, 0]]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sequences(0), "0 places"),
        (lambda: Sequences(3, "aba"), "'a' stands more than once"),
        (lambda: Sequences(3, "ab", min_length=4), "min_length is 4"),
        (lambda: Sequences(10_000, "".join(map(chr, range(97, 297))), "any"), "at most"),
        (lambda: Sequences(3, order="forwards"), "unknown order 'forwards'"),
        (lambda: DoubledLetters(least=0.0), "least above 0"),
        (lambda: BitSequences(30, 8), "whole number of words"),
        (lambda: BitSequences(order="variable"), "one length"),
        (lambda: BitSequences(16).constants(), "60 modes of 16 bits cannot be distinct, .* make only 25"),
        (lambda: BitSequences(12, 4).constants(), "no whole number of blocks"),
        (lambda: BitModes(modes=("01", "01")), "twice"),
        (lambda: BitModes(modes=("02",)), "letters 0 and 1"),
        (lambda: BitSequences(8, reward=BitModes(modes=("01",))).constants(), "2 bits in a world of 8"),
        (lambda: BitModes(scale=0.0), "scale above 0"),
        (lambda: BitModes(count=0), "at least 1 mode"),
    ],
)
def test_what_cannot_be_is_one_sentence(make, sentence):
    with pytest.raises(TwinaxError, match=sentence) as error:
        make()
    assert "\n" not in str(error.value)


def test_rewards_of_sequences_refuse_other_worlds():
    grid = tx.envs.Hypergrid(2, 3)
    for reward in (DoubledLetters(), BitModes()):
        with pytest.raises(TwinaxError, match="Hypergrid has none"):
            env = grid.with_reward(reward)
            env.log_reward(env.reset(1))


def test_the_command_line_starts_from_published_settings():
    problem = build_problem(compose(["env=bitseq", "env.bits=16", "env.word=4", "proxy.count=3"]))
    assert problem.env == BitSequences(16, 4, reward=BitModes(count=3))
    assert (problem.optimizer.name, problem.optimizer.rates) == ("adamw", {"log_z": 0.05})
    assert build_problem(compose(["env=sequences"])).env == Sequences()
