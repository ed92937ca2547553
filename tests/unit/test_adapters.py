"""Worlds of other libraries: equal to ours step by step, restarts and last observations, modes, refusals."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import numpy as np
import pytest

from twinax import parity, runs, tree
from twinax.brax.exchange import brax_env
from twinax.engines import make_engine
from twinax.envs import BraxWorld, CartPole, GymnasiumWorld, GymnaxWorld
from twinax.envs._classic_poles import CartPoleState
from twinax.envs._seeds import seeds
from twinax.errors import MissingExtra, TwinaxError
from twinax.noise import Draw, numpy_draws
from twinax.ppo import begin, entered, play, problem
from twinax.ppo._episodes import episode_draws, play_episodes

pytestmark = pytest.mark.usefixtures("quick_compilation")
gymnasium = pytest.importorskip("gymnasium")

SMALL: dict = {"hidden": (8, 8), "num_envs": 4, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "episodes": 3}


class Counting(gymnasium.Env):
    """Sees its seed's last digits and the steps so far; ends at 6 with action 1, and is cut off at 4 otherwise."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.tag = 0, seed % 1000
        return self.seen(), {}

    def seen(self):
        return np.array([self.tag, self.at], np.float32)

    def step(self, action):
        assert action in (5, 6), action
        self.at += 1
        return self.seen(), float(self.at), bool(action == 6), self.at >= 4, {}


def draws_for(world, steps, worlds, seed=0):
    spec: dict[str, Any] = {f"step/{name}": draw for name, draw in world.step_draws(worlds).items()}
    spec["policy"] = Draw((worlds,))
    spec = {name: dataclasses.replace(draw, shape=(steps, *draw.shape)) for name, draw in spec.items()}
    return numpy_draws(spec, seed, 0)


def always(action):
    def choose(observation, noise):
        chosen = np.full(len(observation), action)
        return chosen, np.zeros(len(observation)), chosen

    return choose


# Gymnasium


