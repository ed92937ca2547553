"""Worlds: golden rewards, path counts, and `check_env` against worlds that are broken on purpose."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from twinax import ops
from twinax.envs import Corners, GridReward, GridState, Hypergrid, Uniform, check_env, enumerate_states
from twinax.envs._enumeration import TooManyStates
from twinax.errors import TwinaxError
from twinax.gflownet import _exact, problem
from twinax.networks import KHot

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import DIAMOND, BitStrings, LeftToRight, NodeState, TableWorld

# Rewards of the grid


def total_reward(dim: int, side: int, reward: GridReward) -> float:
    """Z without the enumeration: every cell at once."""
    cells = np.stack(np.meshgrid(*[np.arange(side)] * dim, indexing="ij"), -1).reshape(-1, dim)
    return math.fsum(np.exp(paid(reward, cells, side)))


def paid(reward, cells, side: int):
    """log R of cells, as a grid of this side pays it."""
    return Hypergrid(cells.shape[1], side, reward).log_reward(GridState(cells, cells[:, 0] >= 0))


@pytest.mark.parametrize(
    ("dim", "side", "reward", "z"),
    [
        (4, 20, GridReward.easy(), 5672.0),
        (4, 20, GridReward.hard(), 10784.0),
        (2, 8, GridReward(0.1, 0.5, 2.0), 22.4),
        (2, 10, GridReward.easy(), 26.1),
        (2, 5, GridReward.easy(), 2.025),
    ],
)
def test_golden_partition_functions(dim, side, reward, z):
    assert total_reward(dim, side, reward) == pytest.approx(z, rel=1e-12)


def test_enumeration_has_the_golden_partition_function_and_every_cell_once():
    graph = enumerate_states(Hypergrid(2, 8, GridReward(0.1, 0.5, 2.0)))
    assert graph.log_z == pytest.approx(math.log(22.4), abs=1e-12)
    assert len(graph.done) == 128 and graph.done.sum() == 64
    assert len(np.unique(graph.states.position[graph.done], axis=0)) == 64
    assert graph.target_distribution.sum() == pytest.approx(1.0, abs=1e-12)
    # A parent always stands in an earlier level than its child.
    assert not graph.states.position[0].any()
    level = np.zeros(len(graph.done), int)
    for k, (low, high) in enumerate(zip(graph.edge_levels[:-1], graph.edge_levels[1:], strict=True)):
        assert (level[graph.source[low:high]] == k).all()
        level[graph.target[low:high]] = k + 1


BANDS = {
    8: {1, 6},
    16: {2, 13},
    32: {4, 5, 6, 25, 26, 27},
    64: {7, 8, 9, 10, 11, 12, 51, 52, 53, 54, 55, 56},
    20: {2, 3, 16, 17},
}


@pytest.mark.parametrize("side", BANDS)
def test_golden_bands(side):
    tiers = GridReward.easy().tiers(np.arange(side)[:, None], side)
    assert set(np.flatnonzero(tiers == 2).tolist()) == BANDS[side]


@pytest.mark.parametrize("side", [2, 3, 5, 11, 21, 31, 41, 101])
def test_tiers_are_those_of_rational_arithmetic(side):
    tiers = GridReward.easy().tiers(np.arange(side)[:, None], side).tolist()
    for s in range(side):
        a = abs(Fraction(s, side - 1) - Fraction(1, 2))
        wanted = int(a > Fraction(1, 4)) + int(Fraction(3, 10) < a < Fraction(4, 10))
        assert tiers[s] == wanted, (side, s)


def test_both_bounds_of_the_band_are_outside_where_floats_go_wrong():
    tiers = GridReward.easy().tiers(np.arange(11)[:, None], 11).tolist()
    assert tiers == [1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1]


def test_the_band_needs_every_coordinate():
    reward = GridReward(0.1, 0.5, 2.0)
    cells = np.array([[1, 6], [1, 0], [1, 3], [3, 4]])
    np.testing.assert_allclose(np.exp(paid(reward, cells, 8)), [2.6, 0.6, 0.1, 0.1], rtol=1e-12)


def test_rewards_are_equal_in_every_framework(double_precision):
    import jax.numpy as jnp
    import torch

    cells = np.random.default_rng(0).integers(0, 21, (50, 3)).astype(np.int32)
    for reward in (GridReward.hard(), Uniform(2.5), Corners()):
        wanted = paid(reward, cells, 21)
        assert wanted.dtype == np.float64
        np.testing.assert_allclose(paid(reward, torch.from_numpy(cells), 21).numpy(), wanted, rtol=1e-12)
        np.testing.assert_allclose(paid(reward, jnp.asarray(cells), 21), wanted, rtol=1e-12)


def test_uniform_reward():
    assert enumerate_states(Hypergrid(2, 3, Uniform())).log_z == pytest.approx(math.log(9))
    assert enumerate_states(Hypergrid(2, 3, Uniform(0.5))).log_z == pytest.approx(math.log(4.5))


def test_corners_are_gaussians_of_the_distance_from_the_centre():
    side, mu, variance = 7, 0.75, 0.05
    cells = np.stack(np.meshgrid(*[np.arange(side)] * 2, indexing="ij"), -1).reshape(-1, 2)
    rewards = np.exp(paid(Corners(mu, variance), cells, side))
    for cell, reward in zip(cells.tolist(), rewards, strict=True):
        x = [abs(-1 + 2 * s / (side - 1)) for s in cell]
        distance = sum((c - mu) ** 2 for c in x)
        density = math.exp(-distance / (2 * variance)) / (2 * math.pi * variance)
        assert reward == pytest.approx(density, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GridReward(0.0, 0.5, 2.0), "r0 is 0"),
        (lambda: GridReward(0.1, -0.2, 2.0), r"r0 \+ r1"),
        (lambda: GridReward(0.1, 0.5, -1.0), r"r0 \+ r1 \+ r2"),
        (lambda: GridReward(float("nan"), 0.5, 2.0), "r0 is nan"),
        (lambda: GridReward(0.1, float("inf"), 2.0), "r1 is inf"),
        (lambda: Uniform(0.0), "uniform reward is 0"),
        (lambda: Uniform(float("inf")), "uniform reward is inf"),
        (lambda: Corners(sigma=0.0), "sigma=0"),
        (lambda: Corners(mu=float("nan")), "mu=nan"),
        (lambda: Hypergrid(dim=0), "dim is 0"),
        (lambda: Hypergrid(side=1), "side is 1"),
        (lambda: Hypergrid(dim=-3, side=4), "dim is -3"),
        (lambda: Hypergrid(dim=2, side=10**8), "dim x side must be below 107,374,182"),
        (lambda: Hypergrid(dim=31, side=2), r"dim=31 has 2\^31 modes .* make dim at most 30"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(TwinaxError, match=words):
        make()


# The grid


def test_grid_steps_by_hand():
    env = Hypergrid(dim=2, side=3)
    state = env.step(env.reset(4), np.array([0, 1, 2, 0]))
    np.testing.assert_array_equal(state.position, [[1, 0], [0, 1], [0, 0], [1, 0]])
    np.testing.assert_array_equal(state.done, [False, False, True, False])
    np.testing.assert_array_equal(env.forward_mask(state)[2], [False, False, False])
    np.testing.assert_array_equal(env.backward_mask(state), [[True, False], [False, True], [False] * 2, [True, False]])
    corner = GridState(np.array([[2, 1]]), np.array([False]))
    np.testing.assert_array_equal(env.forward_mask(corner), [[False, True, True]])
    assert isinstance(env.observe(corner), KHot)
    np.testing.assert_array_equal(env.observe(corner).dense("float32"), [[0, 0, 1, 0, 1, 0]])
    np.testing.assert_array_equal(env.observe(corner).indices, [[2, 4]])


@pytest.mark.parametrize(("dim", "side"), [(1, 4), (2, 5), (3, 4)])
def test_path_ratios_are_those_of_counted_paths(dim, side):
    env = Hypergrid(dim, side)
    graph = enumerate_states(env)
    counts = _exact.log_path_counts(graph)
    # (sum s)! / prod s_i!, written out
    position = graph.states.position
    wanted = [math.factorial(int(s.sum())) / math.prod(map(math.factorial, s.tolist())) for s in position]
    np.testing.assert_allclose(np.exp(counts), wanted, rtol=1e-12)
    inner = np.flatnonzero(~graph.done & (position.sum(1) > 0))
    states = GridState(position[inner], graph.done[inner])
    probabilities = ops.softmax(env.log_paths_ratio(states), env.backward_mask(states))
    index = {tuple(s): k for k, s in enumerate(position.tolist()) if not graph.done[k]}
    for k, row in zip(inner, probabilities, strict=True):
        for i in np.flatnonzero(position[k]):
            parent = position[k].copy()
            parent[i] -= 1
            assert row[i] == pytest.approx(math.exp(counts[index[tuple(parent.tolist())]] - counts[k]), rel=1e-12)


def test_modes_are_the_corner_regions_of_the_best_tier():
    env = Hypergrid(2, 8)
    graph = enumerate_states(env)
    modes = env.mode(graph.states)[graph.done]
    rewards = graph.log_reward[graph.done]
    assert env.num_modes == 4 and set(modes.tolist()) == {-1, 0, 1, 2, 3}
    np.testing.assert_array_equal(modes >= 0, rewards == rewards.max())
    # Without band cells the outer region counts.
    small = enumerate_states(Hypergrid(2, 5))
    assert (Hypergrid(2, 5).mode(small.states)[small.done] >= 0).sum() == 4 * 1
    assert Hypergrid(2, 8, Uniform()).num_modes == 0


def test_enumeration_refuses_what_is_too_large():
    with pytest.raises(TooManyStates, match="more than 100 states"):
        enumerate_states(Hypergrid(3, 8), limit=100)
    assert Hypergrid(4, 20).num_states == 320_000
    assert enumerate_states(Hypergrid(3, 4)).done.size == Hypergrid(3, 4).num_states
    # More than any float or 64 bits hold.
    assert problem(Hypergrid(300, 20, Uniform())).present.describe()["batch_size"] == 16


# check_env on sound worlds


@pytest.mark.parametrize(
    ("env", "states", "done", "edges"),
    [
        (Hypergrid(2, 4), 32, 16, 2 * 12 + 16),
        (Hypergrid(3, 3, Corners()), 54, 27, 3 * 18 + 27),
        (Hypergrid(1, 2, Uniform()), 4, 2, 3),
        (BitStrings(3), 27, 8, 54),
        (LeftToRight(4), 31, 16, 30),
        (TableWorld(DIAMOND, (4, 5), 3), 6, 2, 6),
    ],
    ids=["grid", "corners", "line", "bits", "left-to-right", "table"],
)
def test_sound_worlds_pass(env, states, done, edges):
    report = check_env(env)
    assert report.enumerated and report.longest == env.max_steps
    assert (report.states, report.done, report.edges) == (states, done, edges)
    assert report.frameworks == ("numpy", "jax", "torch")


@pytest.mark.parametrize("env", [Hypergrid(4, 20), BitStrings(12)], ids=["grid", "bits"])
def test_large_worlds_are_walked(env):
    report = check_env(env, limit=1000)
    assert not report.enumerated and report.longest == env.max_steps
    assert report.states > 400 and report.edges > report.states


# check_env on broken ones: each is caught by its own sentence


class ForgottenParent(Hypergrid):
    """The backward mask forbids going back along axis 1."""

    def backward_mask(self, state):
        return super().backward_mask(state) & ops.like(np.arange(self.dim) != 1, state.position)


class InventedParent(Hypergrid):
    """The backward mask allows leaving the grid below zero."""

    def backward_mask(self, state):
        return (state.position >= 0) & ~state.done[..., None] & ops.any(state.position > 0, -1)[..., None]


class NarrowMask(Hypergrid):
    """The forward mask forbids the last cell of each axis, but only beyond the first row."""

    def forward_mask(self, state):
        mask = super().forward_mask(state)
        edge = (state.position[..., :1] == self.side - 2) & (state.position[..., 1:2] > 0)
        return mask & ~(edge & ops.like(np.arange(self.dim + 1) == 0, state.position))


class WideMask(Hypergrid):
    """The forward mask lets a walker leave the grid."""

    def forward_mask(self, state):
        alive = ~state.done[..., None]
        return ops.concat([(state.position < self.side) & alive, alive], -1)


class LazyStep(Hypergrid):
    """An allowed action does nothing in one cell."""

    def step(self, state, action):
        moved = super().step(state, action)
        lazy = ops.all(state.position == 1, -1) & (action == 0)
        return GridState(ops.where(lazy[..., None], state.position, moved.position), moved.done)


class WrongUndo(Hypergrid):
    """The backward step undoes the next axis."""

    def backward_step(self, state, action):
        return super().backward_step(state, (action + 1) % self.dim)


class WrongUnstop(Hypergrid):
    """Going back from a stopped state moves as well."""

    def backward_step(self, state, action):
        return GridState(state.position - self._unit(action), state.done & False)


class WrongActionNumber(Hypergrid):
    """backward_action names the mirrored axis."""

    def backward_action(self, state, action):
        return self.dim - 1 - action


class UneasyDone(Hypergrid):
    """A done walker goes on walking."""

    def step(self, state, action):
        return GridState(state.position + self._unit(action), state.done | (action == self.dim))


class ActiveDone(Hypergrid):
    """Actions are allowed in done states."""

    def forward_mask(self, state):
        room = state.position < self.side - 1
        return ops.concat([room, ~state.done[..., None]], -1)


class DeadEnd(Hypergrid):
    """In the far corner nothing is allowed, not even to stop."""

    def forward_mask(self, state):
        return super().forward_mask(state) & ~ops.all(state.position == self.side - 1, -1)[..., None]


class EarlyEnd(Hypergrid):
    """The far corner is done without a stop."""

    def step(self, state, action):
        moved = super().step(state, action)
        return GridState(moved.position, moved.done | ops.all(moved.position == self.side - 1, -1))


class TextOfAll(Hypergrid):
    """Writes a whole batch, where one object is asked for."""

    def text(self, objects):  # type: ignore[override]
        return [str(cell) for cell in objects]


class TextAsList(Hypergrid):
    """Gives a list."""

    def text(self, objects, index):
        return list(objects[index])


class ManyResets(Hypergrid):
    """Every row of a batch starts in another cell."""

    def reset(self, batch):
        return GridState(np.arange(batch * self.dim, dtype=np.int32).reshape(batch, -1) // 4, np.zeros(batch, bool))


class DoneReset(Hypergrid):
    """The source is done."""

    def reset(self, batch):
        return GridState(np.zeros((batch, self.dim), np.int32), np.ones(batch, bool))


class WrongLength(Hypergrid):
    """max_steps forgets the stop action."""

    @property
    def max_steps(self):
        return self.dim * (self.side - 1)


class TooLong(Hypergrid):
    """max_steps is dim * side + 1, more than any trajectory has."""

    @property
    def max_steps(self):
        return self.dim * self.side + 1


class NoReward(Hypergrid):
    """One cell is worth nothing."""

    def log_reward(self, state):
        reward = super().log_reward(state)
        return ops.where(ops.all(state.position == 1, -1), -float("inf"), reward)


class ColumnReward(Hypergrid):
    """log_reward keeps an axis too many."""

    def log_reward(self, state):
        return super().log_reward(state)[:, None]


class WrongObservation(Hypergrid):
    """The observation is wider than observation_size."""

    def observe(self, state):
        return KHot(super().observe(state).indices, self.dim * self.side + 1)


class OutsideObservation(Hypergrid):
    """An index outside the observation."""

    def observe(self, state):
        return KHot(super().observe(state).indices + 1, self.dim * self.side)


class DoubleObservation(Hypergrid):
    """Both coordinates share their columns."""

    def observe(self, state):
        return KHot(state.position, self.dim * self.side)


class WrongPaths(Hypergrid):
    """Paths are claimed to be equally many to every parent."""

    def log_paths_ratio(self, state):
        return ops.zeros(state.position.shape, state.position, "float32")


class WrongModes(Hypergrid):
    """Mode numbers start at one."""

    def mode(self, state):
        return super().mode(state) + 1


class IntegerMask(Hypergrid):
    """A mask of zeros and ones."""

    def forward_mask(self, state):
        return ops.cast(super().forward_mask(state), "int32")


class WideState(Hypergrid):
    """step widens the positions."""

    def step(self, state, action):
        moved = super().step(state, action)
        return GridState(ops.cast(moved.position, "int64"), moved.done)


class NumpyInside(Hypergrid):
    """A rule that insists on NumPy."""

    def log_reward(self, state):
        return super().log_reward(state._replace(position=np.asarray(state.position)))


class OtherInTorch(Hypergrid):
    """A rule that knows which framework it is in."""

    def log_reward(self, state):
        return super().log_reward(state) + (1.0 if ops.framework(state.position) == "torch" else 0.0)


BROKEN = {
    ForgottenParent: r"the backward mask forbids the way back of an allowed .*position=\[0, 0\].*action 1",
    InventedParent: r"a second source: a parent cannot be reached from the source .*\[0, 1\].*action 0",
    NarrowMask: "the backward mask allows a parent whose forward mask forbids the way there",
    WideMask: "observe gives an index outside|same index twice",
    LazyStep: r"an allowed forward action does not change the state .*position=\[1, 1\].*action 0",
    WrongUndo: r"backward_step does not undo step .*position=\[0, 0\]",
    WrongUnstop: r"backward_step does not undo the stop action .*action 2",
    WrongActionNumber: "the backward mask forbids the way back",
    UneasyDone: "a done state does not stay as it is under step .*done=True, action 0",
    ActiveDone: "a done state allows a forward action .*done=True, action 0",
    DeadEnd: r"a state that is not done allows no forward action .*position=\[3, 3\]",
    EarlyEnd: r"the stop action, and .* nothing else, must end it .*\[3, 2\].*action 1",
    TextOfAll: r"text\(objects, 0\) fails with TypeError",
    TextAsList: r"text\(objects, 0\) gives a list; it must be one line of text",
    ManyResets: "reset gives more than one source state",
    DoneReset: "the source state is done",
    WrongLength: "the longest trajectory has 7 actions, but max_steps is 6",
    TooLong: "the longest trajectory has 7 actions, but max_steps is 9",
    NoReward: r"log-reward is not finite.*position=\[1, 1\]",
    ColumnReward: r"log_reward gives the shape \(32, 1\) for 32 states",
    WrongObservation: r"observe gives the shape \(3, 9\), but observation_size=8",
    OutsideObservation: r"observe gives an index outside 0\.\.7",
    DoubleObservation: "same index twice in a KHot",
    WrongPaths: "log_paths_ratio disagrees with the counted paths",
    WrongModes: r"mode gives a number outside -1\.\.3",
    IntegerMask: r"forward_mask gives int32\(3, 3\), but it must be bool\(3, 3\)",
    WideState: r"step turns an array of the state from int32.* into int64",
    NumpyInside: "do not run under jax.jit; write them with twinax.ops",
    OtherInTorch: "log_reward is not the same in torch as in numpy .*state",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_broken_grids_are_caught(kind):
    with pytest.raises(TwinaxError, match=BROKEN[kind]):
        check_env(kind(2, 4))


WALKED = {
    ForgottenParent: "the backward mask forbids the way back",
    LazyStep: "an allowed forward action does not change the state|comes back to a state",
    WrongUndo: "backward_step does not undo step",
    WrongLength: "a walk of max_steps=18 actions does not end",
    NoReward: "log-reward is not finite",
    OtherInTorch: "not the same in torch",
}


@pytest.mark.parametrize("kind", WALKED, ids=lambda kind: kind.__name__)
def test_broken_grids_are_caught_by_walks(kind):
    with pytest.raises(TwinaxError, match=WALKED[kind]):
        check_env(kind(2, 10), limit=20)


def test_a_cycle_is_caught():
    # 0 -> 1 -> 2 -> 1: the way round has its own backward action, so that no other rule breaks.
    env = TableWorld(((0, 0, 1), (1, 1, 2), (2, 2, 1), (2, 0, 3)), (3,), 3)
    with pytest.raises(TwinaxError, match=r"has a cycle through the state node=[12], done=False"):
        check_env(env)
    with pytest.raises(TwinaxError, match="has a cycle"):
        enumerate_states(env)


def test_a_cycle_is_caught_by_walks():
    ring = [(k, 0, k + 1) for k in range(30)] + [(30, 1, 1), (30, 2, 31)]
    with pytest.raises(TwinaxError, match="comes back to a state"):
        check_env(TableWorld(tuple(ring), (31,), 2000), limit=10)


def test_an_unreachable_second_source_is_caught():
    # Node 6 is a parent of node 3 that no walk from the source visits.
    with pytest.raises(TwinaxError, match=r"a second source: a parent cannot be reached .*node=3.*action 2"):
        check_env(TableWorld((*DIAMOND, (6, 2, 3)), (4, 5), 3))


def test_a_reachable_state_without_parents_is_caught():
    with pytest.raises(TwinaxError, match=r"the backward mask forbids the way back .*node=1.*action 0"):
        check_env(TableWorld(DIAMOND, (4, 5), 3, forgotten=((1, 0, 5),)))


def test_a_source_with_a_parent_is_caught():
    class Before(TableWorld):
        def backward_mask(self, state):
            mask = super().backward_mask(state)
            return mask | (state.node == 0)[:, None]

    with pytest.raises(TwinaxError, match="the source allows a backward action .*node=0"):
        check_env(Before(DIAMOND, (4, 5), 3))


def test_a_second_source_is_caught_by_walks():
    # A long line; node 40 of it has a second parent that has none itself.
    line = [(k, 0, k + 1) for k in range(60)]
    with pytest.raises(TwinaxError, match="a second source: a walk back ends"):
        check_env(TableWorld((*line, (61, 1, 40)), (60,), 60), limit=10)


def test_two_edges_with_one_way_back_are_caught():
    class Twins(TableWorld):
        """Actions 0 and 1 lead to the same child by one backward action."""

        def step(self, state, action):
            return super().step(state, action * 0)

        def forward_mask(self, state):
            mask = super().forward_mask(state)
            return ops.concat([mask[:, :1], mask[:, :1]], -1)

        def backward_action(self, state, action):
            return action * 0

    twins = Twins(((0, 0, 1), (1, 0, 2), (0, 1, 1)), (2,), 2)
    with pytest.raises(TwinaxError, match="forward_action does not invert backward_action .*action 1"):
        check_env(twins)


def test_states_with_fractions_are_told_apart():
    states = NodeState(np.array([0.2, 0.7, -0.0, 0.0]), np.zeros(4, bool))
    from twinax.envs.state_rows import rows_of

    assert len(np.unique(rows_of(states), axis=0)) == 3
