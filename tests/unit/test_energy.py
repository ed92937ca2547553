"""A reward that is learned: fakes by an exact matrix of transitions, gradients, agreement, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinax as tx
from twinax import ops, parity, tree
from twinax.engines import make_engine
from twinax.envs import Hypergrid, Ising, LearnedCouplings, Spins
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import (
    EnergyOptions,
    LocalSearchOptions,
    MetricOptions,
    Networks,
    PolicyOptions,
    ReplayOptions,
    _local_search,
    problem,
)
from twinax.gflownet._energy import contrast, energy_draws, held_energy
from twinax.gflownet._metrics import indices_of
from twinax.gflownet._trajectories import Given
from twinax.noise import below, numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from exact_couplings import likeliest_couplings
from test_local_search import Walker, target

J = "learned_couplings"
COUPLINGS, FIELDS = np.array([[0.0, 0.4], [0.4, 0.0]]), np.array([0.5, -0.2])
ROWS = 20_000


class Fakes:
    """Four objects, a random policy, and the exact law of what a datum becomes."""

    def __init__(self, steps: int, accept: str = "metropolis"):
        env = Spins.of(COUPLINGS, FIELDS)
        fresh = problem(env, policy=PolicyOptions(hidden=(8,))).init(3).networks.policy
        policy = jax.tree.map(lambda x: 4 * np.float64(x), fresh)  # far from even
        options = LocalSearchOptions(rounds=1, steps=steps or 2, accept="metropolis")
        self.walker = Walker(env, options, policy)
        self.options = EnergyOptions(batch_size=4 * ROWS, steps=steps, accept=accept)

    def frequencies(self) -> np.ndarray:
        graph = self.walker.graph
        observed = jax.tree.map(lambda x: x[self.walker.objects], graph.states)
        env = Spins.of(np.zeros((2, 2)), FIELDS).with_reward(LearnedCouplings(observed.spins))
        networks = Networks(self.walker.policy, None, {J: COUPLINGS})
        draws = below(numpy_draws(energy_draws(env, self.options), 0, 0), "energy")
        given = Given({**env.constants(), **held_energy(networks)})
        seen, traced = contrast(env, networks, "learned", self.options, observed, draws, given)
        assert traced is None
        start, end = (
            np.searchsorted(self.walker.objects, indices_of(graph, states)) for states in (seen.data, seen.fakes)
        )
        found = np.zeros((4, 4))
        np.add.at(found, (start, end), 1.0)
        self.rows = found.sum(1, keepdims=True)
        return found / self.rows

    def allowed(self, exact: np.ndarray) -> np.ndarray:
        return 5 * np.sqrt(exact * (1 - exact) / self.rows) + 1e-9


@pytest.mark.parametrize("steps", [1, 0], ids=["one step back", "all steps back"])
def test_fakes_of_four_objects_leave_the_law_as_it_is(steps, monkeypatch):
    fakes = Fakes(steps)
    exact, law = fakes.walker.matrix(), target(fakes.walker)
    assert len(law) == 4 and law.max() > 2 * law.min()
    np.testing.assert_allclose(law @ exact, law, atol=1e-12)
    found = fakes.frequencies()
    assert (np.abs(found - exact) <= fakes.allowed(exact)).all()
    # The sign of both peers: another matrix, with another law.
    inverted = fakes.walker.matrix(sign=-1.0)
    assert np.abs(law @ inverted - law).max() > 0.01
    honest = _local_search.accept_log_ratio
    monkeypatch.setattr(
        _local_search, "accept_log_ratio", lambda a, b: 2 * (b.log_reward - a.log_reward) - honest(a, b)
    )
    wrong = fakes.frequencies()
    assert (np.abs(wrong - exact) > fakes.allowed(exact)).any()
    assert (np.abs(wrong - inverted) <= fakes.allowed(inverted)).all()


def test_barkers_rule_leaves_the_law_as_it_is():
    fakes = Fakes(1, "barker")
    found, law = fakes.frequencies(), target(fakes.walker)
    flow = law[:, None] * found
    assert np.abs(flow - flow.T).max() < 5 * np.sqrt(0.25 / ROWS)
    assert np.trace(found) > np.trace(fakes.walker.matrix()), "it accepts less than metropolis"


WORLD = Ising(2, sigma=0.2).with_reward(LearnedCouplings(samples=40))


def small(objective="trajectory_balance", env=WORLD, options=None, **energy):
    return problem(
        env,
        objective,
        batch_size=4,
        policy=PolicyOptions(hidden=(8,)),
        metrics=MetricOptions(fifo=20, samples=16),
        optimizer=tx.Optimizer(learning_rate=1e-2, rates={"log_z": 0.1, "energy": 1e-2}),
        energy=EnergyOptions(**{"batch_size": 6, "steps": 2, "l1": 0.05, **energy}),
        **options or {},
    )


def batch_of(made, couplings=None):
    """A state with these couplings, and what an update learns from."""
    state = made.init(0)
    if couplings is not None:
        networks = Networks(state.networks.policy, state.networks.log_z, {J: couplings.astype(np.float32)})
        state = dataclasses.replace(state, networks=networks)
    return state, made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]


def random_couplings(places: int) -> np.ndarray:
    matrix = np.random.default_rng(1).normal(size=(places, places))
    return np.triu(matrix, 1) + np.triu(matrix, 1).T


def test_each_part_of_the_loss_teaches_what_it_is_to_teach():
    made, matrix = small(), random_couplings(4)
    state, batch = jax.tree.map(jnp.asarray, batch_of(made, matrix))
    paid = np.einsum("bi,ij,bj->b", batch.last.spins, matrix, batch.last.spins)
    np.testing.assert_allclose(made.scores(state.networks, batch).log_reward, paid, rtol=1e-5, atol=1e-5)
    parts = jax.jit(jax.jacrev(lambda networks: made.loss(networks, batch)[1].parts))(state.networks)
    objective, taught, sparse = (parts[part] for part in ("objective_loss", "contrast_loss", "l1_loss"))
    # The policy is taught with the couplings held still, and the couplings by contrast alone.
    assert not np.asarray(objective.energy[J]).any()
    assert np.abs(tree.named_leaves(objective)["log_z"]).max() > 0
    assert not any(np.asarray(leaf).any() for name, leaf in tree.named_leaves(taught).items() if J not in name)
    data, fakes = (
        np.asarray(side.spins, np.float64) for side in (batch.given.contrast.data, batch.given.contrast.fakes)
    )
    wanted = fakes.T @ fakes / len(fakes) - data.T @ data / len(data)
    np.testing.assert_allclose(taught.energy[J], wanted, atol=1e-6)
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(sparse.energy[J], 0.05 * np.sign(matrix), atol=1e-7)


def test_trajectories_to_the_data_are_learned_from_when_asked():
    made, plain = small(retrace=True), small()
    (_, batch), (_, fresh) = batch_of(made), batch_of(plain)
    assert (made.in_update, plain.in_update) == (10, 4) == (batch.actions.shape[1], fresh.actions.shape[1])
    np.testing.assert_array_equal(batch.last.spins[4:], batch.given.contrast.data.spins)
    env, here = made.env, made.env.reset(10)
    for time in range(env.max_steps):
        here = env.step(here, batch.actions[time])
    np.testing.assert_array_equal(here.spins, batch.last.spins)


@dataclass(frozen=True)
class Heights:
    """A reward of a person's own, on a grid: each coordinate pays what is learned of its value."""

    cells: tuple[tuple[int, int], ...]

    def learnable(self, env):
        return {"heights": np.zeros((env.dim, env.side))}

    constants = learnable

    def observed(self, env):
        return env.states_of(np.array(self.cells))

    def log_reward(self, env, state):
        heights = env.constant("heights", state.position)
        here = state.position[..., None] == ops.arange(env.side, state.position)
        return ops.sum(ops.where(here, heights[None], 0.0), (-2, -1))


