"""Graphs as a world: rules, exact posteriors against numbers from independent code, data, pictures, sentences."""

from __future__ import annotations

import importlib
import itertools

import jax.tree_util as jtu
import numpy as np
import pytest
from golden_graphs import samples

from twinax import ops, recipe
from twinax.envs import DAG, BGe, FrozenArray, LinearGaussian, Uniform, check_env, enumerate_states
from twinax.envs import _dag_measures as measured
from twinax.envs._dag import DAGState, posterior
from twinax.errors import TwinaxError

COLLIDER = [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
"""0 -> 1 <- 2."""
REWARDS = {"bge": BGe(), "linear": LinearGaussian()}


def world(number: int, reward="bge", **options) -> DAG:
    return DAG(data=samples(number), reward=REWARDS[reward], **options)


def finished(env: DAG, *graphs) -> DAGState:
    """States that stopped in these graphs; their closures are not read by rewards."""
    adjacency = np.array(graphs, bool).reshape(-1, env.num_nodes, env.num_nodes)
    return DAGState(adjacency, adjacency.copy(), np.ones(len(adjacency), bool))


def score(env: DAG, node: int, parents: tuple[int, ...]) -> float:
    table = env.constants()["parent_scores"].reshape(env.num_nodes, -1)
    return float(table[node, sum(2**p for p in parents)])


# Rules


@pytest.mark.parametrize(
    ("number", "most", "states"), [(3, None, 50), (4, None, 1086), (4, 1, 250)], ids=["three", "four", "few-parents"]
)
def test_the_rules_fit_together(number, most, states):
    env = world(number, max_parents=most)
    report = check_env(env)
    assert report.enumerated and report.states == states == env.num_states
    assert report.longest == env.max_steps


def test_the_rules_fit_together_at_the_published_size():
    report = check_env(DAG(num_nodes=11, num_samples=20), quick=True)
    assert not report.enumerated and report.done > 0
    assert DAG(num_nodes=11).max_steps == 56


@pytest.mark.parametrize(("number", "states", "edges"), [(3, 50, 48), (4, 1086, 2016), (5, 58562, 176320)])
def test_numbers_of_graphs_and_of_edges_between_them(number, states, edges):
    env = world(number)
    graph = enumerate_states(env, 2_000_000)
    assert len(graph.done) == states == env.num_states
    assert (graph.action != env.num_actions - 1).sum() == edges
    by_edges = np.bincount(graph.states.adjacency[graph.done].sum((1, 2)))
    expected = {3: [1, 6, 12, 6], 4: [1, 12, 60, 152, 186, 108, 24]}
    assert by_edges.tolist() == expected.get(number, by_edges.tolist())
    assert by_edges[-1] == {3: 6, 4: 24, 5: 120}[number]


def test_every_graph_is_acyclic_and_its_closure_is_its_paths():
    graph = enumerate_states(world(4), 2_000_000)
    adjacency = graph.states.adjacency
    reach = measured.paths(adjacency)
    assert not reach[:, np.arange(4), np.arange(4)].any()
    np.testing.assert_array_equal(graph.states.closure, reach.swapaxes(1, 2) | np.eye(4, dtype=bool))


# Scores


def test_the_data_of_the_golden_values():
    np.testing.assert_allclose(samples(3)[0], [0.84147098, 1.26220648, 1.26220648], atol=5e-9)


@pytest.mark.parametrize(
    ("reward", "node", "parents", "expected"),
    [
        ("bge", 0, (), -13.04402587),
        ("bge", 1, (), -14.80284692),
        ("bge", 2, (), -11.69613136),
        ("bge", 1, (0, 2), -13.59065708),
        ("linear", 0, (), -22.68361303),
        ("linear", 1, (0,), -23.51763209),
        ("linear", 2, (0, 1), -13.58297617),
    ],
)
def test_scores_of_nodes(reward, node, parents, expected):
    assert score(world(3, reward), node, parents) == pytest.approx(expected, abs=6e-9)


@pytest.mark.parametrize("number", [3, 4, 5])
@pytest.mark.parametrize("reward", REWARDS)
def test_posteriors(reward, number):
    expected = {
        ("bge", 3): (-39.54300415, -36.37892515, 1.863884, 2.967641),
        ("bge", 4): (-54.42324355, -49.81471293, 3.067997, 5.408957),
        ("bge", 5): (-69.47389656, -62.34367696, 4.770760, 8.956889),
        ("linear", 3): (-70.31305024, -55.31642887, 2.348531, 1.562455),
        ("linear", 4): (-100.86943866, -79.64768376, 5.186056, 2.362066),
        ("linear", 5): (-132.30878748, -100.06548921, 7.518614, 4.295529),
    }[reward, number]
    env = world(number, reward)
    graph = enumerate_states(env, 2_000_000)
    graphs, exact = posterior(env)
    empty = float(env.log_reward(finished(env, np.zeros((number, number))))[0])
    numbers = env.measures(DAGState(graphs, graphs, np.ones(len(graphs), bool)), exact)
    assert (empty, graph.log_z) == pytest.approx(expected[:2], abs=6e-9)
    assert (numbers["expected_edges"], numbers["entropy"]) == pytest.approx(expected[2:], abs=6e-7)


def test_graphs_that_say_the_same_are_paid_the_same():
    """BGe gives every complete graph one score, whatever its parameters; the linear-Gaussian score does not."""
    complete = []
    for order in itertools.permutations(range(3)):
        graph = np.zeros((3, 3), bool)
        graph[np.ix_(order, order)] = np.triu(np.ones((3, 3), bool), 1)
        complete.append(graph)
    env = world(3)
    np.testing.assert_allclose(env.log_reward(finished(env, *complete)), -39.77629066, atol=6e-9)
    other = DAG(data=samples(3), reward=BGe(mean_strength=2.5, degrees=7.5))
    assert np.ptp(other.log_reward(finished(other, *complete))) < 1e-10
    linear = world(3, "linear")
    assert np.ptp(linear.log_reward(finished(linear, *complete))) > 0.1


def test_the_linear_score_is_a_normal_density():
    env, x = DAG(data=samples(4), reward=LinearGaussian(variance=0.3, weight_variance=2.0)), samples(4)
    for node in range(4):
        for size in range(4):
            for parents in itertools.combinations([k for k in range(4) if k != node], size):
                chosen = x[:, list(parents)]
                covariance = 0.3 * np.eye(10) + 2.0 * chosen @ chosen.T
                density = -0.5 * (
                    x[:, node] @ np.linalg.solve(covariance, x[:, node])
                    + np.linalg.slogdet(covariance)[1]
                    + 10 * np.log(2 * np.pi)
                )
                assert score(env, node, parents) == pytest.approx(density, abs=1e-9)


def test_priors():
    by_parents = {
        "uniform": BGe(),
        "edge": BGe(prior="edge", beta=0.25),
        "erdos_renyi": BGe(prior="erdos_renyi", edge_probability=0.3),
        "fair": BGe(prior="fair"),
    }
    plain = world(4)
    for name, reward in by_parents.items():
        env = DAG(data=samples(4), reward=reward)
        added = [score(env, 3, parents) - score(plain, 3, parents) for parents in ((), (0,), (0, 2), (0, 1, 2))]
        expected = {
            "uniform": [0.0] * 4,
            "edge": [k * np.log(0.25) for k in range(4)],
            "erdos_renyi": [k * np.log(0.3) + (3 - k) * np.log(0.7) for k in range(4)],
            "fair": [-np.log(n) for n in (1, 4, 6, 4)],
        }[name]
        np.testing.assert_allclose(added, expected, atol=1e-9)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_unfinished_graphs_have_scores_in_every_framework(framework):
    framework = importlib.import_module({"jax": "jax.numpy"}.get(framework, framework))
    env = world(3)
    states = finished(env, COLLIDER)._replace(done=np.zeros(1, bool))
    expected = score(env, 0, ()) + score(env, 1, (0, 2)) + score(env, 2, ())
    given = ops.like(states, framework.zeros(()))
    assert float(env.log_energy(given)[0]) == pytest.approx(expected, rel=1e-6)


# What is asked of a posterior


def test_marginals_and_distances():
    env = DAG(data=samples(3), graph=COLLIDER)
    graphs, exact = posterior(env)
    edge, path, blanket = measured.marginals(graphs, exact)
    np.testing.assert_allclose(
        edge, [[0, 0.386809, 0.179244], [0.330641, 0, 0.370718], [0.174416, 0.422057, 0]], atol=6e-7
    )
    np.testing.assert_allclose(
        path, [[0, 0.403326, 0.255783], [0.347158, 0, 0.381589], [0.250955, 0.432928, 0]], atol=6e-7
    )
    np.testing.assert_allclose([blanket[0, 1], blanket[0, 2], blanket[1, 2]], [0.748095, 0.495665, 0.812945], atol=6e-7)
    states = DAGState(graphs, graphs, np.ones(25, bool))
    numbers = env.measures(states, exact)
    assert numbers["expected_shd"] == pytest.approx(1.544794, abs=6e-7)
    assert all(numbers[f"{name}_correlation"] == pytest.approx(1.0) for name in ("edge", "path", "blanket"))
    others = ((0, 2), (1, 0), (1, 2), (2, 0))
    assert numbers["auroc"] == pytest.approx(np.mean([edge[e] > edge[o] for e in ((0, 1), (2, 1)) for o in others]))
    uniform = np.full(25, 1 / 25)
    middle = (exact + uniform) / 2
    jsd = sum(0.5 * np.sum(p * np.log(p / middle)) for p in (exact, uniform))
    assert jsd == pytest.approx(0.061667218, abs=6e-10)
    assert 0.5 * np.abs(exact - uniform).sum() == pytest.approx(0.286340332, abs=6e-10)
    assert np.isnan(env.measures(states, uniform)["edge_correlation"])  # all edges alike: nothing to correlate
    by_edges = uniform * np.exp(0.1 * graphs[:, 1, 2])
    assert env.measures(states, by_edges / by_edges.sum())["edge_correlation"] < 0.5


def test_samples_have_no_entropy():
    env = world(3)
    graphs, _ = posterior(env)
    few = DAGState(graphs[:4], graphs[:4], np.ones(4, bool))
    assert "entropy" not in env.measures(few, np.full(4, 0.25))


def test_a_reversed_edge_is_one_difference():
    env = world(3)
    chain, other, empty = [[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 0, 0], [1, 0, 1], [0, 0, 0]], np.zeros((3, 3))
    states = finished(env, chain, other, empty)
    assert env.distance(states, states).tolist() == [[0, 1, 2], [1, 0, 2], [2, 2, 0]]
    assert env.distance(states.adjacency, states.adjacency[:0]).shape == (3, 0)


def test_area_under_the_curve_counts_ties_half():
    truth = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert measured.area_under_curve(np.zeros((3, 3)), truth) == 0.5
    assert measured.area_under_curve(np.eye(3) + 2 * truth, truth) == 1.0
    assert np.isnan(measured.area_under_curve(np.eye(3), 0 * truth))


# Data


def test_simulated_data_follow_their_graph_in_the_order_of_the_nodes():
    """Regressing each column on its parents leaves the noise; the same graph with other names does not."""
    env = DAG(num_nodes=6, num_samples=4000, edges_per_node=1.5, seed=3)
    x, graph = env.observations.samples.values, env.true_graph
    assert graph is not None and graph.sum() >= 4 and (graph & graph.T).sum() == 0
    assert not np.array_equal(graph, np.triu(graph))

    def left(graph):
        fits = [np.linalg.lstsq(x[:, graph[:, j]], x[:, j], rcond=None)[0] for j in range(6)]
        return [np.var(x[:, j] - x[:, graph[:, j]] @ fits[j]) for j in range(6)]

    np.testing.assert_allclose(left(graph), 0.1, rtol=0.1)
    assert max(left(np.roll(graph, 1, (0, 1)))) > 0.2
    assert env == DAG(num_nodes=6, num_samples=4000, edges_per_node=1.5, seed=3)
    assert env != DAG(num_nodes=6, num_samples=4000, edges_per_node=1.5, seed=4)


@pytest.mark.parametrize("reward", REWARDS)
def test_many_samples_show_which_nodes_are_joined(reward):
    """The best of all graphs has the edges of the true one, up to directions that data cannot tell."""
    for seed in range(4):
        env = DAG(num_nodes=4, num_samples=5000, seed=seed, reward=REWARDS[reward])
        graphs, exact = posterior(env)
        best, truth = graphs[exact.argmax()], env.true_graph
        assert truth is not None and truth.any()
        np.testing.assert_array_equal(best | best.T, truth | truth.T)


def test_the_number_of_simulated_edges():
    counts = [DAG(num_nodes=8, num_samples=2, seed=seed).true_graph.sum() for seed in range(200)]  # type: ignore
    assert np.mean(counts) == pytest.approx(8, abs=0.5)


def test_data_from_files(tmp_path):
    x = samples(3)
    text = "\n".join(",".join(map(repr, row.tolist())) for row in x)
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "named.csv").write_text("PIP2,PKA,Raf\n" + text)
    (tmp_path / "graph.csv").write_text("\n".join(",".join(map(str, row)) for row in COLLIDER))
    np.savez(tmp_path / "both.npz", samples=x, names=np.array(["a", "b", "c"]), graph=np.array(COLLIDER))
    plain = DAG(data=str(tmp_path / "plain.csv"))
    named = DAG(data=tmp_path / "named.csv", graph=tmp_path / "graph.csv")
    both = DAG(data=tmp_path / "both.npz")
    for env in (plain, named, both):
        np.testing.assert_array_equal(env.observations.samples.values, x)
        assert env.num_nodes == 3 and env.constants()["parent_scores"].shape == (24,)
    assert plain.true_graph is None and plain.files == (tmp_path / "plain.csv",)
    assert named.files == (tmp_path / "named.csv", tmp_path / "graph.csv")
    assert named.text(np.array([COLLIDER]), 0) == "PIP2->PKA, Raf->PKA"
    assert plain.text(np.zeros((1, 3, 3)), 0) == "no edges"
    for env in (named, both):
        np.testing.assert_array_equal(env.true_graph, np.array(COLLIDER, bool))
    standard = DAG(data=1e3 * x + 5, standardise=True).observations.samples.values
    np.testing.assert_allclose(standard, (x - x.mean(0)) / x.std(0), atol=1e-9)


