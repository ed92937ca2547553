"""The replay of finished objects: against slow loops, what is drawn how often, and what an update learns from."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

import twinax as tx
from twinax import ops, parity, tree
from twinax.engines import QUICK_COMPILE
from twinax.envs import GridReward, GridState, Hypergrid
from twinax.envs.state_rows import equal, pick, rows_of
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import MetricOptions, PolicyOptions, ReplayOptions, _lessons, _replay, problem
from twinax.gflownet._distinct import hashes
from twinax.gflownet._priorities import KINDS, drawn
from twinax.gflownet._replay import Replay
from twinax.noise import numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))
FRAMEWORKS = {"numpy": np.array, "torch": lambda x: torch.from_numpy(np.array(x)), "jax": jnp.array}


def small(env=GRID, objective="trajectory_balance", batch_size=4, **replay):
    return problem(
        env,
        objective,
        batch_size=batch_size,
        policy=PolicyOptions(hidden=(8,)),
        metrics=MetricOptions(fifo=40, samples=32),
        replay=ReplayOptions(**{"size": 20, "batch_size": 3, **replay}),
    )


def cells(rng, number, env):
    """Stopped walkers, some of them in one cell."""
    return GridState(rng.integers(0, env.side, (number, env.dim)).astype(np.int32), np.ones(number, bool))


class Slowly:
    """The same ring in loops, for one object after the other."""

    def __init__(self, options: ReplayOptions):
        self.options, self.count = options, 0
        self.slots: list[tuple[np.ndarray, np.floating]] = []

    def add(self, batch: np.ndarray, rewards: np.ndarray) -> None:
        held, new = [entry[0] for entry in self.slots], []
        for row, (cell, reward) in enumerate(zip(batch, rewards, strict=True)):
            others = [*held, *batch[:row]]
            apart = min(((cell != other).sum() for other in others), default=9)
            if apart >= max(self.options.min_distance, int(self.options.distinct)):
                new.append((cell, reward))
        for entry in new:
            place = self.count % self.options.size
            self.slots[place : place + 1] = [entry]
            self.count += 1

    def ranks(self) -> list[int]:
        """Places in the order of rewards of the slots that are used."""
        used = [(-entry[1], k) for k, entry in enumerate(self.slots)]
        return [sorted(used).index(entry) for entry in used]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("options", [{}, {"distinct": False}, {"min_distance": 2}], ids=["distinct", "all", "apart"])
def test_the_ring_is_that_of_slow_loops(framework, options):
    env = Hypergrid(dim=4, side=3, reward=GRID.reward)
    options = ReplayOptions(size=11, batch_size=2, priority="rank", **options)
    slow, rng = Slowly(options), np.random.default_rng(0)
    replay = jtu.tree_map(FRAMEWORKS[framework], Replay.empty(env, options))
    add = jax.jit(lambda replay, batch: replay.add(options, env, batch)) if framework == "jax" else None
    for _ in range(30):
        batch = cells(rng, 4, env)
        given = jtu.tree_map(FRAMEWORKS[framework], batch)
        replay = add(replay, given) if add else replay.add(options, env, given)
        slow.add(batch.position, env.log_reward(batch).astype(np.float32))
        used = list(range(len(slow.slots)))
        assert int(replay.held) == len(used) and np.flatnonzero(np.asarray(replay.used)).tolist() == used
        for k in used:
            assert np.asarray(replay.objects.position)[k].tolist() == slow.slots[k][0].tolist()
            assert np.asarray(replay.values)[k] == slow.slots[k][1] and np.asarray(replay.objects.done)[k]
        assert np.asarray(replay.ranks)[used].tolist() == slow.ranks()
    assert slow.count > 11, "the ring must have gone round"
    assert (slow.count < 120) == options.distinct, "some objects must have been refused"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_distances_are_those_of_objects_and_not_of_states(framework):
    """Two strings of one word each differ in one word, but in up to four bits."""
    env = tx.envs.BitSequences(bits=8, word=4, reward=tx.envs.BitModes(modes=("00000000",)))
    strings = ["00000000", "00000001", "00000011", "11000000", "11111111", "10100101"]
    states = env.states_of_bits(np.array([[int(bit) for bit in string] for string in strings]))
    options = ReplayOptions(size=11, batch_size=2, min_distance=3)
    replay = jtu.tree_map(FRAMEWORKS[framework], Replay.empty(env, options))
    for first in (0, 3):
        batch = jtu.tree_map(FRAMEWORKS[framework], pick(states, np.arange(first, first + 3)))
        replay = replay.add(options, env, batch)
    held = env.objects(jtu.tree_map(np.asarray, replay.objects))[: int(replay.held)]
    assert ["".join(map(str, row)) for row in held.tolist()] == ["00000000", "11111111", "10100101"]


def test_a_hash_that_says_nothing_loses_no_object(monkeypatch):
    """Every object has the same hash: what differs is stored all the same."""
    monkeypatch.setattr(_replay, "hashes", lambda states: 0 * states.position[:, 0])
    options = ReplayOptions(size=40, batch_size=2)
    replay = Replay.empty(GRID, options)
    all_cells = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2).astype(np.int32)
    for first in range(0, 16, 4):
        replay = replay.add(options, GRID, GridState(all_cells[first : first + 4], np.ones(4, bool)))
    assert {tuple(cell) for cell in replay.objects.position[:16].tolist()} == {tuple(c) for c in all_cells.tolist()}
    # A repeated object is found if it is the last of those with its hash.
    again = replay.add(options, GRID, GridState(all_cells[-1:], np.ones(1, bool)))
    assert int(again.added) == 16


def test_hashes_are_equal_in_every_framework_and_tell_states_apart():
    rng = np.random.default_rng(0)
    states = {
        "bits": rng.random((4000, 30)) < 0.5,
        "place": rng.integers(-1, 99, (4000, 2)),
        "x": rng.random((4000, 2)),
    }
    states["place"] = states["place"].astype(np.int32)
    results = [np.asarray(hashes(jtu.tree_map(make, states))) for make in FRAMEWORKS.values()]
    assert all((result == results[0]).all() for result in results) and results[0].dtype == np.int32
    assert len(set(results[0].tolist())) == 4000


def expected(kind, rewards, priorities):
    """The probability of each object."""
    number = len(rewards)
    ranks = np.argsort(np.argsort(-rewards, kind="stable"), kind="stable")
    if kind == "top":
        best = ranks < 0.1 * number
        return np.where(best, 0.5 / best.sum(), 0.5 / (~best).sum())
    weights = {
        "uniform": np.ones(number),
        "reward": np.exp(rewards),
        "rank": 1 / (0.01 * number + ranks),
        "loss": priorities,
    }[kind]
    return weights / weights.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_drawn_as_often_as_their_priorities_say(kind):
    rng, number, slots, draws = np.random.default_rng(1), 25, 40, 200_000
    rewards = rng.normal(size=slots).astype(np.float32)
    rewards[25:] = 50.0  # what lies in empty slots must not count
    ranks = np.zeros(slots, np.int32)
    ranks[:25] = np.argsort(np.argsort(-rewards[:25]))
    priorities = rng.random(slots).astype(np.float32) ** 2
    values = priorities if kind == "loss" else rewards
    uniform = rng.random(draws).astype(np.float32)
    found = drawn(kind, np.arange(slots) < number, values, ranks, uniform)
    wanted = np.zeros(slots)
    wanted[:25] = expected(kind, rewards[:25].astype(float), priorities[:25].astype(float))
    frequencies = np.bincount(found, minlength=slots) / draws
    np.testing.assert_allclose(frequencies, wanted, atol=5 * np.sqrt(wanted.max() / draws))
    assert (frequencies[25:] == 0).all() and np.abs(wanted[:25] - 1 / 25).max() > (0.01 if kind != "uniform" else -1)
    # The ends of the interval, and a single object.
    edges = np.array([2.0**-24, 1 - 2.0**-24], np.float32)
    assert (drawn(kind, np.arange(slots) < 1, values, 0 * ranks, edges) == 0).all()
    assert (drawn(kind, np.arange(slots) < number, values, ranks, edges) < number).all()


def collected(made, steps=3, seed=0):
    """The batch of a later step in NumPy, and the state that it was drawn in."""
    state = made.init(seed)
    for step in range(steps):
        draws = numpy_draws(made.draws(), seed, step)
        carry, batch = made.collect(state, draws, made.inputs())
        state = dataclasses.replace(state, carry=carry)
    return state, batch


@pytest.mark.parametrize("env", [GRID, BitStrings(4)], ids=["ragged", "fixed length"])
def test_replayed_trajectories_lead_to_objects_that_were_drawn(env):
    made = small(env, batch_size=5)
    state, batch = collected(made, seed=3)
    if not env.fixed_length:
        assert batch.length[:5].max() < batch.length[5:].max() < env.max_steps, "padding must be looked at"
    assert batch.actions.shape[1] == made.in_update == 8
    # What was finished last, the fresh objects come first.
    assert equal(pick(batch.last, np.arange(5)), pick(state.carry.objects, np.arange(10, 15))).all()
    held = {tuple(row) for row in rows_of(pick(state.carry.replay.objects, np.arange(int(state.carry.replay.held))))}
    assert {tuple(row) for row in rows_of(pick(batch.last, np.arange(5, 8)))} <= held
    # Every trajectory follows the rules from the source, and its last state stands in its padding.
    here = env.reset(8)
    for time in range(env.max_steps):
        assert equal(here, jtu.tree_map(lambda x, t=time: x[t], batch.states)).all()
        moving = time < batch.length
        allowed = np.take_along_axis(env.forward_mask(here), batch.actions[time][:, None], 1)[:, 0]
        assert (allowed | ~moving).all()
        here = env.step(here, batch.actions[time])
    assert equal(here, batch.last).all() and np.asarray(here.done).all()
    # The longest of them decides how far PyTorch looks: the rewards are those of the objects all the same.
    np.testing.assert_allclose(
        made.scores(state.networks, batch).log_reward, env.log_reward(batch.last).astype(np.float32)
    )


def test_before_the_start_backward_rollouts_begin_in_fresh_objects():
    made = small(start=20, distinct=False)
    state, batch = collected(made, steps=3)
    assert int(state.carry.replay.held) == 12
    assert equal(pick(batch.last, np.arange(4, 7)), pick(batch.last, np.arange(3))).all()
    late = collected(made, steps=9)[1]
    assert not equal(pick(late.last, np.arange(4, 7)), pick(late.last, np.arange(3))).all()


def test_errors_become_priorities():
    """After a step by hand, the objects that were drawn have weight |error|^0.9, all others what they had."""
    made = small(priority="loss", updates=2)
    state, given = made.init(0), []

    def update(state, loss, batch):
        terms = loss(state.networks, batch)[1].log()
        given.append((batch, terms["error"]))
        return state, {"loss": np.zeros(()), **terms}

    state, terms = made.step(state, numpy_draws(made.draws(), 0, 0), made.inputs(), update)
    assert "error" not in terms and len(given) == 2 and terms["loss"].shape == ()
    replay, wanted = state.carry.replay, {}
    for batch, errors in given:
        scores = made.scores(state.networks, batch)
        by_hand = scores.log_z + (scores.log_pf - scores.log_pb).sum(0) - scores.log_reward
        np.testing.assert_allclose(errors, by_hand, rtol=1e-5)
        own: dict = {}
        for cell, error in zip(batch.last.position[4:].tolist(), np.abs(errors[4:]), strict=True):
            own[tuple(cell)] = max(own.get(tuple(cell), 0.0), (error + 1e-6) ** 0.9)
        wanted |= own
    for k in range(int(replay.held)):
        weight = wanted.get(tuple(replay.objects.position[k].tolist()), 1.0)
        np.testing.assert_allclose(replay.values[k], weight, rtol=1e-5)


CASES = {
    "ragged, by rank": {"env": GRID, "priority": "rank", "objective": "detailed_balance", "start": 6},
    "fixed length, by loss": {"env": BitStrings(3), "priority": "loss", "updates": 2, "backward": "uniform"},
}


@pytest.mark.parametrize("case", CASES)
def test_modes_agree(case):
    report = parity.check(small(**CASES[case]), steps=12, seed=1).raise_if_different()
    items = {row.item for row in report.rows if row.rung == "training"}
    assert {"carry.replay.keys", "carry.replay.values", "carry.replay.added"} <= items


def test_parity_notices_a_replay_that_is_dropped_in_one_framework(monkeypatch):
    """Fresh trajectories stand in for those that should have been replayed."""
    honest = _lessons.joined

    def dropping(env, parts):
        if ops.framework(parts[0].actions) == "jax":
            number = parts[1].length.shape[0]
            first = jtu.tree_map(lambda x: x[..., :number] if x.ndim < 3 else x[:, :number], parts[0])
            parts = [parts[0], first]
        return honest(env, parts)

    monkeypatch.setattr(_lessons, "joined", dropping)
    report = parity.check(small(), ("torch", "jax"), steps=2)
    first = report.first_difference
    assert first is not None and first.rung == "collect" and first.item.startswith("batch.")


@pytest.mark.parametrize("mode", ["jax", "torch"])
def test_a_run_resumed_from_a_checkpoint_is_the_uninterrupted_one_to_the_bit(tmp_path, mode):
    made = small(priority="top")
    options = {"mode": mode, "evaluate_every": 0, "log_every": 1, "progress": False, "seed": 3}
    whole = tx.train(made, steps=12, **options)
    tx.train(made, steps=5, run_dir=tmp_path / "run", **options)
    resumed = tx.resume(tmp_path / "run", steps=12, progress=False)
    leaves = tree.named_leaves(resumed.state)
    assert any(name.startswith("carry.replay.objects") for name in leaves)
    for name, leaf in tree.named_leaves(whole.state).items():
        np.testing.assert_array_equal(leaf, leaves[name], err_msg=name)


def test_several_seeds_have_a_replay_each():
    from twinax.engines import make_engine

    engine = make_engine(small(priority="rank"), mode="jax", seeds=2, chunk=5)
    engine.compiler_options = QUICK_COMPILE
    engine.start(0)
    engine.run(5)
    replay = engine.state().carry.replay
    assert replay.ranks.shape == (2, 20) and (replay.added > 0).all()
    alone = make_engine(small(priority="rank"), mode="torch")
    alone.start(1)
    alone.run(5)
    np.testing.assert_array_equal(alone.state().carry.replay.objects.position, replay.objects.position[1])


def test_bad_options_are_said_in_a_sentence():
    with pytest.raises(UnknownName, match="newest"):
        ReplayOptions(priority="newest")
    with pytest.raises(UnknownName, match="pessimist"):
        ReplayOptions(backward="pessimist")
    with pytest.raises(TwinaxError, match="start is 30, but the replay has room for 20"):
        ReplayOptions(size=20, start=30)
    with pytest.raises(TwinaxError, match="finishes 32 objects, but replay.size=20"):
        small(batch_size=32)
    with pytest.raises(TwinaxError, match="batch_size is 0, so that nothing is drawn from the replay, but updates=3"):
        ReplayOptions(updates=3)
    with pytest.raises(TwinaxError, match="priority=loss .* relative_trajectory_balance is that of a prior"):
        small(objective="rtb", priority="loss")
    with pytest.raises(TwinaxError, match="min_distance is -1"):
        ReplayOptions(min_distance=-1)


def test_without_a_replay_nothing_is_carried_and_no_number_is_drawn():
    plain = problem(GRID, batch_size=4)
    assert plain.init(0).carry.replay is None and set(plain.draws()) == {"action", "explore"}