CELLS = tuple(map(tuple, np.random.default_rng(0).choice(3, (200, 2), p=[0.6, 0.3, 0.1]).tolist()))
GRID = Hypergrid(2, 3).with_reward(Heights(CELLS))


CASES = {
    "trajectory balance": small(),
    "forward looking": small("forward_looking", rounds=2, accept="barker", retrace=True, steps=0),
    "several lengths": small(env=GRID),
}


@pytest.mark.parametrize("case", CASES)
def test_modes_agree(case):
    parity.check(CASES[case], steps=3, seed=1).raise_if_different()


@pytest.mark.parametrize("first", ["torch", "jax"])
def test_a_run_goes_on_in_another_mode(first, tmp_path):
    made, then = small(), {"torch": "jax", "jax": "torch"}[first]
    whole = tx.train(made, mode=then, steps=4, progress=False)
    tx.train(made, mode=first, steps=2, run_dir=tmp_path / "run", progress=False)
    resumed = tx.resume(tmp_path / "run", steps=4, mode=then, progress=False)
    one, other = (tree.named_leaves(run.state) for run in (whole, resumed))
    learned = one[f"networks.energy.{J}"]
    assert np.abs(learned).max() > 1e-3 and (learned == learned.T).all() and not np.diag(learned).any()
    assert f"optimizer.first.energy.{J}" in other
    for name, leaf in one.items():
        np.testing.assert_allclose(np.float64(other[name]), np.float64(leaf), rtol=2e-3, atol=2e-4, err_msg=name)


