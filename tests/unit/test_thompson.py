"""Several forward heads: who acts, who learns, what is judged, and the loss against slow loops and plain policies."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import twinax as tx
from twinax import parity, tree
from twinax.engines import QUICK_COMPILE, make_engine
from twinax.envs import DAG, GridReward, Hypergrid
from twinax.errors import TwinaxError
from twinax.gflownet import (
    Exploration,
    LocalSearchOptions,
    MetricOptions,
    PolicyOptions,
    ReplayOptions,
    TargetOptions,
    objectives,
    problem,
)
from twinax.gflownet._heads import ManyHeads, heads_of
from twinax.gflownet._policy import Policy
from twinax.networks import EdgeHead, Linear, PlaceHead, TokenTransformer
from twinax.noise import numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from slow_scores import slow_scores
from small_worlds import BitStrings, LeftToRight

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))
BITS = tx.envs.BitSequences(12, 4, reward=tx.envs.BitModes(modes=("010100111100",)))
HEADS = 3


def small(env: Any = GRID, objective="trajectory_balance", batch_size=5, heads=HEADS, replay=0, **options):
    imitates = isinstance(objective, str) and objectives.OBJECTIVES[objective].of_data
    return problem(
        env,
        objective,
        batch_size=batch_size,
        policy=options.pop("policy", None) or PolicyOptions(hidden=(8,)),
        metrics=MetricOptions(fifo=60, samples=32),
        exploration=Exploration(thompson_heads=heads, **options.pop("exploration", {})),
        replay=ReplayOptions(size=60, batch_size=3 if imitates else replay),
        **options,
    )


def collected(made, seed=0):
    state = made.init(seed)
    draws = numpy_draws(made.draws(), seed, 0)
    return state, draws, made.collect(state, draws, made.inputs())[1]


def alone(many: ManyHeads, weights) -> Policy:
    """The policy of one head, or of a weighted mean of heads: of a linear layer's columns."""
    policy = many.network
    forward, *others = policy.sizes
    last = policy.layers[-1]

    def columns(x):
        each = x[:forward].reshape(many.number, forward // many.number, *x.shape[1:])
        return np.concatenate([np.tensordot(np.asarray(weights, x.dtype), each, 1), x[forward:]])

    layers = (*policy.layers[:-1], Linear(columns(last.weight), columns(last.bias)))
    return Policy(layers, policy.activation, (forward // many.number, *others))


def head(place: int) -> np.ndarray:
    return np.eye(HEADS)[place]


def logits_of(policy, env, states, time):
    return policy(env.observe(jtu.tree_map(lambda x: x[time], states))).forward_logits


# Who acts, and who learns


@pytest.mark.parametrize("framework", ["numpy", "jax"])
@pytest.mark.parametrize("env", [LeftToRight(6), Hypergrid(2, 8, GRID.reward)], ids=["fixed length", "ragged"])
def test_each_trajectory_is_walked_by_its_own_head_alone(env, framework):
    """Greedily, so that all actions are those of one head; in JAX rows of a ragged batch become fewer on the way."""
    made = small(env, batch_size=32, exploration={"temperature": 1e-6}, policy=PolicyOptions(hidden=(32,)))
    state, draws, batch = collected(made)
    if framework == "jax":
        given = jtu.tree_map(jnp.asarray, (state, draws, made.inputs()))
        batch = jax.tree.map(np.asarray, jax.jit(lambda *x: made.collect(*x)[1])(*given))
    own = np.floor(draws["heads"][:, 0] * HEADS).astype(int)
    assert set(own) == set(range(HEADS))
    policies = [alone(state.networks.policy, head(k)) for k in range(HEADS)]
    agree = np.ones((HEADS, 32), bool)
    for time in range(env.max_steps):
        mask = env.forward_mask(jtu.tree_map(lambda x: x[time], batch.states))  # noqa: B023
        for k, policy in enumerate(policies):
            greedy = np.where(mask, logits_of(policy, env, batch.states, time), -np.inf).argmax(-1)
            agree[k] &= (greedy == batch.actions[time]) | (time >= batch.length)
    assert agree[own, np.arange(32)].all()
    assert not agree.all(), "heads that act alike would show nothing"


def test_who_learns_from_a_trajectory():
    uniform = np.random.default_rng(0).random((20_000, 1 + 8)).astype(np.float32)
    own, learners = heads_of(uniform, 0.3)
    assert learners[np.arange(20_000), own].all(), "its own head always"
    others = learners.copy()
    others[np.arange(20_000), own] = False
    # Another head does with probability 0.3, so each head learns from 1/8 + 7/8 x 0.3 of all.
    wanted = 0.3 * 7 / 8
    assert np.abs(others.mean(0) - wanted).max() < 5 * np.sqrt(wanted * (1 - wanted) / 20_000)
    assert np.abs(np.bincount(own, minlength=8) / 20_000 - 1 / 8).max() < 5 * np.sqrt(7 / 64 / 20_000)
    assert heads_of(uniform, 1.0)[1].all()
    ends = np.array([[2.0**-24, *[0.5] * 7], [1 - 2.0**-24, *[0.5] * 7]], np.float32)
    assert heads_of(ends, 0.1)[0].tolist() == [0, 6]


def test_what_is_replayed_and_proposed_has_learners_as_well():
    made = small(replay=4, local_search=LocalSearchOptions(rounds=2, steps=2))
    _, draws, batch = collected(made)
    assert batch.learners.shape == (15 + 4, HEADS) and batch.learners.any(1).all()
    wanted = [heads_of(draws["heads"], 0.3)[1], heads_of(draws["replay/heads"][0], 0.3)[1]]
    np.testing.assert_array_equal(batch.learners, np.concatenate(wanted))


# The loss


def in_double(tree_):
    return jtu.tree_map(lambda x: x.astype(np.float64) if np.asarray(x).dtype.kind == "f" else x, tree_)


def walked(networks, batch, k):
    """What a slow walk along each trajectory finds by one head."""
    policy = alone(networks.policy, head(k))

    def told(seen):
        out = policy(seen)
        return out if out.log_flow is not None else out._replace(log_flow=np.zeros(1))

    return slow_scores(GRID, told, batch, "learned")


def test_the_loss_is_the_mean_over_pairs_by_slow_loops():
    """Trajectory balance and detailed balance, one trajectory, one head and one state at a time."""
    for objective in ("trajectory_balance", "detailed_balance"):
        made = small(objective=objective, batch_size=6)
        state, _, batch = collected(made, seed=2)
        networks = in_double(state.networks)
        assert 0 < batch.learners.mean() < 1
        squares = []
        for k in range(HEADS):
            for b, one in enumerate(walked(networks, batch, k)):
                if not batch.learners[b, k]:
                    continue
                if objective == "trajectory_balance":
                    gains = sum(one["log_pf"]) - sum(one["log_pb"])
                    squares.append((networks.log_z.sum() + gains - one["log_reward"]) ** 2)
                    continue
                flows = [*one["log_flow"], one["log_reward"]]
                for t, (forth, back) in enumerate(zip(one["log_pf"], one["log_pb"], strict=True)):
                    squares.append((flows[t] + forth - flows[t + 1] - back) ** 2)
        np.testing.assert_allclose(made.loss(networks, batch)[0], np.mean(squares), rtol=1e-10)


TARGETS = {"soft_dqn": TargetOptions(rate=0.5), "detailed_balance": TargetOptions(every=3)}


@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
@pytest.mark.parametrize("env", [GRID, BitStrings(4)], ids=["ragged", "fixed length"])
def test_a_head_that_learns_alone_is_a_policy_of_its_own(objective, env):
    """For every objective: with the columns of one head as a plain policy, of the same trajectories."""
    if objective == "modified_detailed_balance" and not env.stops:
        pytest.skip("every state has to be one that can stop")
    made = small(env, objective, targets=TARGETS.get(objective))
    plain = small(env, objective, heads=1, targets=TARGETS.get(objective))
    state, _, batch = collected(made)
    rng = np.random.default_rng(0)
    networks = jtu.tree_map(lambda x: x + rng.normal(0, 0.3, x.shape), state.networks)  # targets are other networks

    def separate(networks, weights):
        return dataclasses.replace(networks, policy=alone(networks.policy, weights))

    for k in range(HEADS):
        learners = np.broadcast_to(head(k) > 0, batch.learners.shape)
        found = made.loss(networks, dataclasses.replace(batch, learners=learners))
        # Targets have heads as well; a prior is what the policy as a whole was.
        slower = {
            name: separate(other, np.full(HEADS, 1 / HEADS) if name == "prior" else head(k))
            for name, other in (state.targets or {}).items()
        }
        given = dataclasses.replace(batch.given, targets=slower or None)
        wanted = plain.loss(separate(networks, head(k)), dataclasses.replace(batch, learners=None, given=given))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
        assert found[1].parts.keys() == wanted[1].parts.keys()
        for name, part in wanted[1].parts.items():
            np.testing.assert_allclose(found[1].parts[name], part, rtol=1e-6, atol=1e-12)


def test_heads_learn_only_from_their_own_pairs():
    made = small(batch_size=8)
    state, _, batch = collected(made)
    learners = np.zeros((8, HEADS), bool)
    learners[:, 0], learners[3, 2] = True, True
    batch, networks = jtu.tree_map(jnp.asarray, (dataclasses.replace(batch, learners=learners), state.networks))
    gradient = jax.jit(jax.grad(lambda x: made.loss(x, batch)[0]))(networks).policy.network.layers[-1].bias
    sizes = np.abs(np.asarray(gradient)[: HEADS * 3]).reshape(HEADS, 3).max(1)
    assert (sizes > 0).tolist() == [True, False, True]


def test_of_trajectories_from_elsewhere_all_heads_learn():
    made = small()
    state, _, batch = collected(made)
    found = made.loss(state.networks, dataclasses.replace(batch, learners=None))[0]
    everyone = dataclasses.replace(batch, learners=np.ones((5, HEADS), bool))
    assert found == made.loss(state.networks, everyone)[0] != made.loss(state.networks, batch)[0]


def test_weights_of_the_replay_count_beside_the_heads():
    made = small(batch_size=6)
    state, _, batch = collected(made)
    weight = np.linspace(0.5, 2.0, 6)
    pairs = []
    for k in range(HEADS):
        for b, one in enumerate(walked(state.networks, batch, k)):
            residual = state.networks.log_z.sum() + sum(one["log_pf"]) - sum(one["log_pb"]) - one["log_reward"]
            pairs.append((weight[b] * batch.learners[b, k], residual**2))
    factors, squares = np.array(pairs).T
    found = made.loss(state.networks, dataclasses.replace(batch, weight=weight.astype(np.float32)))[0]
    np.testing.assert_allclose(found, (factors * squares).sum() / factors.sum(), rtol=1e-5)


# What is judged and used


def test_evaluations_and_samples_use_the_mean_of_the_logits():
    made = small(env=Hypergrid(2, 3, GRID.reward))
    state = made.init(0)
    mean = small(env=made.env, heads=1)
    policy = alone(state.networks.policy, np.full(HEADS, 1 / HEADS))
    other = dataclasses.replace(mean.init(0), networks=dataclasses.replace(state.networks, policy=policy))
    draws, tables = numpy_draws(made.judge.draws(), 0, 0, stream=1), made.judge.tables()
    found, wanted = (one.judge.measure(here, draws, tables) for one, here in ((made, state), (mean, other)))
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], rtol=1e-5)
    sampled = [one.use.sample(here, 50, 0).states.position for one, here in ((made, state), (mean, other))]
    np.testing.assert_array_equal(*sampled)


def test_a_constant_that_one_head_adds_changes_nothing():
    """Only differences of logits mean something, and each head may have its own zero."""
    made = small(env=Hypergrid(2, 3, GRID.reward))
    state = made.init(0)
    seen = made.env.observe(made.graph.states)
    before = state.networks.policy(seen)
    state.networks.policy.network.layers[-1].bias[3:6] += 7.0
    after = state.networks.policy(seen)
    np.testing.assert_allclose(after.forward_logits - before.forward_logits, 7.0 / HEADS, atol=1e-5)
    assert after.head_logits.shape == (*before.forward_logits.shape[:1], HEADS, 3)


# Networks other than an MLP


def test_every_kind_of_network_has_heads_of_its_own_kind():
    dag = small(env=DAG(num_nodes=3), network="graph", policy=PolicyOptions())
    heads = dag.init(0).networks.policy.network.network.heads
    assert [isinstance(heads[name], EdgeHead) for name in ("forward", "forward_2", "forward_3")] == [True] * 3
    places = small(env=BitStrings(3), network="mlp").init(0).networks.policy
    assert places.network.sizes[0] == HEADS * 6
    bits = tx.envs.BitSequences(16, 4, "any")
    heads = small(env=bits, policy=PolicyOptions()).init(0).networks.policy.network.network.heads
    assert isinstance(heads["forward_2"], PlaceHead) and heads["forward_2"].word.weight.shape[0] == 16


CAUSAL = TokenTransformer(width=8, layers=1, heads=2, feedforward=8, causal=True)


def test_heads_that_read_token_by_token_say_what_they_say_of_whole_sequences():
    made = small(env=BITS, network=CAUSAL, policy=PolicyOptions())
    state, _, batch = collected(made)
    policy, env = state.networks.policy, made.env
    assert policy.one_by_one
    last = env.observe(jtu.tree_map(lambda x: x[-1], batch.states))
    prefixes, memory = policy.prefixes(last), policy.start(5, last.ids.shape[-1])
    for time in range(env.max_steps):
        whole = policy(env.observe(jtu.tree_map(lambda x: x[time], batch.states)))  # noqa: B023
        out, memory = policy.step(memory, last.ids[:, time])
        for found in (out.head_logits, prefixes.head_logits[:, time]):
            np.testing.assert_allclose(found, whole.head_logits, atol=1e-5)
    assert whole.head_logits.shape == (5, HEADS, 16)


# Engines


CASES = {
    "ragged, separate networks": {"objective": "flow_matching", "policy": PolicyOptions(hidden=(8,), shared=False)},
    "fixed length, replay, search": {
        "env": BitStrings(3),
        "objective": "soft_dqn",
        "replay": 3,
        "targets": TargetOptions(rate=0.1, ema=0.5),
        "local_search": LocalSearchOptions(rounds=1, steps=2, accept="metropolis"),
    },
    "token by token": {"env": BITS, "network": CAUSAL, "policy": PolicyOptions()},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_modes_agree(case):
    report = parity.check(small(**CASES[case]), steps=5, seed=1).raise_if_different()
    assert any(row.item.startswith("networks.policy.network") for row in report.rows)


@pytest.mark.slow
def test_seeds_at_once_are_single_runs():
    engine = make_engine(small(replay=3), mode="jax", seeds=2, chunk=4)
    engine.compiler_options = QUICK_COMPILE
    engine.start(0)
    engine.run(4)
    single = make_engine(small(replay=3), mode="torch")
    single.start(1)
    single.run(4)
    leaves = tree.named_leaves(engine.state())
    for name, leaf in tree.named_leaves(single.state()).items():
        np.testing.assert_allclose(leaves[name][1], leaf, rtol=1e-3, atol=1e-5, err_msg=name)


def test_bad_options_are_said_in_a_sentence():
    with pytest.raises(TwinaxError, match="exploration.thompson_heads is 0; it must be at least 1"):
        Exploration(thompson_heads=0)
    for bootstrap in (0.0, 1.5, -0.1, float("nan")):
        with pytest.raises(
            TwinaxError, match=f"exploration.bootstrap is {bootstrap}; it must be above 0 and at most 1"
        ):
            Exploration(bootstrap=bootstrap)
    assert Exploration(bootstrap=1.0).thompson is False


def test_with_one_head_nothing_is_drawn_and_nobody_is_said_to_learn():
    made = small(heads=1, replay=2)
    assert set(made.draws()) == {"action", "explore", "replay/choose", "replay/undo"}
    _, _, batch = collected(made)
    assert batch.learners is None and isinstance(made.init(0).networks.policy, Policy)
