"""Environments written in JAX by others: gymnax equal to ours, Brax as it is, and what goes wrong with it."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
import urllib.request
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax import tree
from twinax.engines import make_engine
from twinax.envs import BraxWorld, CartPole, GymnaxWorld, check_brax_env
from twinax.envs._brax_checks import PROBE
from twinax.envs._classic_poles import CartPoleState
from twinax.errors import TwinaxError, UnknownName
from twinax.noise import Draw, numpy_draws
from twinax.ppo import begin, play, problem

pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL: dict = {"hidden": (8, 8), "num_envs": 4, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "episodes": 3}


# Gymnax


@pytest.fixture
def gymnax(monkeypatch):
    """Gymnax, also where `six` is missing, from which it takes one function."""
    if importlib.util.find_spec("gymnax") is None:
        pytest.skip("gymnax is not installed")
    if "six" not in sys.modules and importlib.util.find_spec("six") is None:
        for name in ("six", "six.moves", "six.moves.urllib"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "six.moves.urllib.request", urllib.request)
    import gymnax

    return gymnax


def test_gymnax_cartpole_is_ours(gymnax):
    world, ours = GymnaxWorld("CartPole-v1"), CartPole()
    assert (world.observation_size, world.actions, world.time_limit, world.frameworks) == (
        4,
        ours.actions,
        500,
        ("jax",),
    )
    state = world.reset({"seed": np.random.default_rng(0).uniform(size=(6, 2)).astype(np.float32)})
    assert isinstance(state.observation, np.ndarray) and abs(state.observation).max() < 0.05
    assert len(np.unique(state.observation[:, 0])) == 6
    mine = CartPoleState(*state.observation.T.copy())
    step = jax.jit(world.step)
    for action in np.random.default_rng(1).integers(0, 2, (30, 6)).astype(np.int32):
        moved, want = step(state, action, {"seed": jnp.full((6, 2), 0.5)}), ours.step(mine, action, {})
        np.testing.assert_allclose(moved.state.observation, ours.observe(want.state), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(moved.terminated, want.terminated)
        np.testing.assert_array_equal(moved.reward, want.reward)
        state, mine = moved.state, want.state
    assert np.asarray(moved.terminated).any()


def test_the_limit_of_gymnax_is_no_end(gymnax):
    world = GymnaxWorld("Pendulum-v1", time_limit=3, parameters={"g": 9.0, "max_steps_in_episode": 2})
    assert (world.time_limit, world.actions.low, world._given.g) == (3, (-2.0,), 9.0)
    assert GymnaxWorld("Pendulum-v1").time_limit == 200
    spec = {"policy": Draw((7, 2, 1)), **{f"{rule}/seed": Draw((7, 2, 2)) for rule in ("step", "reset")}}
    playing = begin(world, numpy_draws(world.reset_draws(2), 0, 1))

    def choose(observation, noise):
        return noise, noise[:, 0], noise

    _, happened = jax.jit(lambda *given: play(world, choose, *given))(playing, numpy_draws(spec, 0, 0))
    np.testing.assert_array_equal(happened.length[:, 0], [1, 2, 3, 1, 2, 3, 1])
    np.testing.assert_array_equal(happened.truncated, happened.length == 3)
    assert not happened.terminated.any()
    # What is seen last goes on from before; what comes next is a new start.
    np.testing.assert_array_equal(happened.next_observation[:2], happened.observation[1:3])
    assert (happened.next_observation[2] != happened.observation[3]).any(-1).all()
    with pytest.raises(TwinaxError, match="Pendulum-v1 runs in jax only, and trainer.mode=hybrid plays in torch"):
        make_engine(problem(world, **SMALL), mode="hybrid")


def test_the_limit_of_gymnax_is_seen_as_it_is(gymnax):
    # This environment shows which part of its time has gone by; only its limit ends it.
    world = GymnaxWorld("DiscountingChain-bsuite", parameters={"max_steps_in_episode": 4}, time_limit=6)
    assert GymnaxWorld("DiscountingChain-bsuite").time_limit == 100
    spec = {"policy": Draw((8, 2, 5)), **{f"{rule}/seed": Draw((8, 2, 2)) for rule in ("step", "reset")}}
    playing = begin(world, numpy_draws(world.reset_draws(2), 0, 1))

    def choose(observation, noise):
        point = jnp.zeros(2, jnp.int32)
        return point, noise[:, 0], point

    _, happened = jax.jit(lambda *given: play(world, choose, *given))(playing, numpy_draws(spec, 0, 0))
    np.testing.assert_allclose(happened.observation[:, 0, 1] * 4, [0, 1, 2, 3, 4, 5, 0, 1], atol=1e-6)
    np.testing.assert_allclose(happened.next_observation[:, 0, 1] * 4, [1, 2, 3, 4, 5, 6, 1, 2], atol=1e-6)
    np.testing.assert_array_equal(happened.truncated[:, 0], np.arange(8) == 5)
    assert not happened.terminated.any()


@pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning")
def test_a_limit_that_gymnax_notes_in_its_state_is_no_end(gymnax):
    # Breakout keeps `terminal`, which its limit sets too.
    world = GymnaxWorld("Breakout-MinAtar", flatten=True, parameters={"max_steps_in_episode": 2})
    draws = {"seed": np.full((1, 2), 0.5, np.float32)}
    state, step = world.reset(draws), jax.jit(world.step)
    for _ in range(4):
        moved = step(state, np.zeros(1, np.int32), draws)
        assert not moved.terminated.any() and not moved.state.inner.terminal.any()
        state = moved.state


@pytest.mark.slow
def test_gymnax_trains_in_double_precision(gymnax):
    engine = make_engine(
        problem(GymnaxWorld("CartPole-v1", time_limit=3), **SMALL), mode="jax", dtype="float64", chunk=2
    )
    engine.start(0)
    np.testing.assert_array_equal(engine.run(2)["train_length"], 3)
    assert engine.evaluate()["episode_length"] == 3
    assert engine.state().carry.playing.now.observation.dtype == np.float64


@pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"id": "CartPol-v1"}, "unknown env.id 'CartPol-v1'.*Did you mean 'CartPole-v1'"),
        ({"id": "Breakout-MinAtar"}, r"observes arrays of shape \(10, 10, 4\).*env.flatten=true"),
        ({"parameters": {"gravitation": 1}}, "unknown parameter of CartPole-v1 'gravitation'"),
        ({"time_limit": -1}, "time limit of CartPole-v1 is -1"),
    ],
)
def test_bad_gymnax_environments_are_refused(gymnax, given, words):
    with pytest.raises(TwinaxError, match=words):
        GymnaxWorld(**given)


@pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning")
def test_images_of_gymnax_can_be_flattened(gymnax):
    world = GymnaxWorld("Breakout-MinAtar", flatten=True)
    draws = {"seed": np.full((2, 2), 0.5, np.float32)}
    state = world.reset(draws)
    moved = world.step(state, np.zeros(2, np.int32), draws)
    for seen in (state.observation, moved.state.observation):
        assert seen.shape == (2, world.observation_size) == (2, 400) and seen.dtype == np.float32


# Brax


@tree.record
class BraxState:
    """The fields of Brax's State, so that these tests need no Brax."""

    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)


