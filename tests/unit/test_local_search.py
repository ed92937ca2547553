"""Local search: what it proposes, held to an exact matrix of transitions, and what is accepted and trained on."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import jax.tree_util as jtu
import numpy as np
import pytest

import twinax as tx
from twinax import ops, parity
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid, enumerate_states
from twinax.envs.state_rows import equal, pick
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import (
    LocalSearchOptions,
    MetricOptions,
    Networks,
    PolicyOptions,
    ReplayOptions,
    _local_search,
    problem,
)
from twinax.gflownet._local_search import local_search, proposal, search_draws
from twinax.gflownet._metrics import indices_of
from twinax.gflownet._proposals import accept_log_ratio
from twinax.gflownet._trajectories import Given
from twinax.noise import numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings, random_policy

GRID = Hypergrid(2, 3, GridReward(0.1, 0.5, 2.0))
WORLDS = {"ragged": (GRID, 3), "fixed length": (BitStrings(3), 2)}


class Walker:
    """All transitions of one world, by its rules, one path after the other."""

    def __init__(self, env, options: LocalSearchOptions, policy=None):
        self.env, self.options, self.graph = env, options, enumerate_states(env)
        self.policy = policy or random_policy(env, seed=3)
        states = self.graph.states
        out = self.policy(env.observe(states))
        self.log_pf = ops.log_softmax(out.forward_logits, env.forward_mask(states))
        self.log_pb = ops.log_softmax(out.backward_logits, env.backward_mask(states))
        self.edges = list(zip(self.graph.source, self.graph.action, self.graph.target, strict=True))
        self.objects = np.flatnonzero(self.graph.done)

    def back(self, edge) -> float:
        """log P_B along an edge."""
        source, action, target = edge
        if self.env.stops and self.graph.done[target]:
            return 0.0
        here = pick(self.graph.states, np.array([target]))
        return self.log_pb[target, int(np.asarray(self.env.backward_action(here, np.array([action])))[0])]

    def backward_paths(self, node, steps) -> list[tuple]:
        """Paths of so many edges that end in a node, the last edge first."""
        if steps == 0:
            return [()]
        into = [edge for edge in self.edges if edge[2] == node]
        return [(edge, *rest) for edge in into for rest in self.backward_paths(edge[0], steps - 1)]

    def forward_paths(self, node) -> list[tuple]:
        """Paths from a node to the end."""
        if self.graph.done[node]:
            return [()]
        return [(edge, *rest) for edge in self.edges if edge[0] == node for rest in self.forward_paths(edge[2])]

    def matrix(self, sign=1.0) -> np.ndarray:
        """Row by row the law of what follows an object, worked out over all pairs of paths."""
        number, options = len(self.objects), self.options
        place = {node: k for k, node in enumerate(self.objects)}
        lengths = range(1, options.steps + 1) if options.varied(self.env) else [options.steps]
        matrix = np.zeros((number, number))
        for x in self.objects:
            for steps in lengths:
                for tau in self.backward_paths(x, steps):
                    start, log_back = tau[-1][0], sum(self.back(edge) for edge in tau)
                    for other in self.forward_paths(start):
                        y, log_forth = other[-1][2], sum(self.log_pf[s, a] for s, a, _ in other)
                        if len(other) > options.steps:
                            continue
                        ratio = (
                            self.graph.log_reward[y]
                            - self.graph.log_reward[x]
                            + sign
                            * (
                                sum(self.back(edge) for edge in other)
                                + sum(self.log_pf[s, a] for s, a, _ in tau)
                                - log_back
                                - log_forth
                            )
                        )
                        chance = np.exp(log_back + log_forth + min(0.0, ratio)) / len(lengths)
                        matrix[place[x], place[y]] += chance
        matrix[np.arange(number), np.arange(number)] += 1 - matrix.sum(1)
        return matrix

    def transitions(self, start, seed=0):
        """One round of the real search from each of some objects: the places of what it goes on from."""
        objects = pick(self.graph.states, self.objects[start])
        draws = numpy_draws(search_draws(self.env, self.options, len(start)), seed, 0)
        own = {name.removeprefix("search/"): value for name, value in draws.items()}
        seen = []

        def watching(condition, one, other):
            seen.append(honest(condition, one, other))
            return seen[-1]

        honest, _local_search._chosen = _local_search._chosen, watching
        try:
            local_search(self.env, Networks(self.policy, None), "learned", self.options, objects, own, Given())
        finally:
            _local_search._chosen = honest
        return np.searchsorted(self.objects, indices_of(self.graph, seen[-1]))


@pytest.fixture(scope="module", params=WORLDS)
def walker(request):
    env, steps = WORLDS[request.param]
    return Walker(env, LocalSearchOptions(rounds=1, steps=steps, accept="metropolis"))


def target(walker):
    weights = np.exp(walker.graph.log_reward[walker.objects].astype(float))
    return weights / weights.sum()


def test_the_exact_matrix_leaves_the_target_as_it_is(walker):
    matrix, law = walker.matrix(), target(walker)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(law @ matrix, law, atol=1e-12)
    # Reversible, and it moves.
    np.testing.assert_allclose(law[:, None] * matrix, (law[:, None] * matrix).T, atol=1e-12)
    assert np.trace(matrix) < 0.9 * len(law)
    wrong = walker.matrix(sign=-1.0)
    assert np.abs(law @ wrong - law).max() > 0.01, "the sign of both peers must fail this test"


def frequencies(walker, rows=20_000):
    number = len(walker.objects)
    start = np.repeat(np.arange(number), rows)
    found = np.zeros((number, number))
    np.add.at(found, (start, walker.transitions(start)), 1 / rows)
    return found


def test_the_search_is_that_matrix(walker, monkeypatch):
    rows = 20_000
    found, exact = frequencies(walker, rows), walker.matrix()
    allowed = 5 * np.sqrt(exact * (1 - exact) / rows) + 1e-9
    assert (np.abs(found - exact) <= allowed).all()
    # With the sign the other way round it is another one.
    monkeypatch.setattr(
        _local_search, "accept_log_ratio", lambda a, b: 2 * (b.log_reward - a.log_reward) - accept_log_ratio(a, b)
    )
    wrong = frequencies(walker, rows)
    assert (np.abs(wrong - exact) > allowed).any()
    assert np.abs(target(walker) @ wrong - target(walker)).max() > 0.01


def small(env=GRID, batch_size=4, replay=3, **search):
    return problem(
        env,
        batch_size=batch_size,
        policy=PolicyOptions(hidden=(8,)),
        metrics=MetricOptions(fifo=40, samples=32),
        replay=ReplayOptions(size=40, batch_size=replay),
        local_search=LocalSearchOptions(**{"rounds": 3, "steps": 2, **search}),
    )


@pytest.mark.parametrize("env", [GRID, BitStrings(4)], ids=["ragged", "fixed length"])
@pytest.mark.parametrize("accept", ["reward", "metropolis"])
def test_all_proposals_are_trajectories_by_the_rules_and_are_trained_on(env, accept):
    made = small(env, accept=accept)
    state = made.init(0)
    carry, batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())
    assert batch.length.shape == (4 * (1 + 3) + 3,) == (made.in_update,)
    here = env.reset(made.in_update)
    for time in range(env.max_steps):
        assert equal(here, jtu.tree_map(lambda x, t=time: x[t], batch.states)).all()
        moving = time < batch.length
        allowed = np.take_along_axis(env.forward_mask(here), batch.actions[time][:, None], 1)[:, 0]
        assert (allowed | ~moving).all()
        here = env.step(here, batch.actions[time])
    assert equal(here, batch.last).all() and np.asarray(here.done).all()
    # The store and the replay hold the proposals as well.
    assert int(carry.added) == 16 and equal(pick(carry.objects, np.arange(16)), pick(batch.last, np.arange(16))).all()
    held = pick(carry.replay.objects, np.arange(int(carry.replay.held)))
    for row in range(16):
        assert equal(held, pick(batch.last, np.full(int(carry.replay.held), row))).any()


def test_the_best_objects_may_be_proposals_and_frequencies_are_those_of_the_policy():
    made = small(rounds=4, replay=0)
    engine = make_engine(made, mode="torch")
    engine.start(0)
    engine.run(9)
    carry, found = engine.state().carry, engine.evaluate()
    number = len(carry.objects.position)
    assert number == 40 < int(carry.added), "a whole number of batches, 4 fresh objects and 16 proposals each"
    rewards, fresh = np.exp(GRID.log_reward(carry.objects)), np.arange(number) % 20 < 4
    cells = [len(np.unique(carry.objects.position[rows], axis=0)) for rows in (fresh, fresh | True)]
    assert cells[0] < cells[1], "or the test shows nothing"
    best = np.sort(
        [rewards[(carry.objects.position == cell).all(1)][0] for cell in np.unique(carry.objects.position, axis=0)]
    )
    assert np.isclose(found["top_k_reward"], best[::-1][:10].mean())
    counts = np.zeros((3, 3))
    np.add.at(counts, tuple(carry.objects.position[fresh].T), 1)
    target = np.exp(GRID.log_reward(GRID.states_of(np.indices((3, 3)).reshape(2, -1).T))).reshape(3, 3)
    wanted = 0.5 * np.abs(counts / counts.sum() - target / target.sum()).sum()
    assert np.isclose(found["sampled_total_variation"], wanted, atol=1e-6)


def test_it_goes_on_from_what_was_accepted():
    """By reward, what it goes on from never gets worse, and a proposal shares its beginning with it."""
    env, rounds, batch = Hypergrid(2, 8, GridReward(0.1, 0.5, 2.0)), 30, 64
    options = LocalSearchOptions(rounds=rounds, steps=3)
    networks = Networks(random_policy(env), None)
    begun = env.states_of(np.tile([[3, 3]], (batch, 1)))
    draws = numpy_draws(search_draws(env, options, batch), 0, 0)
    own = {name.removeprefix("search/"): value for name, value in draws.items()}
    found = local_search(env, networks, "uniform", options, begun, own, Given())
    rewards = env.log_reward(found.last).reshape(rounds, batch)
    cells = found.last.position.reshape(rounds, batch, 2)
    current, worth = begun.position, env.log_reward(begun)
    for step in range(rounds):
        # Two steps besides the stop are undone.
        least = np.maximum(current - 2, 0)
        assert (cells[step] >= least).all()
        better = rewards[step] >= worth
        current, worth = np.where(better[:, None], cells[step], current), np.where(better, rewards[step], worth)
    assert worth.mean() > env.log_reward(begun).mean() + 0.5, "it must have climbed"


def test_more_steps_than_a_trajectory_has_are_a_walk_to_the_source():
    env, batch = BitStrings(3), 16
    networks, found = Networks(random_policy(env), None), {}
    draws = numpy_draws(search_draws(env, LocalSearchOptions(rounds=1, steps=3), batch), 0, 0)
    own = {name.removeprefix("search/"): value[0] for name, value in draws.items()}
    begun = pick(enumerate_states(env).states, np.full(batch, -1))
    for steps in (3, 50):
        options = LocalSearchOptions(rounds=1, steps=steps, accept="metropolis")
        _, new, possible = proposal(env, networks, "uniform", options, begun, own)
        assert possible.all(), "from every object the source is as far"
        found[steps] = new.last
    assert equal(found[3], found[50]).all()


CASES = {
    "ragged": {"accept": "metropolis"},
    "fixed length": {"env": BitStrings(3), "accept": "reward", "replay": 0},
}


@pytest.mark.parametrize("case", CASES)
def test_modes_agree(case):
    parity.check(small(**CASES[case]), steps=5, seed=1).raise_if_different()


@pytest.mark.slow
@pytest.mark.parametrize("accept", ["reward", "metropolis", "barker"])
def test_it_learns(accept):
    steps, grid = 800, Hypergrid(dim=2, side=8, reward=GridReward(0.1, 0.5, 2.0))
    made = problem(
        grid,
        batch_size=8,
        policy=PolicyOptions(hidden=(64, 64)),
        optimizer=tx.Optimizer(learning_rate=3e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        replay=ReplayOptions(size=500, batch_size=8),
        local_search=LocalSearchOptions(rounds=2, steps=6, accept=accept),
    )
    engine = make_engine(made, mode="jax", chunk=400)
    engine.start(0)
    engine.run(steps)
    found = engine.evaluate()
    assert found["total_variation"] < 0.01 and abs(found["log_z_error"]) < 0.01


def test_bad_options_are_said_in_a_sentence():
    with pytest.raises(UnknownName, match="sometimes"):
        LocalSearchOptions(accept="sometimes")
    with pytest.raises(TwinaxError, match="steps is 0"):
        LocalSearchOptions(steps=0)
    with pytest.raises(TwinaxError, match="finishes 44 objects, but replay.size=40"):
        small(rounds=10)
    assert set(dataclasses.asdict(LocalSearchOptions())) == {"rounds", "steps", "accept"}
