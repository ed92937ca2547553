"""What layers give when acting is not worked out again by a loss, and what no loss needs is not worked out at all."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax import tree
from twinax.engines import make_engine
from twinax.envs import Hypergrid, Ising, PerfectTree, Sequences
from twinax.gflownet import MetricOptions, PolicyOptions, ReplayOptions, TargetOptions, problem, score
from twinax.gflownet._problem import row_sizes
from twinax.noise import key_draws

WORLDS = {
    "append": Sequences(length=4, alphabet="ab", order="append"),
    "both": Sequences(length=3, alphabet="abc", order="both"),
    "ising": Ising(side=2, sigma=0.3),
    "tree": PerfectTree(depth=3),
}


@pytest.fixture(autouse=True)
def _double_precision():
    jax.config.update("jax_enable_x64", True)


def small(env, objective="trajectory_balance", backward="uniform", shared=True, **more):
    policy = PolicyOptions(hidden=(8, 6), activation="tanh", backward=backward, shared=shared)
    return problem(env, objective, batch_size=5, policy=policy, metrics=MetricOptions(fifo=10, samples=8), **more)


def given(made):
    """A state, draws and inputs in JAX and float64."""

    def wide(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        return x.astype(jnp.float64) if x.dtype == jnp.float32 else x

    return jax.tree.map(wide, (made.init(3), key_draws(made.draws(), 3, 0), made.inputs()))


def stepped(made) -> tuple[Any, Any]:
    """The batch that a step gives to its update, and the gradients there."""
    seen = {}

    def update(state, loss, batch, still=()):
        prepared = made.compile.prepare(batch)
        seen["gradients"] = jax.grad(lambda networks: loss(networks, prepared)[0])(state.networks)
        seen["batch"] = batch
        return state, {}

    made.step(*given(made), update)
    return seen["batch"], seen["gradients"]


@pytest.mark.parametrize(
    ("world", "backward", "objective"),
    [
        ("append", "uniform", "trajectory_balance"),
        ("both", "learned", "detailed_balance"),
        ("ising", "uniform", "flow_matching"),
        ("tree", "learned", "soft_dqn"),
    ],
)
def test_gradients_are_those_of_a_loss_that_asks_the_network_itself(world, backward, objective):
    env = WORLDS[world]
    targets = TargetOptions(rate=0.1) if objective == "soft_dqn" else None
    made = small(env, objective, backward, targets=targets)
    batch, gradients = stepped(made)
    asks_of_ends = backward == "learned" or objective == "flow_matching"
    assert batch.results[-1].shape[:2] == (env.max_steps + asks_of_ends, 5)
    own = jax.grad(lambda networks: made.loss(networks, made.collect(*given(made))[1])[0])(given(made)[0].networks)
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(own)) > 1e-3
    for name, x in tree.named_leaves(own).items():
        np.testing.assert_allclose(tree.named_leaves(gradients)[name], x, rtol=1e-9, atol=1e-11, err_msg=name)


def test_results_are_read():
    made = small(WORLDS["append"])
    batch, _ = stepped(made)
    networks = given(made)[0].networks
    changed = dataclasses.replace(batch, results=tuple(1.5 * x for x in batch.results))
    assert abs(float(made.loss(networks, changed)[0] - made.loss(networks, batch)[0])) > 1e-3


def test_nothing_is_kept_where_networks_other_than_those_that_act_would_read_it():
    assert made_batch(small(Hypergrid(dim=2, side=3))).results is None, "trajectories of several lengths"
    assert made_batch(small(WORLDS["append"], shared=False)).results is None, "a network for each head"
    replayed = small(WORLDS["append"], replay=ReplayOptions(size=20, batch_size=2))
    assert made_batch(replayed).results is None, "objects of a replay"
    made = small(WORLDS["append"])
    assert made.collect(*given(made))[1].results is None, "whoever collects may ask any networks"


def made_batch(made):
    seen = []

    def update(state, loss, batch, still=()):
        seen.append(batch)
        return state, {"loss": jnp.zeros(())}

    made.step(*given(made), update)
    return seen[0]


@pytest.mark.parametrize(("backward", "needs", "rows"), [("uniform", {"log_z"}, 4), ("learned", {"log_z"}, 5)])
def test_no_network_is_asked_about_finished_states_in_vain(backward, needs, rows):
    made = small(WORLDS["append"], backward=backward)
    state, draws, inputs = given(made)
    batch, asked = made.collect(state, draws, inputs)[1], []

    def policy(seen):
        asked.append(seen.ids.shape[0])
        return state.networks.policy(seen)

    networks = dataclasses.replace(state.networks, policy=policy)
    found = score(made.env, networks, batch, backward, frozenset(needs))
    assert asked == [rows * 5]
    assert found.log_pb.shape == found.log_pf.shape == (4, 5)


def test_training_with_kept_results_is_the_same_in_torch():
    logs = {}
    for mode in ("jax", "torch"):
        engine = make_engine(small(WORLDS["both"], "detailed_balance", "learned"), mode=mode, dtype="float64")
        engine.start(0)
        logs[mode] = engine.run(20)
    for name, values in logs["torch"].items():
        np.testing.assert_allclose(logs["jax"][name], values, rtol=1e-7, atol=1e-9, err_msg=name)


def test_sizes_of_many_rows_and_short_trajectories():
    assert row_sizes(128, 11) == (1056, 1408)
    assert row_sizes(16, 11) == (176,)
    assert len(row_sizes(16, 77)) > 3
