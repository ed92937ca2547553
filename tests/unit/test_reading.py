"""Causal policies read sequences token by token when acting, and all prefixes in one pass when learning."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from twinax import parity
from twinax.engines import make_engine
from twinax.envs import Sequences
from twinax.gflownet import MetricOptions, forward_rollout, problem, score
from twinax.gflownet._reading import Reader, reads_on
from twinax.networks import TokenTransformer

CAUSAL = TokenTransformer(width=8, layers=2, heads=2, feedforward=8, causal=True)
WORLDS = {
    "append": Sequences(length=4, alphabet="ab", order="append"),
    "variable": Sequences(length=4, alphabet="abc", order="variable"),
}
worlds = pytest.mark.parametrize("env", WORLDS.values(), ids=WORLDS)


def small(env, objective="detailed_balance"):
    return problem(env, objective, batch_size=6, network=CAUSAL, metrics=MetricOptions(fifo=12, samples=8))


def parts(env):
    made = small(env)
    networks, rng = made.init(0).networks, np.random.default_rng(0)
    return made, networks, {name: rng.random(draw.shape) for name, draw in made.draws().items()}


def test_only_sequences_that_grow_at_their_end_are_read_on():
    _, networks, _ = parts(WORLDS["append"])
    assert reads_on(WORLDS["append"], networks.policy) and reads_on(WORLDS["variable"], networks.policy)
    assert not reads_on(dataclasses.replace(WORLDS["append"], order="both"), networks.policy)


@worlds
def test_a_rollout_token_by_token_is_that_of_whole_observations(env):
    _, networks, draws = parts(env)
    given = draws["action"], draws["explore"]
    by_token = forward_rollout(env, Reader.of(env, networks.policy), *given)
    whole = forward_rollout(env, lambda seen: networks.policy(seen).forward_logits, *given)
    np.testing.assert_array_equal(by_token.actions, whole.actions)
    np.testing.assert_array_equal(by_token.length, whole.length)


@worlds
def test_scores_of_one_pass_are_those_of_each_state(env, monkeypatch):
    made, networks, draws = parts(env)
    walks = forward_rollout(env, Reader.of(env, networks.policy), draws["action"], draws["explore"])
    needs = frozenset({"log_flow", "log_outflow", "logit"})
    once = score(env, networks, walks, "learned", needs)
    assert reads_on(env, networks.policy)
    monkeypatch.setattr("twinax.gflownet._scores.reads_on", lambda *_: False)
    each = score(env, networks, walks, "learned", needs)
    for name in ("log_pf", "log_pb", "log_flow", "log_outflow", "logit"):
        np.testing.assert_allclose(getattr(once, name), getattr(each, name), rtol=1e-5, atol=1e-5, err_msg=name)
        assert np.abs(getattr(once, name)).sum() > 0 or name == "log_pb"


@worlds
def test_modes_agree(env):
    parity.check(small(env), steps=2).raise_if_different()


def test_it_learns():
    env = WORLDS["append"]
    made = dataclasses.replace(small(env), batch_size=32)
    engine = make_engine(made, mode="jax", chunk=200)
    engine.start(0)
    before = engine.evaluate()["total_variation"]
    engine.run(600)
    assert engine.evaluate()["total_variation"] < min(0.1, before / 2)
