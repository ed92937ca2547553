"""Exact distributions: against all paths written out, against long sampling, and closed forms of the distances."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import defaultdict
from pathlib import Path

import jax.tree_util as jtu
import numpy as np
import pytest

from twinax import ops
from twinax.envs import (
    BlackBox,
    Enumeration,
    GridReward,
    GridState,
    Hypergrid,
    _enumeration,
    enumerate_states,
    state_rows,
)
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, Networks, backward_rollout, forward_rollout, problem, score
from twinax.gflownet._exact import jsd, kl, log_path_counts, terminal_distribution, total_variation
from twinax.gflownet._metrics import Samples, indices_of, sampled_distribution, stored, top_k

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import (
    DIAMOND,
    BitState,
    BitStrings,
    LeftToRight,
    NodeState,
    TableWorld,
    backward_table,
    balanced,
    random_policy,
    tabular,
)

WORLDS = {
    "grid": Hypergrid(2, 3, GridReward(0.1, 0.5, 2.0)),
    "cube": Hypergrid(3, 3),
    "bits": BitStrings(3),
    "left-to-right": LeftToRight(4),
}
worlds = pytest.mark.parametrize("env", WORLDS.values(), ids=WORLDS)


def probabilities(env, policy) -> np.ndarray:
    """P_F of every state of the enumeration."""
    states = enumerate_states(env).states
    return ops.softmax(policy(env.observe(states)).forward_logits, env.forward_mask(states))


def key(state) -> tuple:
    return tuple(np.concatenate([np.ravel(x) for x in jtu.tree_leaves(state)]).tolist())


def all_paths(env, policy):
    """Every trajectory of a world: (probability, key of its final state), by recursion over the rules."""
    stack = [(env.reset(1), 1.0)]
    while stack:
        state, probability = stack.pop()
        if state.done[0]:
            yield probability, key(state)
            continue
        chances = ops.softmax(policy(env.observe(state)).forward_logits, env.forward_mask(state))[0]
        for action in np.flatnonzero(env.forward_mask(state)[0]):
            stack.append((env.step(state, np.array([action])), probability * chances[action]))


def keys_of(graph) -> list[tuple]:
    return [key(jtu.tree_map(lambda x, k=k: x[k], graph.states)) for k in range(len(graph.done))]


# The distribution of a policy


@worlds
def test_terminal_distribution_is_that_of_all_paths(env):
    policy, graph = random_policy(env), enumerate_states(env)
    wanted, paths = defaultdict(float), defaultdict(int)
    for probability, end in all_paths(env, policy):
        wanted[end] += probability
        paths[end] += 1
    got, counts = terminal_distribution(graph, probabilities(env, policy)), np.exp(log_path_counts(graph))
    assert got.sum() == pytest.approx(1.0, abs=1e-12)
    for k, name in enumerate(keys_of(graph)):
        assert got[k] == pytest.approx(wanted.get(name, 0.0), rel=1e-9, abs=1e-15)
        assert (got[k] == 0) or graph.done[k]
        if graph.done[k]:
            assert counts[k] == pytest.approx(paths[name], rel=1e-9)


def test_number_of_paths_on_the_small_grid():
    # 3 x 3: 1 1 1 / 1 2 3 / 1 3 6
    graph = enumerate_states(WORLDS["grid"])
    counts = np.round(np.exp(log_path_counts(graph)))
    position = graph.states.position[graph.done]
    table = np.zeros((3, 3))
    table[position[:, 0], position[:, 1]] = counts[graph.done]
    np.testing.assert_array_equal(table, [[1, 1, 1], [1, 2, 3], [1, 3, 6]])


@pytest.mark.parametrize("world", ["grid", "bits"])
def test_terminal_distribution_is_that_of_long_sampling(world):
    env, rows = WORLDS[world], 60_000
    policy, graph = random_policy(env), enumerate_states(env)
    rng = np.random.default_rng(0)
    draws = rng.random((env.max_steps, rows, env.num_actions)), rng.random((env.max_steps, rows))
    final = forward_rollout(env, lambda seen: policy(seen).forward_logits, *draws).last
    exact = terminal_distribution(graph, probabilities(env, policy))
    seen = sampled_distribution(graph, final)
    assert seen.sum() == pytest.approx(1.0) and (seen[~graph.done] == 0).all()
    # Each frequency within five standard deviations
    assert (np.abs(seen - exact) <= 5 * np.sqrt(exact * (1 - exact) / rows) + 1e-12).all()
    assert total_variation(seen, exact) < 0.01


@pytest.mark.parametrize("kind", ["uniform", "learned", "maxent"])
@worlds
def test_balanced_flows_sample_in_proportion_to_the_reward(env, kind):
    logits, log_pb = backward_table(env, kind)
    flow, graph = balanced(env, log_pb), enumerate_states(env)
    policy = tabular(env, flow.forward, logits, flow.state)
    learned = terminal_distribution(graph, probabilities(env, policy))
    assert total_variation(learned, graph.target_distribution) < 1e-12
    assert abs(kl(graph.target_distribution, learned)) < 1e-12 and abs(jsd(learned, graph.target_distribution)) < 1e-12


def test_probabilities_of_a_tree_are_products():
    # Left to right there is one way to each string: log P(x) is the sum along its only trajectory.
    env = WORLDS["left-to-right"]
    policy, graph = random_policy(env), enumerate_states(env)
    final = jtu.tree_map(lambda x: x[graph.done], graph.states)
    uniform = np.full((env.max_steps, 16, 1), 0.5)
    only = backward_rollout(env, lambda state: np.zeros((16, 1)), final, uniform)
    s = score(env, Networks(policy, None), only, "uniform")
    exact = terminal_distribution(graph, probabilities(env, policy))[graph.done]
    np.testing.assert_allclose(np.exp(s.log_pf.sum(0)), exact, rtol=1e-9)
    np.testing.assert_allclose(s.log_pb, 0.0, atol=1e-12)


@pytest.mark.parametrize("world", ["grid", "bits"])
def test_importance_weights_of_backward_trajectories_give_the_probability(world):
    # P(x) = E over P_B of exp(sum log P_F - sum log P_B): exact when every backward trajectory is weighed.
    env = WORLDS[world]
    policy, graph = random_policy(env), enumerate_states(env)
    exact = terminal_distribution(graph, probabilities(env, policy))
    target = int(np.flatnonzero(graph.done)[-1])
    rows = 20_000
    final = jtu.tree_map(lambda x: np.repeat(x[target : target + 1], rows, 0), graph.states)
    uniform = np.random.default_rng(1).random((env.max_steps, rows, env.num_backward_actions))
    undone = backward_rollout(env, lambda state: policy(env.observe(state)).backward_logits, final, uniform)
    s = score(env, Networks(policy, None), undone, "learned")
    weights = np.exp((s.log_pf - s.log_pb).sum(0))
    error = weights.std() / math.sqrt(rows)
    assert abs(weights.mean() - exact[target]) < 5 * error + 1e-12


@worlds
def test_every_world_that_can_be_enumerated_has_exact_metrics(env):
    graph = problem(env).graph
    assert graph is not None and graph.log_z == pytest.approx(enumerate_states(env).log_z)


def test_large_worlds_have_none():
    assert problem(Hypergrid(8, 20)).graph is None
    # How many states these strings have is known only when they are counted.
    metrics = MetricOptions(exact_limit=5_000)
    assert problem(BitStrings(10), metrics=metrics).graph is None
    assert problem(BitStrings(4), metrics=metrics).graph is not None


# Distances


def test_total_variation():
    assert total_variation(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 0
    assert total_variation(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1
    assert total_variation(np.array([0.7, 0.3]), np.array([0.4, 0.6])) == pytest.approx(0.3)
    uniform, half = np.full(8, 1 / 8), np.repeat([1 / 4, 0], 4)
    assert total_variation(uniform, half) == pytest.approx(0.5)


def test_kl():
    p, q = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    assert kl(p, q) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert kl(p, p) == 0
    assert kl(q, p) != pytest.approx(kl(p, q))
    half, uniform = np.repeat([1 / 4, 0], 4), np.full(8, 1 / 8)
    assert kl(half, uniform) == pytest.approx(math.log(2))  # log 8 - log 4
    assert kl(uniform, half) == math.inf
    assert kl(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0


def test_jsd():
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert jsd(a, b) == pytest.approx(math.log(2))
    assert jsd(a, a) == 0
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.6, 0.0])
    assert jsd(p, q) == pytest.approx(jsd(q, p))

    # H(middle) - (H(p) + H(q)) / 2
    def entropy(x):
        return -sum(v * math.log(v) for v in x if v > 0)

    assert jsd(p, q) == pytest.approx(entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2)
    half, uniform = np.repeat([1 / 4, 0], 4), np.full(8, 1 / 8)
    assert jsd(half, uniform) == pytest.approx(entropy((half + uniform) / 2) - (math.log(4) + math.log(8)) / 2)


# Places and marginals


@worlds
def test_states_are_found_in_the_enumeration(env):
    graph = enumerate_states(env)
    order = np.random.default_rng(0).permutation(np.flatnonzero(graph.done))
    found = indices_of(graph, jtu.tree_map(lambda x: x[order], graph.states))
    np.testing.assert_array_equal(found, order)


def test_marginals_are_sums_over_the_other_coordinates():
    env = Hypergrid(3, 3)
    graph = enumerate_states(env)
    picture = env.picture(graph.states, graph.target_distribution)
    wanted = np.zeros((3, 3))
    for k in np.flatnonzero(graph.done):
        x, y, _ = graph.states.position[k]
        wanted[x, y] += graph.target_distribution[k]
    np.testing.assert_allclose(picture, wanted, rtol=1e-12)
    assert picture.sum() == pytest.approx(1.0)
    line = enumerate_states(Hypergrid(1, 4))
    assert Hypergrid(1, 4).picture(line.states, np.full(8, 1 / 8)).shape == (1, 4)
    assert BitStrings(2).picture(enumerate_states(BitStrings(2)).states, np.full(9, 1 / 9)) is None


# Keys of states


def rows_like_slow(table, wanted) -> list[int]:
    """Places by a dictionary of tuples."""
    place = {tuple(row): k for k, row in enumerate(table.tolist())}
    return [place[tuple(row)] for row in wanted.tolist()]


@pytest.mark.parametrize("columns", [1, 5, 80, 200])
@pytest.mark.parametrize("high", [2, 1000, 2**62])
def test_keys_are_equal_exactly_where_rows_are(columns, high):
    # 80 columns of 0 and 1 have 2^80 values, which an int64 cannot number.
    rng = np.random.default_rng(columns)
    rows = rng.integers(-(high // 2), high // 2 + 1, (300, columns))
    rows = np.concatenate([rows, rows[rng.permutation(300)[:50]], rows[:1] + (np.arange(columns) == columns - 1)])
    keys = state_rows.keys_of(rows)
    assert rows_like_slow(rows, rows) == rows_like_slow(keys[:, None], keys[:, None])
    assert state_rows.keys_of(rows[:0]).shape == (0,)


def enumeration_of(states) -> Enumeration:
    number = len(jtu.tree_leaves(states)[0])
    none = np.zeros(0, np.int64)
    return Enumeration(states, np.ones(number, bool), none, none, none, np.zeros(1, np.int64), np.zeros(number))


def test_states_of_80_columns_are_found():
    # They differ in the first columns only, which count for a multiple of 2^64 in a number of 80 bits.
    bits = np.zeros((1024, 80), np.int32)
    bits[:, :10] = np.arange(1024)[:, None] >> np.arange(10) & 1
    bits[0] = 1  # no column is constant
    graph = enumeration_of(BitState(bits, np.ones(len(bits), bool)))
    order = np.random.default_rng(1).permutation(len(bits))
    np.testing.assert_array_equal(indices_of(graph, BitState(bits[order], np.ones(len(bits), bool))), order)


def test_states_that_differ_in_a_fraction_are_told_apart():
    graph = enumeration_of(NodeState(np.array([0.2, 0.7, 1.5, -0.3], np.float32), np.ones(4, bool)))
    objects = NodeState(np.array([0.7, 0.7, -0.3, 0.2], np.float32), np.ones(4, bool))
    np.testing.assert_array_equal(indices_of(graph, objects), [1, 1, 3, 0])

    class Fractions(TableWorld):
        def log_reward(self, state):
            return np.log(state.node + 1.0)

    # Two distinct objects, of rewards 1.7 and 1.2: their mean, not the better one twice or one of them alone.
    top = top_k(Fractions(DIAMOND, (4, 5), 3), jtu.tree_map(lambda x: x[[0, 1, 3]], objects), 5)
    assert top["top_k_reward"] == pytest.approx((1.7 + 1.2) / 2, rel=1e-6)


def test_a_state_that_was_never_enumerated_is_refused():
    graph = enumerate_states(Hypergrid(2, 3))
    for position in ([[7, 0]], [[-1, 1]]):
        with pytest.raises(TwinaxError, match=r"the finished state position=.* is none of the 18 states"):
            indices_of(graph, GridState(np.array(position, np.int32), np.ones(1, bool)))


def test_states_of_equal_hash_are_refused_across_levels(monkeypatch):
    # Every state a hash of its own but two, which are met at different levels.
    env = Hypergrid(1, 4)
    monkeypatch.setattr(
        _enumeration, "_hash", lambda states, _: np.where(states.done, 9, states.position[:, 0] % 3).astype(np.uint64)
    )
    with pytest.raises(TwinaxError, match="two states share a hash"):
        _enumeration.discover(env, 100)


def test_the_store_of_samples_never_overflows():
    env = Hypergrid(2, 3)
    samples, late = Samples.empty(env, 6, 4), Samples.empty(env, 6, 4)
    late = dataclasses.replace(late, added=np.array(2**31 - 8, np.int32))
    for k in range(9):
        final = GridState(np.full((4, 2), k, np.int32), np.ones(4, bool))
        samples, late = samples.update(env, final), late.update(env, final)
        wanted = sorted([k] * 4 + [k - 1] * 4 * (k > 0))
        assert sorted(stored(samples).position[:, 0].tolist()) == wanted
        assert len(stored(late).position) == 8 and 0 < late.added < 2**31 - 1


def test_rewards_of_the_store_are_asked_for_in_pieces():
    """The store holds far more objects than a batch: side by side, those of trees over an alignment are gigabytes."""
    asked = []

    def paid(cells):
        asked.append(len(cells))
        return 1.0 + cells.sum(1)

    env = Hypergrid(2, 50).with_reward(BlackBox(paid, cache=0))
    states = env.states_of(np.stack(np.meshgrid(np.arange(50), np.arange(50)), -1).reshape(-1, 2))
    assert top_k(env, states, 2)["top_k_reward"] == pytest.approx((99 + 98) / 2)
    assert sum(asked) == 2500 and max(asked) <= 1024