class Slide:
    """Push a point from a random place; beyond 1 it ends. Written as for Brax: one world, in JAX."""

    action_size = 2

    def reset(self, rng):
        at = jax.random.uniform(rng, (3,))
        zero = jnp.zeros(())
        return BraxState(at, zero, zero, {"reward/speed": zero}, {"rng": rng, "count": jnp.zeros((), jnp.int32)})

    def step(self, state, action):
        at = state.obs + 0.1 * jnp.sum(action @ jnp.ones((2,), jnp.float32))
        info = {**state.info, "count": state.info["count"] + 1}
        ended = (jnp.abs(at[0]) > 1).astype(jnp.float32)
        return state.replace(obs=at, reward=at[0], done=ended, metrics={"reward/speed": at[1]}, info=info)


def test_brax_environments_are_worlds():
    world = BraxWorld(env=Slide(), time_limit=5)
    assert (world.observation_size, world.actions.size, world.name) == (3, 2, "Slide")
    state = world.reset({"seed": np.random.default_rng(0).uniform(size=(4, 2))})
    assert isinstance(state.info["rng"], np.ndarray) and state.obs.dtype == np.float64
    moved = world.step(state, np.ones((4, 2)), {})
    np.testing.assert_allclose(moved.state.obs, state.obs + 0.2, rtol=1e-6)
    np.testing.assert_array_equal(moved.terminated, moved.state.obs[:, 0] > 1)
    np.testing.assert_array_equal(moved.terms["reward_speed"], moved.state.obs[:, 1])
    np.testing.assert_array_equal(moved.state.info["count"], 1)


def test_brax_worlds_train_several_seeds_from_a_pool_and_resume_exactly():
    subject = problem(BraxWorld(env=Slide(), time_limit=5), pool=8, **SMALL)
    engine = make_engine(subject, mode="jax", chunk=2, seeds=2)
    engine.start(0)
    logs = engine.run(2)
    assert logs["truncated"].max() > 0 and logs["reward_speed"].shape == (2, 2)
    kept = engine.state()
    engine.run(1)
    want = tree.named_leaves(engine.state())
    engine.load(kept)
    engine.run(1)
    for name, value in tree.named_leaves(engine.state()).items():
        np.testing.assert_array_equal(value, want[name], err_msg=name)


def variant(**rules):
    return type("Broken", (Slide,), rules)()


def changed(**changes):
    """Slide with fields of the state changed after each step."""

    def step(self, state, action):
        after = Slide.step(self, state, action)
        return after.replace(**{name: change(after) for name, change in changes.items()})

    return variant(step=step)


class VmapWrapper:
    """Named as Brax's."""

    def __init__(self, env):
        self.env = env
        self.action_size = env.action_size

    def reset(self, rng):
        return jax.vmap(self.env.reset)(rng)

    def step(self, state, action):
        return jax.vmap(self.env.step)(state, action)


def numpy_step(self, state, action):
    return state.replace(obs=jnp.asarray(np.asarray(state.obs) + np.asarray(action).sum()))


