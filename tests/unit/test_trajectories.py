"""Rollouts and scores: trajectories that the rules allow, and log-probabilities as a slow loop finds them."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import ops
from twinax.envs import GridReward, Hypergrid, enumerate_states
from twinax.errors import TwinaxError
from twinax.gflownet import Exploration, Networks, backward_rollout, forward_rollout, score
from twinax.gflownet._exploration import sample_actions, scheduled
from twinax.gflownet._visited import num_rows, visit

sys.path.insert(0, str(Path(__file__).parent))
from slow_scores import replay, slow_scores
from small_worlds import BitStrings, LeftToRight, backward_table, random_policy

WORLDS = {
    "grid": Hypergrid(2, 4, GridReward(0.1, 0.5, 2.0)),
    "line": Hypergrid(1, 5),
    "cube": Hypergrid(3, 3),
    "bits": BitStrings(3),
    "left-to-right": LeftToRight(4),
}
worlds = pytest.mark.parametrize("env", WORLDS.values(), ids=WORLDS)
BATCH = 13
FRAMEWORKS = {"numpy": np.zeros(()), "torch": torch.zeros(()), "jax": None}


@pytest.fixture(autouse=True)
def _double_precision(double_precision):
    """Choices are compared across frameworks, so no rounding may decide one."""


def uniforms(env, batch=BATCH, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((env.max_steps, batch, env.num_actions)), rng.random((env.max_steps, batch))


def to_torch(values):
    return jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), values)


def to_numpy(values):
    return jtu.tree_map(np.asarray, values)


def forward(env, policy, draws, **options):
    return forward_rollout(env, lambda seen: policy(seen).forward_logits, *draws, **options)


@functools.lru_cache
def sampled(name):
    """The same trajectories from the three frameworks."""
    env, policy = WORLDS[name], random_policy(WORLDS[name])
    draws = uniforms(env)
    return {
        "numpy": forward(env, policy, draws),
        "torch": to_numpy(forward(env, to_torch(policy), to_torch(draws))),
        "jax": to_numpy(jax.jit(lambda policy, draws: forward(env, policy, draws))(policy, draws)),
    }


def assert_state(batch, index, one):
    for x, y in zip(jtu.tree_leaves(batch), jtu.tree_leaves(one), strict=True):
        np.testing.assert_array_equal(x[index], y[0])


# Forwards


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_forward_rollouts_follow_the_rules(name, framework):
    env, trajectories = WORLDS[name], sampled(name)[framework]
    assert trajectories.length.max() <= env.max_steps
    for b in range(BATCH):
        states = replay(env, trajectories, b)
        for t, state in enumerate(states):
            assert_state(trajectories.states, (t, b), state)
        assert_state(trajectories.last, b, states[-1])
    assert np.asarray(trajectories.last.done).all()


@pytest.mark.parametrize("name", WORLDS)
def test_equal_draws_give_equal_actions(name):
    results = sampled(name)
    for framework in ("torch", "jax"):
        np.testing.assert_array_equal(results[framework].length, results["numpy"].length)
        for b, length in enumerate(results["numpy"].length):
            wanted = results["numpy"].actions[:length, b]
            np.testing.assert_array_equal(results[framework].actions[:length, b], wanted)


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_shrinking_batches_give_the_same_trajectories(batch):
    env = WORLDS["grid"]
    policy = random_policy(env, 3)
    run = jax.jit(lambda policy, draws: forward(env, policy, draws))
    for seed in range(12):
        draws = uniforms(env, batch, seed)
        wanted, got = forward(env, policy, draws), to_numpy(run(policy, draws))
        np.testing.assert_array_equal(got.length, wanted.length)
        for b, length in enumerate(wanted.length):
            np.testing.assert_array_equal(got.actions[:length, b], wanted.actions[:length, b])


def test_the_loop_ends_with_the_longest_trajectory():
    env = Hypergrid(2, 20)
    draws = uniforms(env, 4)
    calls = []

    def logits(seen):
        calls.append(1)
        return np.zeros((4, 3))

    trajectories = forward_rollout(env, logits, *draws)
    assert len(calls) == trajectories.length.max() < env.max_steps
    short = trajectories.trimmed()
    assert short.actions.shape[0] == trajectories.length.max()
    np.testing.assert_array_equal(short.last.position, trajectories.last.position)


def test_seeds_that_are_mapped_give_what_each_gives_alone():
    env, policy = WORLDS["grid"], jtu.tree_map(jnp.asarray, random_policy(WORLDS["grid"]))
    draws = [uniforms(env, 6, seed) for seed in range(3)]
    stacked = jtu.tree_map(lambda *xs: jnp.stack(xs), *draws)
    with ops.seed_axis("seeds"):
        mapped = jax.jit(jax.vmap(lambda draws: forward(env, policy, draws), axis_name="seeds"))(stacked)
    for k, one in enumerate(draws):
        wanted = forward(env, to_numpy(policy), one)
        np.testing.assert_array_equal(mapped.length[k], wanted.length)
        np.testing.assert_array_equal(mapped.states.position[k, -1], wanted.last.position)


# Behaviour


def frequencies(actions, number):
    return np.bincount(actions, minlength=number) / len(actions)


def test_sampled_actions_have_the_policy_s_distribution():
    rng = np.random.default_rng(0)
    logits, mask = np.array([1.0, 3.0, -1.0, 0.5, 2.0]), np.array([True, False, True, True, True])
    rows = 40_000
    spread = [np.broadcast_to(x, (rows, 5)) for x in (logits, mask)]
    draws, explore = rng.random((rows, 5)), rng.random(rows)
    wanted = ops.softmax(logits, mask) * mask
    for epsilon, temperature, target in (
        (0.0, 1.0, wanted),
        (1.0, 1.0, mask / 4),
        (0.25, 1.0, 0.75 * wanted + 0.25 * mask / 4),
        (0.0, 2.0, ops.softmax(logits / 2, mask) * mask),
        (0.0, 1e-4, np.eye(5)[4]),
    ):
        actions = sample_actions(*spread, draws, explore, epsilon, temperature)
        seen = frequencies(actions, 5)
        assert seen[1] == 0  # never one that is not allowed
        np.testing.assert_allclose(seen, target, atol=0.01)


def test_a_row_with_nothing_allowed_gives_some_action():
    nothing = np.zeros((2, 3), bool)
    assert sample_actions(np.zeros((2, 3)), nothing, np.full((2, 3), 0.5), np.ones(2), 0.0, 1.0).tolist() == [0, 0]


@worlds
def test_exploration_changes_actions_and_stays_inside_the_rules(env):
    policy, draws = random_policy(env, scale=3.0), uniforms(env, 64)
    plain = forward(env, policy, draws)
    for options in ({"epsilon": 1.0}, {"temperature": 5.0}):
        explored = forward(env, policy, draws, **options)
        assert not np.array_equal(plain.actions, explored.actions)
        for b in range(64):
            replay(env, explored, b)


def test_schedules():
    values = Exploration(epsilon=0.5, epsilon_end=0.1, epsilon_steps=100, temperature=3.0).settings()
    at = {step: float(scheduled(values["epsilon"], np.array(step))) for step in (0, 50, 100, 1000)}
    assert at == pytest.approx({0: 0.5, 50: 0.3, 100: 0.1, 1000: 0.1}, rel=1e-6)
    assert float(scheduled(values["temperature"], np.array(70))) == 3.0
    in_torch = scheduled(torch.from_numpy(values["epsilon"]), torch.tensor(50))
    in_jax = scheduled(jnp.asarray(values["epsilon"]), jnp.asarray(50))
    assert float(in_torch) == pytest.approx(0.3) and float(in_jax) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 1.5}, "epsilon is 1.5"),
        ({"epsilon_end": -0.1}, "epsilon_end is -0.1"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": 1e-30}, "temperature is 1e-30; it must be between 1e-06"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature_end": 1e30}, "temperature_end is 1e.30"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"epsilon_steps": float("nan")}, "epsilon_steps is nan; it must be a whole number"),
        ({"temperature_end": float("inf")}, "temperature_end is inf"),
        ({"epsilon_steps": -1}, "epsilon_steps is -1"),
    ],
)
def test_bad_exploration(options, words):
    with pytest.raises(TwinaxError, match=words):
        Exploration(**options)


# Backwards


def undone(env, framework):
    """Trajectories that end in every object, three times each."""
    graph = enumerate_states(env)
    rows = np.repeat(np.flatnonzero(graph.done), 3)
    final = jtu.tree_map(lambda x: x[rows], graph.states)
    uniform = np.random.default_rng(3).random((env.max_steps, len(rows), env.num_backward_actions))
    policy = random_policy(env)

    def run(policy, final, uniform):
        return backward_rollout(env, lambda state: policy(env.observe(state)).backward_logits, final, uniform)

    if framework == "torch":
        return final, to_numpy(run(*to_torch((policy, final, uniform))))
    if framework == "jax":
        return final, to_numpy(jax.jit(run)(policy, final, uniform))
    return final, run(policy, final, uniform)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@worlds
def test_backward_rollouts_follow_the_rules(env, framework):
    final, trajectories = undone(env, framework)
    for b in range(len(final.done)):
        states = replay(env, trajectories, b)
        for t, state in enumerate(states):
            assert_state(trajectories.states, (t, b), state)
        assert_state(final, b, states[-1])
        assert_state(trajectories.last, b, states[-1])
    wanted = undone(env, "numpy")[1]
    np.testing.assert_array_equal(trajectories.length, wanted.length)
    np.testing.assert_array_equal(trajectories.actions, wanted.actions)


def test_backward_rollouts_leave_their_input_alone():
    env = WORLDS["grid"]
    graph = enumerate_states(env)
    final = jtu.tree_map(lambda x: x[graph.done].copy(), graph.states)
    kept = final.position.copy()
    uniform = np.random.default_rng(0).random((env.max_steps, len(kept), 2))
    backward_rollout(env, lambda state: np.zeros((len(kept), 2)), final, uniform)
    np.testing.assert_array_equal(final.position, kept)
    assert final.done.all()


def test_backward_choices_have_the_policy_s_distribution():
    # Position (2, 1) of a grid: the last move was along axis 0 with probability 0.8.
    env, rows = Hypergrid(2, 4), 20_000
    final = type(env.reset(1))(np.tile(np.int32([2, 1]), (rows, 1)), np.ones(rows, bool))
    uniform = np.random.default_rng(0).random((env.max_steps, rows, 2))
    logits = np.log(np.tile([0.8, 0.2], (rows, 1)))
    trajectories = backward_rollout(env, lambda state: logits, final, uniform)
    assert (trajectories.length == 4).all()
    last_move = trajectories.actions[2]
    assert (last_move == 0).mean() == pytest.approx(0.8, abs=0.01)
    assert (trajectories.actions[3] == 2).all()


# Scores


NEEDS = frozenset({"log_flow", "log_z", "state_log_reward", "state_log_energy", "log_pf_stop", "log_inflow"})


def scores_in(framework, env, policy, trajectories, kind):
    networks = Networks(policy, np.array([0.25, 0.5]))
    if framework == "torch":
        return to_numpy(score(env, to_torch(networks), to_torch(trajectories), kind, NEEDS))
    if framework == "jax":
        size = int(num_rows(env, trajectories)) + 7  # rows to spare, as a bucket has
        run = jax.jit(lambda networks, t: score(env, networks, t, kind, NEEDS, size))
        return to_numpy(run(networks, trajectories))
    return score(env, networks, trajectories, kind, NEEDS)


@pytest.mark.parametrize("kind", ["uniform", "learned", "maxent"])
@pytest.mark.parametrize("name", ["grid", "bits", "left-to-right"])
def test_scores_are_those_of_a_slow_loop(name, kind):
    env, policy, trajectories = WORLDS[name], random_policy(WORLDS[name]), sampled(name)["numpy"]
    slow = slow_scores(env, policy, trajectories, kind)
    for framework in FRAMEWORKS if kind == "learned" else ("numpy",):
        s = scores_in(framework, env, policy, trajectories, kind)
        assert float(s.log_z) == 0.75
        for b, entry in enumerate(slow):
            n = int(trajectories.length[b])
            assert s.valid[:n, b].all() and not s.valid[n:, b].any()
            assert s.terminal[:, b].sum() == 1 and s.terminal[n - 1, b]
            fields = {"log_pf": s.log_pf, "log_pb": s.log_pb, "log_flow": s.log_flow, "reward": s.state_log_reward}
            fields |= {"outflow": s.log_outflow, **({"stop": s.log_pf_stop} if env.stops else {})}
            for field, got in fields.items():
                np.testing.assert_allclose(got[:n, b], entry[field], rtol=1e-6, atol=1e-9, err_msg=field)
                assert (got[n:, b] == 0).all() or field not in ("log_pf", "log_pb")
            np.testing.assert_allclose(s.log_inflow[1:n, b], entry["inflow"][: n - 1], rtol=1e-9)
            last = entry["logit"][-1] if env.stops else entry["inflow"][-1]
            np.testing.assert_allclose(s.log_final_flow[n - 1, b], last, rtol=1e-9)
            np.testing.assert_allclose(s.log_reward[b], entry["log_reward"], rtol=1e-6)


@pytest.mark.parametrize("name", ["grid", "bits"])
def test_scores_do_not_depend_on_the_number_of_rows(name):
    env, policy, trajectories = WORLDS[name], random_policy(WORLDS[name]), sampled(name)["jax"]
    networks, few = Networks(policy, np.array([0.25, 0.5])), int(num_rows(env, trajectories))

    def run(networks, trajectories):
        listed = visit(env, trajectories)  # in as many rows as there can be
        return (
            score(env, networks, trajectories, "learned", NEEDS),
            score(env, networks, listed, "learned", NEEDS),
            score(env, networks, listed, "learned", NEEDS, few),
            score(env, networks, trajectories, "learned", NEEDS, few),
            listed.count,
        )

    *results, count = to_numpy(jax.jit(run)(networks, trajectories))
    assert count == few
    for other in results[1:]:
        for x, y in zip(jtu.tree_leaves(results[0]), jtu.tree_leaves(other), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_only_what_is_asked_for_is_computed():
    env, trajectories = WORLDS["grid"], sampled("grid")["numpy"]
    s = score(env, Networks(random_policy(env), None), trajectories)
    assert s.log_flow is s.log_z is s.state_log_reward is s.log_pf_stop is s.log_inflow is None


@pytest.mark.parametrize("kind", ["uniform", "learned", "maxent"])
@worlds
def test_backward_probabilities_sum_to_one(env, kind):
    _, log_pb = backward_table(env, kind)
    graph = enumerate_states(env)
    mask = env.backward_mask(graph.states)
    total = np.where(mask, np.exp(log_pb), 0).sum(1)
    np.testing.assert_allclose(total[mask.any(1)], 1.0, rtol=1e-12)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_forbidden_actions_are_not_taken_however_small_the_temperature(framework):
    make = {"numpy": np.asarray, "torch": torch.tensor, "jax": jnp.asarray}[framework]
    logits = np.full((50, 3), -2000.0, np.float32)  # -2e9 at that temperature, below any finite mask
    mask = np.tile([False, True, True], (50, 1))
    uniform = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    actions = sample_actions(*map(make, (logits, mask, uniform, np.ones(50, np.float32))), 0.0, 1e-6)
    assert 0 not in np.asarray(actions).tolist()
