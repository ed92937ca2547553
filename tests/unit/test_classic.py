"""The classic control problems against Gymnasium's own, and against themselves in three frameworks."""

from __future__ import annotations

import importlib
import math

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import ops, tree
from twinax.envs import CLASSIC, Box, CartPole, Control, Discrete, MountainCar, Moved, Pendulum
from twinax.errors import TwinaxError
from twinax.noise import numpy_draws

gymnasium = pytest.importorskip("gymnasium")

PEERS = {
    "cartpole": "CartPole-v1",
    "pendulum": "Pendulum-v1",
    "acrobot": "Acrobot-v1",
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
}
CARS = ("mountain_car", "mountain_car_continuous")
LIMITS = {
    "cartpole": (2.39, 3, 0.2, 3),
    "pendulum": (25, 8),
    "acrobot": (math.pi, math.pi, 4 * math.pi, 9 * math.pi),
    "mountain_car": (0.9, 0.1),
    "mountain_car_continuous": (0.9, 0.1),
}
"""States are begun anywhere between these and their negatives; those of the cars around -0.3."""


class Wide:
    """NumPy to a module of Gymnasium, without the rounding of states and observations to float32."""

    float32 = np.float64

    def __getattr__(self, name):
        return getattr(np, name)


@pytest.fixture
def peer(name, monkeypatch):
    """Gymnasium's world in float64."""
    env = gymnasium.make(PEERS[name]).unwrapped
    monkeypatch.setattr(importlib.import_module(type(env).__module__), "np", Wide())
    env.reset(seed=0)
    return env


def some_states(name, rng, rows):
    limits = np.array(LIMITS[name], np.float64)
    states = rng.uniform(-limits, limits, (rows, len(limits)))
    return states - np.array([0.3, 0]) if name in CARS else states


def some_actions(world, rng, shape):
    if isinstance(world.actions, Discrete):
        return rng.integers(world.actions.n, size=shape).astype(np.int32)
    # Beyond the bounds as well.
    return rng.uniform(-1.5, 1.5, (*shape, 1)) * world.actions.high[0]


def some_draws(world, rng, rows):
    """What `reset` needs, in float64."""
    return {name: rng.random(draw.shape) for name, draw in world.reset_draws(rows).items()}


def record(world, columns):
    kind = type(world.reset(numpy_draws(world.reset_draws(1), 0, 0)))
    return kind(*np.asarray(columns).T)


def columns(state):
    return np.stack(list(tree.named_leaves(state).values()), -1)