def test_what_is_measured_and_shown_is_that_of_the_couplings_as_they_are():
    made = small()
    engine = make_engine(made, mode="jax", chunk=10)
    engine.start(0)
    engine.run(10)
    matrix, state = np.round(random_couplings(4), 2), engine.state()
    networks = Networks(state.networks.policy, state.networks.log_z, {J: matrix.astype(np.float32)})
    state = dataclasses.replace(state, networks=networks)
    engine.load(state)
    found = engine.evaluate()
    systems = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    log_z = np.logaddexp.reduce(np.einsum("bi,ij,bj->b", systems, matrix, systems))
    assert found["log_z_error"] == pytest.approx(found["log_z"] - log_z, abs=1e-5)
    # Bounds of the partition function as it is: objects of the upper one follow what has been learned.
    assert found["elbo"] < log_z - 1 and found["eubo"] > log_z
    assert found["kl"] > 0 and 0 < found["total_variation"] < 1
    np.testing.assert_allclose(found["picture/couplings/learned"], matrix, atol=1e-6)
    for objects in (made.use.sample(state, 5, 0), made.use.top_k(state, 3)):
        x = np.float64(objects.states.spins)
        np.testing.assert_allclose(objects.log_rewards, np.einsum("bi,ij,bj->b", x, matrix, x), rtol=1e-5, atol=1e-6)
    assert "log_z" not in made.present.describe() and {"acceptance", "contrast_loss"} <= set(made.judge.titles)


def test_a_reward_of_ones_own_is_learned_where_trajectories_have_several_lengths():
    """The likeliest law of two coordinates that pay apart is the product of their frequencies."""
    steps, seen = 400, np.array(CELLS)
    made = problem(
        GRID,
        batch_size=64,
        policy=PolicyOptions(hidden=(32, 32)),
        optimizer=tx.Optimizer(
            learning_rate=5e-3, rates={"log_z": 0.1, "energy": 2e-2}, decay_steps=steps, decay_to=0.01
        ),
        energy=EnergyOptions(steps=3),
    )
    engine = make_engine(made, mode="jax", chunk=200)
    engine.start(0)
    engine.run(steps)
    heights = np.float64(engine.state().networks.energy["heights"])
    learned = np.exp(heights) / np.exp(heights).sum(1, keepdims=True)
    wanted = np.stack([np.bincount(column, minlength=3) for column in seen.T]) / len(seen)
    np.testing.assert_allclose(learned, wanted, atol=0.04)
    assert np.abs(wanted - 1 / 3).max() > 0.2 and engine.evaluate()["total_variation"] < 0.05


def test_it_learns_the_likeliest_couplings():
    """Those of 1,000 systems on a torus of nine, which Newton's method finds over all 512 systems; the true couplings
    are further away."""
    steps, env = 300, Ising(3, sigma=0.15).with_reward(LearnedCouplings(samples=1000, seed=1))
    wanted = likeliest_couplings(np.float64(env.observed().spins))
    made = problem(
        env,
        batch_size=64,
        policy=PolicyOptions(hidden=(64, 64), backward="uniform"),
        metrics=MetricOptions(exact_limit=0, samples=64),
        optimizer=tx.Optimizer(
            learning_rate=5e-3, rates={"log_z": 0.1, "energy": 1e-2}, decay_steps=steps, decay_to=0.01
        ),
    )
    engine = make_engine(made, mode="jax", chunk=150)
    engine.start(0)
    logs = engine.run(steps)
    error = np.sqrt(np.mean(np.square(engine.state().networks.energy[J] - wanted)))
    true = np.sqrt(np.mean(np.square(env.reward.true_couplings(env) - wanted)))
    assert error < 0.6 * true < 0.2 * np.sqrt(np.mean(np.square(wanted))), (error, true)
    assert logs["acceptance"][-50:].mean() > 0.6


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EnergyOptions(batch_size=0), "batch_size is 0"),
        (lambda: EnergyOptions(steps=-1), "steps is -1"),
        (lambda: EnergyOptions(rounds=0), "rounds is 0"),
        (lambda: EnergyOptions(l1=-0.1), "l1 is -0.1"),
        (lambda: EnergyOptions(l1=float("inf")), "l1 is inf"),
        (lambda: small(env=Ising(2)), "energy says how a reward is learned from data, but that of Ising"),
        (lambda: small(options={"replay": ReplayOptions(batch_size=4)}), "replay.batch_size is 4, but the reward is"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(make, words):
    with pytest.raises(TwinaxError, match=words):
        make()


def test_unknown_rules_are_said():
    with pytest.raises(UnknownName, match="reward"):
        EnergyOptions(accept="reward")
