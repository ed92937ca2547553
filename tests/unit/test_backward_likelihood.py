"""The backward policy that maximises the likelihood of fresh trajectories."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import twinax as tx
from twinax import parity, tree
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions, ReplayOptions, TargetOptions, problem
from twinax.noise import numpy_draws

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))


def small(objective="trajectory_balance", batch_size=4, replay=3, **options):
    return problem(
        GRID,
        objective,
        batch_size=batch_size,
        policy=PolicyOptions(hidden=(8,), backward="tlm", shared=False),
        metrics=MetricOptions(fifo=40, samples=32),
        replay=ReplayOptions(size=40, batch_size=replay),
        **options,
    )


def test_the_objective_leaves_the_backward_policy_alone_and_fresh_trajectories_teach_it():
    made = small(batch_size=32)  # among so many there are some with a choice of ways back
    state = made.init(0)
    batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]

    def gradients(part):
        def value(networks):
            return made.loss(networks, jax.tree.map(jax.numpy.asarray, batch))[1].parts[part]

        grads = jax.grad(value)(jax.tree.map(jax.numpy.asarray, state.networks))
        return {name: np.abs(leaf).max() for name, leaf in tree.named_leaves(grads).items()}

    by_objective, by_likelihood = gradients("objective_loss"), gradients("backward_loss")
    for name in by_objective:
        backward = name.startswith("policy.backward")
        assert (by_objective[name] > 0) == (not backward), name
        assert (by_likelihood[name] > 0) == backward, name
    scores = made.scores(state.networks, batch)
    loss, terms = made.loss(state.networks, batch)
    np.testing.assert_allclose(terms.parts["backward_loss"], -scores.log_pb[:, :32].sum(0).mean(), rtol=1e-6)
    np.testing.assert_allclose(loss, sum(terms.parts.values()), rtol=1e-6)


def test_modes_agree_also_with_a_slower_backward_policy():
    parity.check(small("detailed_balance", targets=TargetOptions(rate=0.1)), steps=8).raise_if_different()


def test_the_objective_reads_the_slower_backward_policy():
    made = small(batch_size=32, targets=TargetOptions(rate=0.1))
    state = made.init(0)
    batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]
    moved = jax.tree.map(lambda x: x + 0.3 * np.cos(np.arange(x.size, dtype=x.dtype)).reshape(x.shape), state.networks)
    other = dataclasses.replace(batch, given=dataclasses.replace(batch.given, targets={"target": moved}))
    first, second = (made.loss(state.networks, given)[1].parts for given in (batch, other))
    assert abs(first["objective_loss"] - second["objective_loss"]) > 1e-4
    assert first["backward_loss"] == second["backward_loss"]


def test_it_learns():
    steps = 600
    made = problem(
        GRID,
        batch_size=16,
        policy=PolicyOptions(hidden=(64, 64), backward="tlm"),
        optimizer=tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        metrics=MetricOptions(samples=64),
        replay=ReplayOptions(size=500, batch_size=16, priority="reward"),
    )
    engine = make_engine(made, mode="jax", chunk=300)
    engine.start(0)
    assert engine.evaluate()["total_variation"] > 0.3
    engine.run(steps)
    found = engine.evaluate()
    assert found["total_variation"] < 0.01 and abs(found["log_z_error"]) < 0.01


def test_without_fresh_trajectories_it_has_nothing_to_learn_from(tmp_path):
    np.savez(tmp_path / "known.npz", position=np.zeros((1, 2), int))
    with pytest.raises(TwinaxError, match="learns from fresh trajectories, but the batch size is 0"):
        problem(
            GRID,
            batch_size=0,
            policy=PolicyOptions(backward="tlm"),
            replay=ReplayOptions(batch_size=2, file=str(tmp_path / "known.npz")),
        )
