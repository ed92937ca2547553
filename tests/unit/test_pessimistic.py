"""The backward policy that maximises the likelihood of trajectories that were found once, and kept."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinax as tx
from twinax import ops, parity, tree
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid
from twinax.envs.state_rows import equal, pick
from twinax.errors import TwinaxError
from twinax.gflownet import (
    Exploration,
    LocalSearchOptions,
    MetricOptions,
    PolicyOptions,
    ReplayOptions,
    TargetOptions,
    problem,
)
from twinax.gflownet._trajectories import retraced
from twinax.noise import numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))
WORLDS = {"ragged": GRID, "fixed length": BitStrings(3)}


def small(env=GRID, objective="trajectory_balance", batch_size=4, replay=None, hidden=(8,), **options):
    return problem(
        env,
        objective,
        batch_size=batch_size,
        policy=PolicyOptions(hidden=hidden, backward="pessimistic", shared=False),
        metrics=MetricOptions(fifo=60, samples=32),
        replay=ReplayOptions(**{"size": 40, "batch_size": 3, "priority": "reward", **(replay or {})}),
        **options,
    )


@pytest.mark.parametrize("search", [0, 2], ids=["fresh", "with local search"])
@pytest.mark.parametrize("world", WORLDS)
def test_what_is_drawn_are_the_trajectories_that_were_found(world, search):
    env, found = WORLDS[world], set()
    made = small(env, local_search=LocalSearchOptions(rounds=search, steps=2), replay={"batch_size": 6})
    state = made.init(0)

    def rows(batch, columns):
        return [tuple(batch.actions[: batch.length[k], k].tolist()) for k in columns]

    for step in range(6):
        carry, batch = made.collect(state, numpy_draws(made.draws(), 0, step), made.inputs())
        state = dataclasses.replace(state, carry=carry)
        found |= set(rows(batch, range(made.finished)))
        drawn = rows(batch, range(made.finished, made.in_update))
        assert set(drawn) <= found and len(drawn) == 6
    held = int(state.carry.replay.held)
    walks = retraced(env, state.carry.replay.actions[:held].T)
    assert equal(walks.last, pick(state.carry.replay.objects, np.arange(held))).all()
    assert np.asarray(walks.last.done).all() and held > 6


def test_before_the_start_fresh_trajectories_stand_in():
    made = small(replay={"start": 30, "batch_size": 5})
    batch = made.collect(made.init(0), numpy_draws(made.draws(), 0, 0), made.inputs())[1]
    assert (batch.actions[:, 4:] == batch.actions[:, [0, 1, 2, 3, 0]]).all()
    assert (batch.length[4:] == batch.length[[0, 1, 2, 3, 0]]).all()


def test_only_what_is_replayed_teaches_it_and_the_objective_leaves_it_alone():
    made = small(batch_size=16, replay={"batch_size": 16})
    state = made.init(0)
    batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]
    scores = made.scores(state.networks, batch)
    parts = made.loss(state.networks, batch)[1].parts
    np.testing.assert_allclose(parts["backward_loss"], -scores.log_pb[:, 16:].sum(0).mean(), rtol=1e-6)
    batch, networks = (jax.tree.map(jnp.asarray, x) for x in (batch, state.networks))
    gradients = jax.jit(jax.jacrev(lambda x: made.loss(x, batch)[1].parts))(networks)
    for part, learns in (("objective_loss", False), ("backward_loss", True)):
        sizes = {name: float(np.abs(leaf).max()) for name, leaf in tree.named_leaves(gradients[part]).items()}
        assert all((size > 0) == (name.startswith("policy.backward") == learns) for name, size in sizes.items()), part


@functools.cache
def trained():
    steps = 1500
    engine = make_engine(
        small(
            batch_size=16,
            hidden=(64, 64),
            replay={"batch_size": 48},
            exploration=Exploration(epsilon=0.3),
            optimizer=tx.Optimizer(learning_rate=5e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        ),
        mode="jax",
        chunk=500,
    )
    engine.start(0)
    engine.run(steps)
    return engine


def test_it_becomes_how_often_the_kept_trajectories_go_each_way():
    """Each object is held with the first trajectory to it, and drawn in proportion to its reward."""
    state = trained().state()
    replay = state.carry.replay
    assert int(replay.held) == 16, "all objects, so that nothing is stored any more"
    walks = retraced(GRID, np.asarray(replay.actions)[:16].T)
    rewards = np.exp(GRID.log_reward(walks.last))
    through = np.zeros((4, 4, 2))
    for row, length in enumerate(walks.length):
        for time in range(length - 1):
            action, cell = walks.actions[time, row], walks.states.position[time + 1, row]
            through[cell[0], cell[1], action] += rewards[row]
    cells = np.argwhere(through.sum(-1) > 0).astype(np.int32)
    states = type(walks.last)(cells, np.zeros(len(cells), bool))
    logits = state.networks.policy(GRID.observe(states)).backward_logits
    learned = ops.softmax(logits, GRID.backward_mask(states))
    wanted = through[cells[:, 0], cells[:, 1]]
    wanted /= wanted.sum(-1, keepdims=True)
    both = GRID.backward_mask(states).all(-1)
    assert np.abs(wanted[both] - 0.5).max() > 0.3 and ((wanted > 0.05) & (wanted < 0.95)).any()
    np.testing.assert_allclose(learned, wanted, atol=0.06)


def test_the_forward_policy_learns_beside_it():
    found = trained().evaluate()
    assert found["total_variation"] < 0.01 and abs(found["log_z_error"]) < 0.01


CASES = {
    "ragged": {"env": GRID, "objective": "detailed_balance", "targets": TargetOptions(rate=0.1)},
    "fixed length": {"env": BitStrings(3), "replay": {"priority": "loss", "start": 6, "updates": 2}},
}


@pytest.mark.parametrize("case", CASES)
def test_modes_agree(case):
    report = parity.check(small(**CASES[case]), steps=8).raise_if_different()
    assert any("backward_loss" in row.item for row in report.rows)
    assert any(row.item == "carry.replay.actions" for row in report.rows)


def test_what_it_cannot_learn_from_is_said():
    with pytest.raises(TwinaxError, match="learns from trajectories of the replay, but replay.batch_size is 0"):
        small(replay={"batch_size": 0})
    with pytest.raises(TwinaxError, match=r"but replay.file=known.npz has objects alone"):
        small(replay={"file": "known.npz"})
    with pytest.raises(TwinaxError, match="nothing is left for replay.backward=uniform to draw"):
        small(replay={"backward": "uniform"})