def test_gymnasium_cartpole_is_ours():
    world, ours = GymnasiumWorld("CartPole-v1"), CartPole()
    assert (world.observation_size, world.actions, world.time_limit) == (4, ours.actions, 500)
    rng = np.random.default_rng(0)
    state = world.reset({"seed": rng.uniform(size=(5, 2))})
    mine = CartPoleState(*state.observation.T.copy())
    ended = 0
    for _ in range(60):
        action = rng.integers(0, 2, 5)
        moved, want = world.step(state, action, {"seed": rng.uniform(size=(5, 2))}), ours.step(mine, action, {})
        np.testing.assert_allclose(moved.state.observation, ours.observe(want.state), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(moved.terminated, want.terminated)
        np.testing.assert_array_equal(moved.reward, want.reward)
        state, ended = moved.onward, ended + moved.terminated.sum()
        # From the true state, as what is seen is rounded.
        mine = CartPoleState(*np.array([env.unwrapped.state for env in world.copies().vector.envs]).T)
    assert ended > 3


@pytest.mark.parametrize("action", [0, 1])
def test_last_observations_and_truncation_are_true(action):
    world = GymnasiumWorld(factory=Counting)
    first = numpy_draws(world.reset_draws(3), 0, 7)
    draws = draws_for(world, 6, 3)
    playing, happened = play(world, always(action), begin(world, first), draws)
    length = 1 if action else 4
    clock = np.arange(6) % length + 1
    np.testing.assert_array_equal(happened.length, np.repeat(clock[:, None], 3, 1))
    np.testing.assert_array_equal(happened.next_observation[..., 1], happened.length)
    np.testing.assert_array_equal(happened.observation[..., 1], happened.length - 1)
    np.testing.assert_array_equal(happened.truncated, (happened.length == 4))
    np.testing.assert_array_equal(happened.terminated, np.full((6, 3), bool(action)))
    # A new episode has the seed that was drawn at the step that ended the last one.
    tags = seeds(draws["step/seed"][length - 1]) % 1000
    np.testing.assert_array_equal(happened.observation[length, :, 0], tags)
    np.testing.assert_array_equal(happened.observation[0, :, 0], seeds(first["seed"]) % 1000)
    np.testing.assert_array_equal(
        happened.total[-1], np.cumsum(np.arange(1, 5))[playing.clock - 1] if not action else 1
    )


def test_an_evaluated_episode_ends_once():
    world = GymnasiumWorld(factory=Counting)
    draws = numpy_draws(episode_draws(world, 3, 20), 0, 0)
    found = play_episodes(world, lambda seen: (seen[:, 0] > 500).astype(int), draws, 20)
    want = np.where(seeds(draws["reset/seed"]) % 1000 > 500, 1, 4)
    np.testing.assert_array_equal(found["lengths"], want)
    np.testing.assert_array_equal(found["returns"], want * (want + 1) / 2)
    np.testing.assert_array_equal(found["survived"], want == 4)  # cut off by its own limit, before ours


def test_worlds_that_are_elsewhere_begin_anew():
    world = GymnasiumWorld(factory=Counting)
    playing = begin(world, numpy_draws(world.reset_draws(3), 0, 7))
    start = numpy_draws(world.reset_draws(3), 0, 8)
    later, _ = play(world, always(0), playing, draws_for(world, 2, 3))
    again, lost = entered(world, later, start)
    assert not lost.any()
    np.testing.assert_array_equal(again.now.observation, later.now.observation)
    again, lost = entered(world, playing, start)  # a beginning can be had again
    assert not lost.any()
    np.testing.assert_array_equal(again.now.observation, playing.now.observation)
    again, lost = entered(world, later, start)
    assert lost.all() and not again.clock.any() and not again.total.any()
    np.testing.assert_array_equal(again.now.observation, np.stack([seeds(start["seed"]) % 1000, [0, 0, 0]], -1))
    elsewhere = GymnasiumWorld(factory=Counting)  # as in the process that resumes a run
    again, lost = entered(elsewhere, later, start)
    assert lost.all()
    np.testing.assert_array_equal(again.now.observation[:, 1], 0)


def test_modes_agree_on_gymnasium():
    found = {}
    for mode in ("torch", "jax"):
        world = GymnasiumWorld("CartPole-v1", time_limit=6)
        engine = make_engine(problem(world, normalise_rewards=True, **SMALL), mode=mode, dtype="float64", chunk=3)
        engine.start(0)
        logs = engine.run(3)
        found[mode] = {**logs, **tree.named_leaves(engine.state()), **engine.evaluate()}
        assert logs["truncated"].max() > 0
    assert found["torch"].keys() == found["jax"].keys()
    for label, want in found["torch"].items():
        np.testing.assert_allclose(found["jax"][label], want, rtol=1e-9, atol=1e-10, err_msg=label)


@pytest.mark.slow
def test_the_parity_of_all_modes_can_be_proven():
    world = GymnasiumWorld("Pendulum-v1", time_limit=5)
    parity.check(problem(world, policy="tanh", **SMALL), steps=3).raise_if_different()


def test_evaluation_leaves_training_alone():
    def logs(evaluate):
        engine = make_engine(problem(GymnasiumWorld(factory=Counting), **SMALL), mode="torch", chunk=1)
        engine.start(0)
        engine.run(2)
        assert engine.state().carry.playing.clock.any()  # in the middle of some episodes
        if evaluate:
            engine.evaluate()
        return engine.run(1)

    want, got = logs(False), logs(True)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def test_resuming_says_that_episodes_start_anew(tmp_path):
    def fresh():
        return problem(GymnasiumWorld(factory=Counting), **SMALL)

    runs.train(fresh(), mode="torch", steps=2, run_dir=tmp_path / "run", progress=False)
    said: list[str] = []
    run = runs.resume(tmp_path / "run", fresh(), steps=3, progress=False, warn=said.append)
    assert run.summary["steps"] == 3
    assert said == ["the state of Counting is hidden and was not saved: its 4 episodes start anew"]


def test_brax_cannot_train_what_is_hidden(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(TwinaxError, match="Brax maps and restarts worlds itself, and Pendulum-v1 keeps its state"):
        brax_env(GymnasiumWorld("Pendulum-v1"))


@pytest.mark.slow
def test_copies_in_processes_are_the_same():
    rows = []
    for processes in (False, True):
        world = GymnasiumWorld("CartPole-v1", time_limit=3, processes=processes)
        playing = begin(world, numpy_draws(world.reset_draws(2), 0, 7))
        _, happened = play(world, always(1), playing, draws_for(world, 5, 2))
        rows.append(happened)
        world.copies().vector.close()
    np.testing.assert_array_equal(rows[0].next_observation, rows[1].next_observation)
    np.testing.assert_array_equal(rows[0].truncated, rows[1].truncated)


class Spaces(gymnasium.Env):
    """Any spaces; tells what action it was given."""

    def __init__(self, seen=None, actions=None):
        self.observation_space = seen or gymnasium.spaces.Box(-1, 1, (3,))
        self.action_space = actions or gymnasium.spaces.Discrete(2)
        self.given: list[Any] = []

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.given.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


def test_boxes_of_any_bounds_and_shape():
    low, high = np.array([[0.0, -np.inf], [1.0, -3.0]], np.float32), np.array([[1.0, 2.0], [np.inf, -2.0]], np.float32)
    world = GymnasiumWorld(factory=lambda: Spaces(actions=gymnasium.spaces.Box(low, high)))
    assert world.actions.low == (0.0, -np.inf, 1.0, -3.0) and world.actions.high == (1.0, 2.0, np.inf, -2.0)
    state = world.reset({"seed": np.full((1, 2), 0.5)})
    world.step(state, np.array([[9.0, -9.0, 0.0, -2.5]]), {"seed": np.full((1, 2), 0.5)})
    np.testing.assert_array_equal(world.copies().vector.envs[0].unwrapped.given[0], [[1.0, -9.0], [1.0, -2.5]])
    with pytest.raises(TwinaxError, match="takes actions of 4 numbers, but was given"):
        world.step(state, np.zeros((1, 3)), {"seed": np.full((1, 2), 0.5)})
    with pytest.raises(TwinaxError, match="policy=tanh stretches to bounds.*infinite; use policy=gaussian"):
        problem(world, policy="tanh")


def test_flattened_observations():
    both = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(3), "b": gymnasium.spaces.Box(0, 1, (2, 2))})
    world = GymnasiumWorld(factory=lambda: Spaces(both), flatten=True)
    assert world.observation_size == 7
    assert world.reset({"seed": np.full((2, 2), 0.5)}).observation.shape == (2, 7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"id": "CartPol-v1"}, "gymnasium cannot make env.id=CartPol-v1 .*CartPol.*pprint_registry"),
        ({"id": "no_such_module:Mine-v0"}, "No module named 'no_such_module'"),
        ({"options": {"wrong": 1}}, "unexpected keyword argument 'wrong'"),
        ({"time_limit": -1}, "time limit of CartPole-v1 is -1"),
        ({"factory": dict}, "the factory dict gives a builtins.dict, which is no gymnasium.Env"),
        (
            {"factory": lambda: Spaces(gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(3)}))},
            r"observes Dict\('a': Discrete\(3\)\), and a policy here sees a row of numbers: set env.flatten=true",
        ),
        ({"factory": lambda: Spaces(gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8))}, "FlattenObservation"),
        (
            {"factory": lambda: Spaces(actions=gymnasium.spaces.MultiDiscrete([2, 3]))},
            r"takes actions from MultiDiscrete\(\[2 3\]\).*TransformAction",
        ),
    ],
)
def test_bad_gymnasium_environments_are_refused(given, words):
    with pytest.raises(TwinaxError, match=words):
        GymnasiumWorld(**given)


