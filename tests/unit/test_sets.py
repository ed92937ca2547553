"""Sets, bags, the perfect tree and ring graphs: golden counts and partition functions, rules, bad input."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax.envs import (
    BagModes,
    Bags,
    ItemWeights,
    PerfectTree,
    Ring,
    RingGraphs,
    Sets,
    Uniform,
    check_env,
    enumerate_states,
)
from twinax.envs.state_rows import pick
from twinax.errors import TwinaxError
from twinax.gflownet import _exact
from twinax.gflownet._metrics import Samples

WEIGHTS = ItemWeights((0.5, 1.0, 1.5, 2.0, 2.5))

SMALL = {
    "pairs": (Sets(5, 2, reward=WEIGHTS), 10, 16, 25, math.log(21.25)),
    "triples": (Sets(5, 3, reward=WEIGHTS), 10, 26, 55, 3.336658861),
    "up to three": (Sets(5, 3, stop=True, reward=WEIGHTS), 26, 52, 55 + 26, 4.058285512),
    "tree": (PerfectTree(4), 16, 31, 30, 4.912654886),
    "directed rings": (RingGraphs(3), 64, 128, 192 + 64, 5.298317677),
    "rings": (RingGraphs(3, directed=False), 8, 16, 12 + 8, 4.605170256),
    "rings of four": (RingGraphs(4, directed=False), 64, 128, 192 + 64, 5.703782678),
    "rings of five": (RingGraphs(5, directed=False), 1024, 2048, 5120 + 1024, 7.090077679),
}


@pytest.mark.parametrize("name", SMALL)
def test_golden_counts_and_partition_functions(name):
    env, objects, states, edges, log_z = SMALL[name]
    graph = enumerate_states(env)
    assert (graph.done.sum(), len(graph.done), len(graph.source)) == (objects, states, edges)
    assert env.num_states == states
    assert graph.log_z == pytest.approx(log_z, abs=2e-9)
    assert env.log_partition == pytest.approx(graph.log_z, abs=1e-12)


@pytest.mark.parametrize("name", ["triples", "up to three", "tree", "directed rings", "rings"])
def test_rules_fit_together(name):
    env = SMALL[name][0]
    report = check_env(env)
    assert report.enumerated and report.longest == env.max_steps
    assert report.frameworks == ("numpy", "jax", "torch")


@pytest.mark.parametrize(
    "env", [Sets(30, 5), PerfectTree(20), RingGraphs(6), pytest.param(Sets(), marks=pytest.mark.slow)], ids=repr
)
def test_large_worlds_are_walked(env):
    assert not check_env(env, limit=500).enumerated


@pytest.mark.parametrize("name", ["triples", "up to three", "tree", "directed rings", "rings"])
def test_paths_to_parents_are_those_that_were_counted(name):
    env = SMALL[name][0]
    same_paths(env)


def same_paths(env):
    graph = enumerate_states(env)
    counts = _exact.log_path_counts(graph)
    ratio = np.asarray(env.log_paths_ratio(graph.states))
    moves = np.ones(len(graph.source), bool) if not env.stops else graph.action != env.num_actions - 1
    source, target = graph.source[moves], graph.target[moves]
    children = type(graph.states)(*(x[target] for x in graph.states))
    undo = np.asarray(env.backward_action(children, graph.action[moves].astype(np.int32)))
    mask = np.asarray(env.backward_mask(children))
    own = np.where(mask, np.exp(ratio[target]), 0.0)
    share = own[np.arange(len(undo)), undo] / own.sum(1)
    np.testing.assert_allclose(np.log(share), counts[source] - counts[target], atol=1e-6)


def test_directed_rings_of_four_and_five():
    assert RingGraphs(4).log_partition == pytest.approx(6.396936472, abs=1e-9)
    assert RingGraphs(5).log_partition == pytest.approx(7.783660818, abs=1e-9)
    edges = (np.arange(4096)[:, None] >> np.arange(12) & 1).astype(np.int32)
    ring = RingGraphs(4).is_ring(edges)
    assert ring.sum() == 6
    found = [RingGraphs(4).text(edges, int(k)) for k in np.flatnonzero(ring)]
    assert "0>1 1>2 2>3 3>0" in found
    # Two rings of two nodes each have the right degrees.
    pairs = RingGraphs(4).pairs
    two = np.array([[int(pair in {(0, 1), (1, 0), (2, 3), (3, 2)}) for pair in pairs]], np.int32)
    assert not RingGraphs(4).is_ring(two)[0]


def test_a_policy_in_proportion_turns_left_as_often_as_the_leaves_say():
    graph = enumerate_states(PerfectTree(4))
    left = graph.states.node[graph.done] < 24
    assert graph.target_distribution[graph.done][left].sum() == pytest.approx(0.264705882, abs=1e-9)


def test_bags_of_letters():
    env = Bags(3, 4, BagModes(equal=3))
    graph = enumerate_states(env)
    assert len(graph.done) == env.num_states == 35 and graph.done.sum() == 15
    counts = graph.states.counts[graph.done]
    good = counts.max(1) >= 3
    assert good.sum() == 9 and env.num_modes == 2
    reward = np.exp(graph.log_reward[graph.done])
    np.testing.assert_allclose(np.sort(reward), [0.01] * 6 + [10] * 7 + [30] * 2)
    assert (reward[~good] < 1).all()
    mode = env.mode(graph.states)[graph.done]
    np.testing.assert_array_equal(mode >= 0, reward > 29)
    assert sorted(mode[mode >= 0]) == [0, 1]
    assert env.log_partition == pytest.approx(graph.log_z, abs=1e-12)
    check_env(env)
    same_paths(env)


def test_the_published_bag():
    env = Bags()
    assert not check_env(env, limit=2_000).enumerated
    assert env.num_modes == 1617  # a quarter of 7 C(12, 6) = 6,468
    z = 1617 * 30 + (6468 - 1617) * 10 + (27_132 - 6468) * 0.01
    assert env.log_partition == pytest.approx(math.log(z), abs=1e-12)
    # Drawn uniformly from good bags the reward is the published 15.0; in proportion to R it is 20.
    assert (1617 * 30 + 4851 * 10) / 6468 == 15.0


def test_bags_without_a_good_one_have_no_modes():
    env = Bags(3, 5)
    assert env.num_modes == 0
    assert env.log_partition == pytest.approx(math.log(21 * 0.01))
    states = enumerate_states(env).states
    assert Samples.empty(env, 56, 56).update(env, states).modes.tolist() == [False]


def test_bags_of_many_letters_are_numbered():
    """Of 40 places 20 can be chosen in more ways than an int32 counts."""
    env = Bags(40, 2, BagModes(equal=2, share=1.0))
    assert env.num_modes == 40
    graph = enumerate_states(env)
    assert graph.log_z == pytest.approx(env.log_partition) == pytest.approx(math.log(40 * 30 + 780 * 0.01))


def test_modes_of_bags_are_marked_within_a_program():
    """There the world's constants are no numbers yet, but how many modes there are has to be known."""
    env = Bags(3, 4, BagModes(equal=3))
    states = jax.tree.map(jnp.asarray, pick(enumerate_states(env).states, np.arange(20, 35)))
    empty = jax.tree.map(jnp.asarray, Samples.empty(env, 15, 15))
    marked = jax.jit(lambda constants: empty.update(env.given(constants), states).modes)(env.constants())
    assert marked.tolist() == [True, True]