def branching_step(self, state, action):
    return state if action[0] > 0 else Slide.step(self, state, action)


BROKEN = {
    "numpy": (variant(step=numpy_step), r"Broken.step asks for the values of arrays \(TracerArrayConversionError\)"),
    "branch": (variant(step=branching_step), r"TracerBoolConversionError\).*jnp.where and lax.cond"),
    "wrapped": (
        VmapWrapper(Slide()),
        "VmapWrapper is a batch already .it is wrapped in VmapWrapper.*single environment",
    ),
    "batched": (
        variant(reset=lambda self, rng: jax.vmap(lambda k: Slide.reset(self, k))(jax.random.split(rng, 8))),
        r"its reset gives a reward of shape \(8,\) for one key",
    ),
    "in_axes": (
        variant(reset=lambda self, rng: jax.vmap(lambda k: Slide.reset(self, k))(rng[0])),
        "batch already .its reset maps over an axis that one key or state lacks",
    ),
    "grown info": (
        changed(info=lambda s: {**s.info, "truncation": s.done}),
        "its state has info.truncation only after step.*give them a value from the beginning",
    ),
    "emptied info": (
        changed(info=lambda s: {}),
        "its state has info.count, info.rng only after reset.*hand them on",
    ),
    "metrics": (changed(metrics=lambda s: {}), "its state has metrics.reward/speed only after reset"),
    "action": (variant(action_size=3), "Broken.step fails for an action of its own action_size, 3 numbers: "),
    "actuators": (
        variant(action_size=3, sys=types.SimpleNamespace(nu=2)),
        r"action_size, 3 numbers \(its model has 2 actuators\)",
    ),
    "bool": (changed(done=lambda s: s.obs[0] > 1), "done is float32 after reset and bool after step.*astype"),
    "int": (
        changed(info=lambda s: {**s.info, "count": s.reward}),
        "info.count is int32 after reset and float32 after step",
    ),
    "shape": (changed(reward=lambda s: s.obs), r"reward is float32 after reset and float32\[3\] after step"),
    "no step": (types.SimpleNamespace(reset=None, action_size=1), "has no step"),
    "no state": (variant(reset=lambda self, rng: jnp.zeros(3)), "without obs; it must be a brax State"),
    "typed key": (
        variant(reset=lambda self, rng: Slide.reset(self, rng).replace(info={"key": jax.random.key(0)})),
        "info.key is a key<fry>, which no file can hold",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_goes_wrong_with_brax_is_said(what):
    env, words = BROKEN[what]
    with pytest.raises(TwinaxError, match=words):
        BraxWorld(env=env)


def test_wrappers_that_restart_are_refused():
    class AutoResetWrapper(Slide):
        pass

    with pytest.raises(TwinaxError, match="AutoResetWrapper would hide time limits and last observations"):
        BraxWorld(env=AutoResetWrapper())


def test_what_the_wrappers_of_brax_ask_for():
    check_brax_env(Slide(), keeps_info=True)
    dropping = changed(info=lambda s: {name: value for name, value in s.info.items() if name != PROBE})
    check_brax_env(dropping)
    with pytest.raises(TwinaxError, match="Broken.step makes a new info and drops what Brax's wrappers keep there"):
        check_brax_env(dropping, keeps_info=True)


def test_entries_of_an_observation():
    def split(function):
        def rule(self, *given):
            state = function(self, *given)
            return state.replace(obs={"state": state.obs[:2], "all": state.obs, "image": jnp.zeros((2, 2))})

        return rule

    def step(self, state, action):
        return split(Slide.step)(self, state.replace(obs=state.obs["all"]), action)

    env = variant(reset=split(Slide.reset), step=step)
    world = BraxWorld(env=env, critic="all")
    assert (world.observation_size, world.critic_size, world.privileged) == (2, 3, True)
    state = world.reset({"seed": np.full((2, 2), 0.5)})
    assert world.observe(state).shape == (2, 2) and world.observe_critic(state).shape == (2, 3)
    with pytest.raises(UnknownName, match="unknown entry of what Broken observes 'pixels'; known: all, image, state"):
        BraxWorld(env=env, observation="pixels")
    with pytest.raises(TwinaxError, match=r"shape \(2, 2\).*env.observation"):
        BraxWorld(env=env, observation="image")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Brax System:UserWarning")
def test_environments_of_brax_itself():
    pytest.importorskip("brax")
    with pytest.raises(UnknownName, match="unknown env.id 'quick'"):
        BraxWorld("quick")
    with pytest.raises(TwinaxError, match="cannot make env.id=reacher with env.backend=bullet"):
        BraxWorld("reacher", backend="bullet")
    from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper

    fast = BraxWorld("fast", time_limit=3)
    for wrapper in (VmapWrapper(fast.env), EpisodeWrapper(fast.env, 10, 1)):
        with pytest.raises(TwinaxError, match=type(wrapper).__name__):
            BraxWorld(env=wrapper)
    engine = make_engine(problem(fast, **SMALL), mode="jax", dtype="float64", chunk=2)
    engine.start(0)
    assert (engine.run(2)["train_length"] == 3).all()
