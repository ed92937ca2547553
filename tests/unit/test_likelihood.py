"""Estimated probabilities of objects against exact ones, and metrics over fixed sets against slow answers."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.tree_util as jtu
import numpy as np
import pytest
import scipy.stats
import torch

from twinax import ops
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid, enumerate_states
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, Networks, PolicyOptions, likelihood_draws, log_probabilities, problem
from twinax.gflownet._exact import terminal_distribution
from twinax.gflownet._metrics import diversity, modes_apart, ranks, reward_accuracy

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitState, BitStrings, LeftToRight, random_policy

WORLDS = {"grid": Hypergrid(2, 4, GridReward(0.1, 0.5, 2.0)), "bits": BitStrings(4), "tree": LeftToRight(4)}


def exact(env, policy):
    graph = enumerate_states(env)
    chances = ops.softmax(policy(env.observe(graph.states)).forward_logits, env.forward_mask(graph.states))
    done = np.flatnonzero(graph.done)
    return jtu.tree_map(lambda x: x[done], graph.states), terminal_distribution(graph, chances)[done]


@pytest.mark.parametrize("kind", ["uniform", "learned"])
@pytest.mark.parametrize("name", WORLDS)
def test_estimates_are_within_their_errors_of_the_exact_probabilities(name, kind):
    env, rollouts = WORLDS[name], 400
    policy = random_policy(env)
    objects, wanted = exact(env, policy)
    spec = likelihood_draws(env, len(wanted), rollouts)
    uniform = np.random.default_rng(0).random(spec.shape)
    log_p, error = log_probabilities(env, Networks(policy, None), kind, objects, uniform)
    assert (np.abs(np.exp(log_p) / wanted - 1) <= 4 * error + 1e-9).all()
    if name == "tree":
        np.testing.assert_allclose(log_p, np.log(wanted), rtol=1e-9)
        assert (error < 1e-9).all(), "one path to each object: nothing is left to chance"
    else:
        assert error.max() > 1e-3


def test_one_rollout_knows_its_error_only_in_a_tree():
    for name, env in WORLDS.items():
        policy = random_policy(env)
        objects, wanted = exact(env, policy)
        uniform = np.random.default_rng(0).random(likelihood_draws(env, len(wanted), 1).shape)
        log_p, error = log_probabilities(env, Networks(policy, None), "uniform", objects, uniform)
        assert np.isfinite(log_p).all()
        assert (error == 0).all() if name == "tree" else np.isnan(error).all()


def test_estimates_in_torch_are_those_of_numpy():
    env = WORLDS["bits"]
    policy, (objects, _) = random_policy(env), exact(env, random_policy(env))
    uniform = np.random.default_rng(0).random(likelihood_draws(env, 16, 3).shape)
    here = log_probabilities(env, Networks(policy, None), "learned", objects, uniform)
    to_torch = lambda tree: jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), tree)  # noqa: E731
    there = log_probabilities(
        env, to_torch(Networks(policy, None)), "learned", to_torch(objects), torch.from_numpy(uniform)
    )
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-9)


def test_ranks_of_ties_are_means():
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0, 1.0])
    np.testing.assert_array_equal(ranks(values), scipy.stats.rankdata(values))


def test_reward_accuracy():
    graph = enumerate_states(WORLDS["grid"])
    assert reward_accuracy(graph, graph.target_distribution) == pytest.approx(100)
    uniform = graph.done / graph.done.sum()
    reward = np.exp(graph.log_reward[graph.done])
    assert reward_accuracy(graph, uniform) == pytest.approx(100 * reward.mean() / ((reward**2).sum() / reward.sum()))
    best = np.zeros(len(graph.done))
    best[np.flatnonzero(graph.done)[reward.argmax()]] = 1
    assert reward_accuracy(graph, best) == 100, "more than the target's is no better"


def strings(*texts):
    return BitState(np.array([[int(c) for c in text] for text in texts], np.int32), np.ones(len(texts), bool))


class Ones(BitStrings):
    """Paid by the number of ones."""

    def log_reward(self, state):
        return ops.log(1.0 + ops.sum(ops.cast(state.bits, ops.like(np.zeros(()), state.bits)), -1))

    def test_states(self, seed):
        bits = np.random.default_rng(seed).integers(0, 2, (40, self.length)).astype(np.int32)
        return BitState(bits, np.ones(40, bool))


def test_diversity_and_modes_apart():
    env, found = Ones(4), strings("1111", "1110", "1100", "0011", "1111", "0000")
    assert diversity(env, strings("1111", "1110", "0000")) == pytest.approx((1 + 4 + 3) / 3)
    assert np.isnan(diversity(env, strings("1111")))
    assert modes_apart(env, found, MetricOptions(mode_reward=3.0, mode_distance=1)) == 4
    assert modes_apart(env, found, MetricOptions(mode_reward=3.0, mode_distance=2)) == 3, "1110 is too near to 1111"
    assert modes_apart(env, found, MetricOptions(mode_reward=5.0, mode_distance=1)) == 1


@pytest.mark.parametrize("mode", ["torch", "jax"])
def test_a_large_world_is_judged_over_its_held_out_set(mode):
    options = MetricOptions(fifo=20, samples=4, exact_limit=0, test_size=10, rollouts=5, mode_reward=2.0)
    made = problem(Ones(6), batch_size=4, policy=PolicyOptions(hidden=(8,)), metrics=options)
    engine = make_engine(made, mode=mode)
    engine.start(0)
    engine.run(2)
    metrics = engine.evaluate()
    assert -1 <= metrics["test_pearson"] <= 1 and -1 <= metrics["test_spearman"] <= 1
    assert metrics["test_error"] > 0 and metrics["modes_apart"] > 0 and metrics["top_k_diversity"] > 0
    assert made.judge.draws()["test"].shape == (10, 5, 6, 6)


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(TwinaxError, match="metrics.rollouts is 0"):
        MetricOptions(rollouts=0)
    with pytest.raises(TwinaxError, match="metrics.mode_distance is -1"):
        MetricOptions(mode_distance=-1.0)