def test_objects_are_shown():
    assert Sets(5, 2).text(np.array([[0, 1, 0, 0, 1]]), 0) == "{1, 4}"
    assert Bags(3, 4).text(np.array([[3, 0, 1]]), 0) == "a3 c1"
    assert PerfectTree(3).text(np.array([0b1011]), 0) == "LRR"
    env = RingGraphs(3)
    graph = enumerate_states(env)
    share = env.measures(graph.states, graph.target_distribution)["ring_share"]
    assert share == pytest.approx(200 / 200.000062) and set(env.titles) == {"ring_share"}
    graph = enumerate_states(PerfectTree(3))
    leaves = PerfectTree(3).picture(graph.states, graph.target_distribution)
    assert leaves is not None
    np.testing.assert_allclose(leaves, np.arange(1, 9)[None] / 36)


def test_rings_are_drawn():
    pytest.importorskip("PIL")
    for env in (RingGraphs(4), RingGraphs(4, directed=False)):
        empty = env.draw(np.zeros((1, env.num_backward_actions), np.int32), 0)
        full = env.draw(np.ones((1, env.num_backward_actions), np.int32), 0)
        assert full.shape == empty.shape == (160, 160, 3) and full.dtype == np.uint8
        assert (full != empty).any(-1).sum() > 500


def test_a_reward_that_knows_no_partition_function_gives_none():
    assert Sets(5, 2, reward=Uniform()).log_partition is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sets(5, 6), "size is 6 of number=5 items; it must be from 1 to 5"),
        (lambda: Sets(4, 2, reward=WEIGHTS), "5 weights for 4 items; give one for each"),
        (lambda: ItemWeights((1.0, 0.0)), "gives item 1 the weight 0.0"),
        (lambda: Bags(1, 4), "letters is 1; it must be at least 2"),
        (lambda: Bags(20, 30), "make [0-9,]+; take at most 2,000,000"),
        (lambda: BagModes(share=2.0), "share is 2.0"),
        (lambda: BagModes(other=0.0), "other is 0.0"),
        (lambda: PerfectTree(40), "depth is 40; it must be from 1 to 29"),
        (lambda: RingGraphs(2), "nodes is 2; it must be from 3 to 60"),
        (lambda: Ring(other=0.0), "other is 0.0"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(TwinaxError, match=words):
        make()
