"""Phylogenetic trees: published counts, costs and log Z, Fitch's rules against all assignments, files and sentences."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

import twinax as tx
from twinax.envs import Parsimony, PhylogeneticTree, check_env, enumerate_states, read_alignment, simulate_alignment
from twinax.envs._parsimony import patterns_of
from twinax.envs.state_rows import pick, rows_of
from twinax.errors import TwinaxError

FOUR = ("ACGTACGT", "ACGTTCGA", "ACCTTCGA", "GCCTACGA")
FIVE = ("AACGTACG", "AACGTTCG", "ACCGTTCA", "GCCTTTCA", "GCCTAACA")
PUBLISHED = {  # taxa, different columns of the eight alignments of the field
    "DS1": (27, 934), "DS2": (29, 1253), "DS3": (36, 1020), "DS4": (41, 769),
    "DS5": (50, 256), "DS6": (50, 493), "DS7": (59, 1037), "DS8": (64, 407),
}  # fmt: skip


@pytest.mark.parametrize(
    "sequences, temperature, costs, log_z",
    [
        (FOUR, 1.0, {5: 10, 6: 5}, -2.528567284),
        (FOUR, 4.0, {5: 10, 6: 5}, 1.381457374),
        (FIVE, 1.0, {7: 7, 9: 28, 10: 21, 11: 49}, -4.455851435),
        (FIVE, 4.0, {7: 7, 9: 28, 10: 21, 11: 49}, 2.199870636),
    ],
)
@pytest.mark.parametrize("columns", ["telling", "all"])
def test_costs_and_log_z_of_all_trees(sequences, temperature, costs, log_z, columns):
    env = PhylogeneticTree(sequences=sequences, columns=columns, reward=Parsimony(temperature))
    graph = enumerate_states(env)
    trees = pick(graph.states, np.flatnonzero(graph.done))
    assert Counter(env.changes(trees).tolist()) == costs
    assert graph.log_z == pytest.approx(log_z, abs=1e-8)
    shifted = enumerate_states(PhylogeneticTree(sequences=sequences, reward=Parsimony(temperature, 100.0)))
    assert shifted.log_z == pytest.approx(log_z + 100 / temperature, abs=1e-8)


def test_the_best_trees_of_five_join_the_pairs_that_agree():
    env = PhylogeneticTree(sequences=FIVE)
    graph = enumerate_states(env)
    trees = pick(graph.states, np.flatnonzero(graph.done))
    best = pick(trees, np.flatnonzero(env.changes(trees) == 7))
    texts = [env.text(env.objects(best), k) for k in range(7)]
    assert any("(0,1)" in text and "(3,4)" in text for text in texts)


@pytest.mark.parametrize("taxa, states, edges", [(3, 7, 6), (4, 37, 39), (5, 266, 310), (6, 2431, 3000)])
def test_counts(taxa, states, edges):
    env = PhylogeneticTree(taxa=taxa, columns="all")
    graph = enumerate_states(env)
    assert (len(graph.done), len(graph.source), env.num_states) == (states, edges, states)
    assert graph.done.sum() == np.prod(np.arange(1, 2 * taxa - 2, 2))
    paths = np.zeros(states)
    paths[0] = 1
    for source, target in zip(graph.source, graph.target, strict=True):
        paths[target] += paths[source]
    assert paths[graph.done].sum() == np.prod([k * (k - 1) // 2 for k in range(2, taxa + 1)])
    # The closed form of the maximum-entropy backward policy, against paths counted edge by edge.
    undo = env.backward_action(pick(graph.states, graph.target), graph.action)
    ratio = tx.ops.softmax(env.log_paths_ratio(graph.states), env.backward_mask(graph.states))
    np.testing.assert_allclose(ratio[graph.target, undo], paths[graph.source] / paths[graph.target], rtol=1e-6)


@pytest.mark.parametrize("columns", ["telling", "all"])
def test_rules_hold(columns):
    report = check_env(PhylogeneticTree(sequences=FIVE, columns=columns))
    assert report.enumerated and report.frameworks == ("numpy", "jax", "torch")


def test_states_stay_of_one_kind_in_float64():
    with jax.enable_x64(True):
        env = PhylogeneticTree(sequences=FIVE)
        state = tx.ops.like(env.reset(2), jax.numpy.zeros(()))
        action = jax.numpy.zeros(2, "int32")
        for rule in (env.step, env.backward_step):
            moved = jax.eval_shape(rule, state, action)
            assert [x.dtype for x in moved] == [x.dtype for x in state]
        assert jax.eval_shape(env.log_reward, state).dtype == "float64"


def test_the_order_of_merges_leaves_no_trace():
    env = PhylogeneticTree(sequences=FIVE)
    orders = ([0, 9, 1, 2], [9, 0, 1, 2], [9, 1, 0, 2])  # 01, 34, then 02, then 03; and others
    first, second, _ = (_merged(env, order) for order in orders)
    np.testing.assert_array_equal(rows_of(first), rows_of(second))
    assert env.text(env.objects(first), 0) == "(((0,1),2),(3,4));"


def _merged(env, actions):
    state = env.reset(1)
    for action in actions:
        assert env.forward_mask(state)[0, action] or state.done[0]
        state = env.step(state, np.array([action], np.int32))
    return state


def test_changes_are_the_fewest_of_all_assignments():
    rng = np.random.default_rng(3)
    letters = np.array(list("ACGT-NRY?"))
    sequences = tuple("".join(letters[rng.integers(len(letters), size=12)]) for _ in range(4))
    env = PhylogeneticTree(sequences=sequences)
    graph = enumerate_states(env)
    trees = pick(graph.states, np.flatnonzero(graph.done))
    sets = env.alignment.sets()
    for row, changes in enumerate(env.changes(trees)):
        edges = [
            (n, slot)
            for slot in range(4)
            if trees.size[row, slot]
            for n in (trees.left[row, slot], trees.right[row, slot])
        ]
        assert changes == sum(_fewest(edges, column) for column in sets.T)


def _fewest(edges, column):
    states = (16, 8, 4, 2, 1)
    inner = sorted({slot for _, slot in edges})
    best = 99
    for given in itertools.product(states, repeat=len(inner)):
        at = dict(zip(inner, given, strict=True))
        best = min(best, sum(_changed(child, at[slot], at, column) for child, slot in edges))
    return best


def _changed(child, above, at, column):
    return not column[child] & above if child < 4 else at[child - 4] != above


def test_a_network_sees_the_states_at_the_tops():
    env = PhylogeneticTree(sequences=("AAC", "AAC", "CTG", "CTG"))  # every column tells trees apart
    state = _merged(env, [0])  # 0 and 1 are equal
    seen = env.observe(state)
    assert seen.present.tolist() == [[True, False, True, True]]
    np.testing.assert_array_equal(seen.features[0, 1], 0)
    before = env.observe(env.reset(1)).features[0, 0]
    np.testing.assert_allclose(before, [1, 0, 1, 0, 1, 0, 0, 0.25])  # A of C and A, A of T and A, C of G and C
    np.testing.assert_allclose(seen.features[0, 0], [*before[:7], 0.5])
    assert env.observation_size == 4 * 9
    mixed = env.observe(_merged(env, [1])).features[0, 0]  # 0 and 2 have nothing in common: all of both
    np.testing.assert_allclose(mixed, [1, 1, 1, 1, 1, 1, 1, 0.5])
    every = PhylogeneticTree(sequences=("AAC", "AAC", "CTG", "CTG"), columns="all").observe(env.reset(1))
    np.testing.assert_array_equal(every.features[0, 0].reshape(3, 5).argmax(1), [0, 0, 1])


def test_distances_between_trees_are_groups_that_differ():
    env = PhylogeneticTree(sequences=FIVE)
    graph = enumerate_states(env)
    objects = env.objects(pick(graph.states, np.flatnonzero(graph.done)))
    distance = env.distance(objects, objects)
    assert (np.diag(distance) == 0).all() and (distance == distance.T).all()
    assert distance.max() == 6 and (distance[~np.eye(len(distance), dtype=bool)] >= 2).all()  # all but the whole differ


def test_pictures_and_held_out_trees():
    env = PhylogeneticTree(taxa=10, sites=300)
    trees = env.test_states(0)
    changes = env.changes(trees)
    assert trees.done.all() and (rows_of(trees) == rows_of(env.test_states(0))).all()
    assert changes.max() - changes.min() > 10 and changes[:8].mean() > changes[-8:].mean()
    found = env.measures(trees, np.full(32, 1 / 32))
    assert found == {"mean_changes": pytest.approx(changes.mean()), "fewest_changes": changes.min()}
    drawn = env.draw(env.objects(trees), 0)
    assert drawn is not None and drawn.dtype == np.uint8 and drawn.shape[2] == 3 and drawn.std() > 1
    long = PhylogeneticTree(sequences=FIVE, names=(*"abcd", "W" * 30))
    for one in (env, long):  # names are drawn to their end
        trees = one.test_states(0)
        assert (one.draw(one.objects(trees), 0)[:, -4:] == 255).all()


def test_files_of_both_kinds_give_the_same(tmp_path):
    fasta, by_name, listed = tmp_path / "a.fasta", tmp_path / "a.json", tmp_path / "b.json"
    fasta.write_text("".join(f">t{k} of a kind\n{s[:4].lower()}\n{s[4:]}\n" for k, s in enumerate(FIVE)))
    by_name.write_text(json.dumps({f"t{k}": s for k, s in enumerate(FIVE)}))
    listed.write_text(json.dumps(list(FIVE)))
    first, second, third = (PhylogeneticTree(data=str(path)) for path in (fasta, by_name, listed))
    assert first.alignment.sequences == second.alignment.sequences == third.alignment.sequences == FIVE
    assert first.alignment.names == second.alignment.names == tuple(f"t{k}" for k in range(5))
    assert first.files == (fasta,)


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("a.fasta", ">a\nACGT\n>b\nACG\n>c\nACGT\n", "different lengths: 'a' has 4 sites and 'b' has 3"),
        ("a.fasta", ">a\nACGT\n>b\nACZT\n>c\nACGT\n", "the letter 'Z' at site 3 of sequence 2"),
        ("a.fasta", ">a\nACGT\n>b\nAC\u00e9T\n>c\nACGT\n", "at site 3 of sequence 2"),
        ("a.fasta", ">a\nACGT\n>a\nACGT\n>c\nACGT\n", "two sequences of the name 'a'"),
        ("a.fasta", ">a\nACGT\n>\nACGT\n", "sequence 2 of .* has no name"),
        ("a.fasta", ">a\nACGT\n>b\nACGT\n", "at least 3"),
        ("a.fasta", "ACGT\nACGT\n", "begins with 'A'"),
        ("a.fasta", "", "begins with ''"),
        ("a.fasta", ">a\n>b\nACGT\n>c\nACGT\n", "no letters for 'a'"),
        ("a.fasta", ">a\nAAAA\n>b\nAAAA\n>c\nAAAA\n>d\nAAAC\n", "no column that tells two trees apart"),
        ("a.json", '{"a": "ACGT", "b": 3}', "int as the sequence 'b'"),
        ("a.json", '{"a": "ACGT", ', "is no JSON"),
    ],
)
def test_a_file_that_is_no_alignment_is_one_sentence(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(TwinaxError, match=sentence):
        PhylogeneticTree(data=str(tmp_path / name))


def test_other_wrong_options_are_one_sentence(tmp_path):
    (tmp_path / "b.fasta").write_bytes(b"\xff\x00\x80")
    wrong = {
        "cannot be read": {"data": str(tmp_path / "none.fasta")},
        "is no file": {"data": str(tmp_path)},
        "is no text": {"data": str(tmp_path / "b.fasta")},
        "both data": {"data": "a", "sequences": FIVE},
        "2 names and 5 sequences": {"sequences": FIVE, "names": ("a", "b")},
        "taxa is 2": {"taxa": 2},
        "rate is 0": {"rate": 0.0},
        "columns is 'some'": {"columns": "some"},
        "more than 20,000,000 letters": {"sites": 10**9},
        "too many pairs": {"taxa": 10**6, "sites": 1},
    }
    for sentence, options in wrong.items():
        with pytest.raises(TwinaxError, match=sentence):
            PhylogeneticTree(**options)
    with pytest.raises(TwinaxError, match="temperature=0"):
        Parsimony(temperature=0.0)
    with pytest.raises(TwinaxError, match="Hypergrid has none"):
        env = tx.envs.Hypergrid(2, 3, reward=Parsimony())
        env.log_reward(env.reset(1))


def test_simulated_sequences_follow_jukes_and_cantor():
    # Two of the taxa differ at a site with probability 3/4 (1 - exp(-8 r t / 3)), t being exponential with mean 1 in
    # the coalescent: 3/4 (1 - 1 / (1 + 8 r / 3)) on average.
    rate, differ = 0.3, []
    for seed in range(300):
        a, b, *_ = simulate_alignment(4, 100, rate, seed).sequences
        differ.append(np.mean([x != y for x, y in zip(a, b, strict=True)]))
    expected = 0.75 * (1 - 1 / (1 + 8 * rate / 3))
    assert abs(np.mean(differ) - expected) < 4 * np.std(differ) / np.sqrt(len(differ))


def test_published_size():
    """27 taxa and 1,949 sites, as large as DS1: states are small, and the rules hold on random walks."""
    env = PhylogeneticTree(taxa=27, sites=1949, rate=0.1)
    state = env.reset(32)
    assert sum(x.nbytes for x in state) < 20_000 and env.num_actions == 351 and env.fixed_length
    assert check_env(env, quick=True).longest == 26


@pytest.mark.skipif("TWINAX_ALIGNMENTS" not in os.environ, reason="TWINAX_ALIGNMENTS is no folder with DS1.fasta ...")
def test_columns_of_the_published_alignments():
    for name, (taxa, different) in PUBLISHED.items():
        alignment = read_alignment(Path(os.environ["TWINAX_ALIGNMENTS"]) / f"{name}.fasta")
        patterns = patterns_of(alignment.sets())
        assert (len(alignment.names), patterns.different) == (taxa, different)
        if name == "DS1":
            assert len(patterns.weights) == 800