def test_what_hidden_state_cannot_do_is_refused():
    subject = problem(GymnasiumWorld(factory=Counting), **SMALL)
    with pytest.raises(TwinaxError, match="Counting keeps its state hidden on the host, once, so 2 seeds cannot share"):
        make_engine(subject, mode="jax", seeds=2)
    with pytest.raises(TwinaxError, match="Counting restarts itself and has no use for a pool of 8"):
        problem(subject.world, pool=8)
    with pytest.raises(TwinaxError, match="4 actions for 0 copies; call reset or enter first"):
        GymnasiumWorld(factory=Counting).copies().step(np.zeros(4, int), np.zeros(4, int))


@pytest.mark.parametrize(
    ("package", "kind"), [("gymnasium", GymnasiumWorld), ("gymnax", GymnaxWorld), ("brax", BraxWorld)]
)
def test_missing_packages_name_their_extra(package, kind, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    with pytest.raises(MissingExtra, match=rf"env={package}.*pip install 'twinax\[{package}\]'"):
        kind()


# Configuration


@pytest.mark.parametrize("name", ["gymnasium", "gymnax", "brax"])
def test_choices_by_name(name):
    from twinax import conf

    config = conf.compose(["experiment=ppo", f"env={name}", "env.id=Mine-v0", "env.time_limit=7"])
    assert (config.env.name, config.env.id, config.env.time_limit) == (name, "Mine-v0", 7)


def test_arguments_of_an_environment_are_a_dictionary():
    from twinax import conf

    config = conf.compose(["experiment=ppo", "env=gymnasium", "env.id=Pendulum-v1", "env.options={g: 9.0}"])
    built = conf.build_problem(conf.restore(conf.as_dict(config), ["env.options={g: 8.0}"]))
    assert built.world.options == {"g": 8.0}
    for wrong, words in (
        (["env=gymnasium", "env.options=3"], "it must be a dictionary"),
        (["env=cartpole", "env.options={g: 9.0}"], "'env.options' belongs to env=gymnasium"),
    ):
        with pytest.raises(TwinaxError, match=words):
            conf.compose(["experiment=ppo", *wrong])