def test_a_world_with_data_is_equal_by_contents_and_can_be_written_down():
    one, other = world(3, graph=COLLIDER), world(3, graph=COLLIDER)
    assert one == other and hash(one) == hash(other) and one != DAG(data=samples(3) + 1e-9, graph=COLLIDER)
    written = recipe.recipe_of(one)
    assert recipe.rebuild(written) == one
    assert "FrozenArray(10 x 3 of float64" in repr(one) and len(repr(one)) < 500
    changed = {**written, "with": {**written["with"], "data": recipe.recipe_of(FrozenArray.of(samples(3)[:5]))}}
    assert recipe.rebuild(changed) != one


@pytest.mark.parametrize("array", [np.eye(2), np.arange(3), np.array([["a", "bc"]]), np.zeros((0, 2)), [True, False]])
def test_arrays_come_back_from_their_frozen_form(array):
    kept = FrozenArray.of(array)
    np.testing.assert_array_equal(kept.values, array)
    assert kept.values.shape == np.shape(array)
    assert recipe.rebuild(recipe.recipe_of(kept)) == kept
    with pytest.raises(ValueError, match="read-only"):
        kept.values[...] = 0


def test_a_frozen_array_is_what_it_says():
    with pytest.raises(TwinaxError, match="an array of 3 entries was written down as"):
        FrozenArray("float64", (2, 2), FrozenArray.of(np.zeros(3)).contents)
    with pytest.raises(TwinaxError, match="an array of complex128 cannot be kept"):
        FrozenArray.of(np.zeros(2, complex))