def play(env, starts, actions):
    """Gymnasium from each start until it ends: rows of (state, after, observation, reward, terminated, action)."""
    rows = []
    for start, choices in zip(starts, actions, strict=True):
        env.state, env.steps_beyond_terminated = start, None
        for action in choices:
            before = np.array(env.state)
            seen, reward, terminated, truncated, _ = env.step(action)
            assert not truncated and seen.dtype == np.float64
            rows.append((before, np.array(env.state), seen, reward, terminated, action))
            if terminated:
                break
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("name", PEERS)
def test_steps_are_those_of_gymnasium(name, peer):
    world, rng = CLASSIC[name](), np.random.default_rng(0)
    starts = np.concatenate([some_states(name, rng, 400), columns(world.reset(some_draws(world, rng, 50)))])
    before, after, seen, reward, terminated, action = play(peer, starts, some_actions(world, rng, (450, 12)))
    assert len(before) > 2000
    moved = world.step(record(world, before), action, {})
    assert isinstance(moved, Moved)
    np.testing.assert_allclose(columns(moved.state), after, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(world.observe(moved.state), seen, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(moved.reward, reward, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(moved.terminated, terminated)
    if moved.terms:
        np.testing.assert_allclose(sum(moved.terms.values()), reward, rtol=1e-11, atol=1e-11)
    # Every limit was met, or its constant would not be tested.
    assert name == "pendulum" or 10 < terminated.sum() < len(terminated) - 10
    for k, limit in {"pendulum": {1: 8}, "acrobot": {2: 4 * math.pi, 3: 9 * math.pi}}.get(name, {}).items():
        assert min((after[:, k] == limit).sum(), (after[:, k] == -limit).sum()) > 5
    if name in CARS:
        assert (after == [-1.2, 0]).all(1).sum() > 5 and (after[:, 0] == 0.6).sum() > 5
        assert min((after[:, 1] == 0.07).sum(), (after[:, 1] == -0.07).sum()) > 5
    if name == "acrobot":
        jumps = np.abs(after[:, :2] - before[:, :2]) > math.pi + 0.5
        assert jumps.sum() > 20 and np.abs(after[:, :2]).max() <= math.pi
    if name == "cartpole":
        over = np.abs(after[terminated][:, [0, 2]]) > [2.4, math.radians(12)]
        assert (over.sum(0) > 5).all() and (over.sum(1) == 1).any()


@pytest.mark.parametrize("name", PEERS)
def test_what_gymnasium_shows_is_only_rounded(name):
    """Nothing is hidden by the wide peer of the other tests: this is the world as people make it."""
    world, env, rng = CLASSIC[name](), gymnasium.make(PEERS[name]), np.random.default_rng(3)
    env.reset(seed=3)
    for action in some_actions(world, rng, (8,)):
        if isinstance(world.actions, Box):
            action = np.clip(action, *world.actions.low, *world.actions.high)
        moved = world.step(record(world, [env.unwrapped.state]), np.array([action], action.dtype), {})
        seen, reward, terminated, truncated, _ = env.step(action if action.ndim else int(action))
        assert seen.dtype == np.float32 and not truncated and moved.terminated[0] == terminated
        np.testing.assert_allclose(world.observe(moved.state)[0], seen, rtol=0, atol=3e-7)
        np.testing.assert_allclose(moved.reward[0], reward, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PEERS)
def test_episodes_begin_as_in_gymnasium(name, peer):
    world, rng = CLASSIC[name](), np.random.default_rng(0)
    places = some_draws(world, rng, 22)["start"]
    places[0], places[1] = 0, 1

    class Given:
        """A generator whose numbers are known."""

        def uniform(self, low, high, size=None):
            shape = np.shape(low) if size is None else size
            return low + (high - low) * place.reshape(shape)

    for place in places:
        peer._np_random = Given()
        seen, _ = peer.reset()
        state = world.reset({"start": place[None]})
        np.testing.assert_allclose(columns(state)[0], peer.state, rtol=0, atol=1e-15)
        np.testing.assert_allclose(world.observe(state)[0], seen, rtol=0, atol=1e-15)
    draws = numpy_draws(world.reset_draws(20_000), 0, 0)["start"]
    assert draws.mean() == pytest.approx(0.5, abs=0.01) and draws.var() == pytest.approx(1 / 12, abs=0.002)


@pytest.mark.parametrize("name", PEERS)
def test_spaces_and_limits_are_those_of_gymnasium(name):
    world, env = CLASSIC[name](), gymnasium.make(PEERS[name])
    assert isinstance(world, Control) and world.name == name and world.frameworks == ("numpy", "torch", "jax")
    assert world.time_limit == env.spec.max_episode_steps
    assert env.observation_space.shape == (world.observation_size,) == (world.critic_size,)
    if isinstance(world.actions, Discrete):
        assert env.action_space.n == world.actions.n
    else:
        assert isinstance(world.actions, Box)
        assert (env.action_space.low, env.action_space.high) == (world.actions.low, world.actions.high)
    assert world.step_draws(3) == {}
    assert getattr(world, "goal_velocity", None) == getattr(env.unwrapped, "goal_velocity", None)


def test_the_names():
    assert list(CLASSIC) == list(PEERS)


@pytest.mark.parametrize("name", ["cartpole"])
def test_a_pole_that_has_fallen_earns_nothing(peer):
    world = CartPole()
    peer.state = np.array([0, 0, 0.2, 2.0])
    state, rewards = record(world, [peer.state]), []
    with pytest.warns(UserWarning, match="already returned terminated"):
        for _ in range(4):
            _, reward, terminated, *_ = peer.step(1)
            moved = world.step(state, np.array([1]), {})
            state = moved.state
            assert moved.terminated[0] == terminated and moved.reward[0] == reward
            rewards.append(reward)
    assert rewards == [1, 0, 0, 0]


def test_settings_that_gymnasium_has():
    state = record(Pendulum(), [[1.0, 0.0]])
    heavy, light = (Pendulum(gravity=g).step(state, np.zeros((1, 1)), {}).state.spin[0] for g in (10.0, 5.0))
    assert heavy == pytest.approx(2 * light) == pytest.approx(0.75 * math.sin(1))
    arriving = record(MountainCar(), [[0.48, 0.03]])
    for speed, ends in ((0.0, True), (0.05, False)):
        assert MountainCar(goal_velocity=speed).step(arriving, np.array([2]), {}).terminated[0] == ends


def test_wrong_time_limits_are_refused():
    with pytest.raises(TwinaxError, match=r"^the time limit of cartpole is -1; it must be at least 0 \(never\)$"):
        CartPole(time_limit=-1)
    assert CartPole(time_limit=0).time_limit == 0


# Frameworks


def walk(world):
    def run(draws, actions):
        def turn(state, action):
            moved = world.step(state, action, {})
            return moved.state, (moved, world.observe(moved.state))

        return ops.scan(turn, world.reset(draws), actions)

    return run


@pytest.mark.parametrize("name", PEERS)
def test_frameworks_agree(name, double_precision, quick_compilation):
    """The whole walk in JAX is one program over two seeds at once."""
    world, rng = CLASSIC[name](), np.random.default_rng(1)
    draws = jtu.tree_map(lambda *x: np.stack(x), some_draws(world, rng, 8), some_draws(world, rng, 8))
    actions = some_actions(world, rng, (2, 40, 8))
    run = walk(world)
    found = jax.jit(jax.vmap(run))(*jtu.tree_map(jnp.asarray, (draws, actions)))
    for k in range(2):
        rows = jtu.tree_map(lambda x, k=k: x[k], (draws, actions))
        wanted = tree.named_leaves(run(*rows))
        others = {
            "jax": jtu.tree_map(lambda x, k=k: x[k], found),
            "torch": run(*jtu.tree_map(torch.from_numpy, rows)),
        }
        for framework, result in others.items():
            leaves = tree.named_leaves(result)
            assert leaves.keys() == wanted.keys()
            for leaf, value in leaves.items():
                where = f"{framework} {leaf}"
                np.testing.assert_allclose(np.asarray(value), wanted[leaf], rtol=0, atol=1e-12, err_msg=where)
                assert str(value.dtype).removeprefix("torch.") == str(wanted[leaf].dtype), where


@pytest.mark.parametrize("name", PEERS)
def test_single_precision_stays_single(name, double_precision):
    world, rng = CLASSIC[name](), np.random.default_rng(2)
    draws, actions = some_draws(world, rng, 8), some_actions(world, rng, (3, 8))
    wanted = tree.named_leaves(walk(world)(draws, actions))
    single = jtu.tree_map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, (draws, actions))
    for found in (
        walk(world)(*single),
        walk(world)(*jtu.tree_map(torch.from_numpy, single)),
        jax.eval_shape(walk(world), *jtu.tree_map(jnp.asarray, single)),
    ):
        for leaf, value in tree.named_leaves(found).items():
            kind = "bool" if leaf.endswith("terminated") else "float32"
            assert str(value.dtype).removeprefix("torch.") == kind, leaf
            assert value.shape == wanted[leaf].shape
            if not isinstance(value, jax.ShapeDtypeStruct):
                np.testing.assert_allclose(np.asarray(value), wanted[leaf], rtol=1e-4, atol=1e-5, err_msg=leaf)
