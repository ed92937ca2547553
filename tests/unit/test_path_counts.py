"""A backward policy of maximal entropy in a world that does not know its numbers of paths."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinax as tx
from twinax import ops, parity, tree
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid, enumerate_states
from twinax.envs.state_rows import pick
from twinax.errors import TwinaxError
from twinax.gflownet import Exploration, MetricOptions, PolicyOptions, ReplayOptions, TargetOptions, problem
from twinax.gflownet._policy import backward_log_probs
from twinax.noise import numpy_draws


class Uncounted(Hypergrid):
    """The same cells, whose numbers of paths nobody has told."""

    def log_paths_ratio(self, state):  # type: ignore[override]
        return None


WORLD = Uncounted(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))


def small(objective="trajectory_balance", env=WORLD, hidden=(8,), batch_size=16, **options):
    policy = PolicyOptions(hidden=hidden, backward="maxent", shared=False)
    return problem(
        env,
        objective,
        batch_size=batch_size,
        policy=policy,
        metrics=MetricOptions(fifo=48, samples=32),
        **options,
    )


def log_paths(position):
    """Of a walk on a plane: a binomial coefficient."""
    factorials = np.cumsum(np.log(np.maximum(np.arange(20), 1)))
    return factorials[position.sum(-1)] - factorials[position].sum(-1)


class Known:
    """A policy whose backward logits are the logs of the numbers of paths to the parents."""

    def __init__(self, networks):
        self.policy, self.log_z, self.energy = self, networks.log_z, networks.energy
        self.of = networks.policy

    def __call__(self, seen):
        position = np.stack([np.asarray(seen.dense("float64")).reshape(-1, 2, 4).argmax(-1)])[0]
        parents = np.maximum(position[:, None] - np.eye(2, dtype=int), 0)
        return self.of(seen)._replace(backward_logits=log_paths(parents))


def test_the_right_numbers_have_no_loss_and_others_have_that_of_a_loop():
    made = small()
    state = made.init(0)
    batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]
    right = made.loss(Known(state.networks), batch)[1].parts["path_loss"]  # type: ignore[arg-type]
    np.testing.assert_allclose(right, 0.0, atol=1e-12)

    errors = []
    for row, length in enumerate(batch.length):
        before = 0.0
        for time in range(length - 1):  # the last action is a stop
            here = jax.tree.map(lambda x, time=time, row=row: x[time + 1, row][None], batch.states)
            logits = np.asarray(state.networks.policy(WORLD.observe(here)).backward_logits[0], np.float64)
            errors.append(logits[batch.actions[time, row]] - before)
            before = np.logaddexp.reduce(logits[WORLD.backward_mask(here)[0]])
    found = made.loss(state.networks, batch)[1].parts
    np.testing.assert_allclose(found["path_loss"], np.mean(np.square(errors)), rtol=1e-5)


def test_the_objective_holds_the_backward_policy_still():
    made = small()
    state = made.init(0)
    batch = jax.tree.map(jnp.asarray, made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1])
    networks = jax.tree.map(jnp.asarray, state.networks)
    gradients = jax.jit(jax.jacrev(lambda x: made.loss(x, batch)[1].parts))(networks)
    for part, learns in (("objective_loss", False), ("path_loss", True)):
        sizes = {name: float(np.abs(leaf).max()) for name, leaf in tree.named_leaves(gradients[part]).items()}
        assert all((size > 0) == (name.startswith("policy.backward") == learns) for name, size in sizes.items()), part


@functools.cache
def trained():
    steps = 1000
    engine = make_engine(
        small(
            hidden=(64, 64),
            exploration=Exploration(epsilon=0.3),
            optimizer=tx.Optimizer(learning_rate=5e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        ),
        mode="jax",
        chunk=500,
    )
    engine.start(0)
    engine.run(steps)
    return engine


def test_the_learned_policy_is_that_of_the_closed_form():
    graph = enumerate_states(WORLD)
    rows = np.flatnonzero(~graph.done & WORLD.backward_mask(graph.states).any(-1))
    states = pick(graph.states, rows)
    networks = trained().state().networks
    logits = networks.policy(WORLD.observe(states)).backward_logits
    mask = WORLD.backward_mask(states)
    learned = np.exp(backward_log_probs(WORLD, "maxent", states, logits, logits)) * mask
    closed = ops.softmax(Hypergrid(2, 4).log_paths_ratio(states), mask)
    uniform = ops.softmax(np.zeros(mask.shape), mask)
    assert np.abs(uniform - closed).max() > 0.2, "or the test shows nothing"
    np.testing.assert_allclose(learned, closed, atol=0.02)
    numbers = ops.logsumexp(logits, -1, mask)
    np.testing.assert_allclose(numbers, log_paths(np.asarray(states.position)), atol=0.05)


def test_the_forward_policy_learns_beside_it():
    found = trained().evaluate()
    assert found["total_variation"] < 0.01 and abs(found["log_z_error"]) < 0.01


@pytest.mark.parametrize("objective", ["trajectory_balance", "detailed_balance"])
def test_modes_agree(objective):
    replay = ReplayOptions(size=40, batch_size=3, backward="maxent")
    slower = TargetOptions(rate=0.1) if objective == "detailed_balance" else None
    made = small(objective, batch_size=4, replay=replay, targets=slower)
    report = parity.check(made, steps=6)
    report.raise_if_different()
    assert any("path_loss" in row.item for row in report.rows)


def test_a_replay_alone_has_no_numbers_of_paths():
    with pytest.raises(TwinaxError, match="needs log_paths_ratio, which Uncounted does not have"):
        problem(WORLD, replay=ReplayOptions(batch_size=2, backward="maxent"))