# Pictures


def test_a_graph_is_drawn():
    pytest.importorskip("matplotlib")
    env = DAG(data=samples(3), graph=COLLIDER)
    picture = env.draw(np.array([COLLIDER, np.zeros((3, 3))]), 0)
    assert picture.shape[2] == 3 and picture.dtype == np.uint8
    empty = env.draw(np.array([COLLIDER, np.zeros((3, 3))]), 1)
    assert picture.shape == empty.shape and not np.array_equal(picture, empty)


# Sentences


def broken(column=None, value=np.nan):
    x = samples(3)
    if column is not None:
        x[4, column] = value
    return x


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"data": broken(1)}, "the data has nan in row 4, column 1"),
        ({"data": broken(2, np.inf)}, "has inf in row 4, column 2"),
        ({"data": samples(3) * [1, 0, 1]}, "has the constant column 1"),
        ({"data": samples(3)[0]}, r"has the shape \(3,\); it must be a table"),
        ({"data": samples(3)[:1]}, r"has the shape \(1, 3\)"),
        ({"data": [["a", "b"], ["c", "d"]]}, "data is no table of numbers"),
        ({"data": samples(3), "num_nodes": 4}, "num_nodes is 4, but the data have 3 columns"),
        ({"data": samples(3), "graph": np.zeros((2, 2))}, r"the true graph has the shape \(2, 2\)"),
        ({"data": samples(3), "graph": np.eye(3)}, "0 on the diagonal"),
        ({"graph": np.zeros((5, 5))}, "no data were given"),
        ({"data": "nowhere.csv"}, "nowhere.csv cannot be read as CSV"),
        ({"data": "nowhere.npz"}, "nowhere.npz cannot be read: No such file"),
        ({"num_nodes": 1}, "num_nodes is 1; it must be at least 2"),
        ({"num_nodes": 17}, "for at most 16 nodes, and there are 17"),
        ({"num_nodes": 1000}, "num_nodes is 1000; it must be at most 256"),
        ({"num_samples": 1}, "num_samples is 1"),
        ({"num_samples": 10**9}, "num_samples=1,000,000,000 are more than 20,000,000 numbers"),
        ({"edges_per_node": -1.0}, "edges_per_node is -1.0"),
        ({"max_parents": 5}, "max_parents is 5; it must lie between 1 and 4"),
        ({"reward": BGe(degrees=3.0)}, "degrees is 3.0; for 5 nodes it must be above 6"),
    ],
)
def test_bad_input_is_one_sentence(options, sentence):
    with pytest.raises(TwinaxError, match=sentence) as error:
        DAG(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1,2\n3", "has 1 columns in row 1, counted from 0, and 2 before"),
        ("a,b\n1,2\n3,x", "has 'x' in row 1"),
        ("a,b", "has no rows of numbers"),
        ("a,b\n1,nan\n2,3", r"has nan in row 0, column 1 \('b'\)"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, text, sentence):
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(TwinaxError, match=sentence):
        DAG(data=tmp_path / "data.csv")


def test_bad_npz_files_are_one_sentence(tmp_path):
    np.savez(tmp_path / "other.npz", rows=np.zeros((2, 2)))
    with pytest.raises(TwinaxError, match="has no array 'samples'"):
        DAG(data=tmp_path / "other.npz")
    np.savez(tmp_path / "objects.npz", samples=np.array([[{}, 1]], object), allow_pickle=True)
    with pytest.raises(TwinaxError, match="holds Python objects, which are never loaded"):
        DAG(data=tmp_path / "objects.npz")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: BGe(prior="flat"), "unknown prior over graphs 'flat'; known: edge"),
        (lambda: BGe(beta=0.0), "beta is 0.0"),
        (lambda: BGe(edge_probability=1.0), "edge_probability is 1.0"),
        (lambda: BGe(mean_strength=0.0), "mean_strength is 0.0"),
        (lambda: LinearGaussian(variance=-1.0), "variance is -1.0"),
    ],
)
def test_bad_rewards_are_one_sentence(make, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        make()


def test_other_worlds_and_other_rewards():
    from twinax.envs import Hypergrid

    with pytest.raises(TwinaxError, match="BGe scores graphs over the columns of data, and Hypergrid has none"):
        check_env(Hypergrid(2, 3).with_reward(BGe()))
    assert DAG(num_nodes=20, reward=Uniform()).num_actions == 401
    paid = DAG(num_nodes=3, reward=lambda graphs: 1.0 + graphs.sum((1, 2)))
    assert enumerate_states(paid).log_z == pytest.approx(np.log(1 * 1 + 6 * 2 + 12 * 3 + 6 * 4))
    assert "edge_correlation" not in paid.measures(finished(paid, np.zeros((3, 3))), np.ones(1))


def test_shapes_and_memory_at_the_published_size():
    """Eleven proteins in batches of 128: what a step draws and what a state holds."""
    from twinax import gflownet

    options = gflownet.PolicyOptions(backward="uniform")
    problem = gflownet.problem(DAG(num_nodes=11), "modified_detailed_balance", batch_size=128, policy=options)
    state = problem.init(0)
    assert sum(np.prod(draw.shape) for draw in problem.draws().values()) == 2 * 56 * 128
    assert state.carry.objects.adjacency.shape[1:] == (11, 11) and state.carry.objects.adjacency.dtype == bool
    leaves = [leaf for leaf in jtu.tree_leaves(state) if hasattr(leaf, "nbytes")]
    assert sum(leaf.nbytes for leaf in leaves) < 20e6
    assert problem.env.constants()["parent_scores"].nbytes == 8 * 11 * 2**11
    assert problem.graph is None
