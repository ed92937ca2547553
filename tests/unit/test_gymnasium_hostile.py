"""Environments of strangers that are wrong: one sentence each, in every mode, and none trains to nonsense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twinax.engines import make_engine
from twinax.envs import GymnasiumWorld
from twinax.errors import TwinaxError
from twinax.ppo import problem

gymnasium = pytest.importorskip("gymnasium")
pytestmark = pytest.mark.usefixtures("quick_compilation")
spaces = gymnasium.spaces

SMALL: dict = {"hidden": (4,), "num_envs": 2, "num_steps": 4, "num_epochs": 1, "num_minibatches": 1, "episodes": 2}


class Good(gymnasium.Env):
    """Nothing is wrong with it."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(2, np.float32), {}

    def step(self, action) -> Any:
        self.age += 1
        return np.zeros(2, np.float32), 1.0, self.age > 2, False, {}


class Burning(Good):
    """Fails in its second step."""

    def step(self, action):
        if self.age:
            raise ValueError("the motor is on fire\nand the fan as well")
        return super().step(action)


class Stuck(Good):
    """Cannot begin."""

    def reset(self, *, seed=None, options=None):
        raise RuntimeError


class Blind(Good):
    """Sees no number."""

    def step(self, action):
        return np.array([0.0, np.nan], np.float32), *super().step(action)[1:]


class Priceless(Good):
    """Rewards without end."""

    def step(self, action):
        return np.zeros(2, np.float32), np.inf, False, False, {}


class Old(Good):
    """Gives four things, as environments once did."""

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, {}


SENTENCES = {
    Burning: r"^Burning failed in step \(ValueError: the motor is on fire\)$",
    Stuck: r"^Stuck failed in reset \(RuntimeError: RuntimeError\)$",
    Blind: r"^Blind gave nan as entry 1 of an observation, after step 1 of an episode; networks learn from finite",
    Priceless: r"^Priceless gave inf as entry 0 of a reward, after step 1 of an episode",
    Old: r"^Old failed in step \(ValueError: not enough values to unpack \(expected 5, got 4\)\)$",
}


def engine_for(kind: type, mode: str):
    engine = make_engine(problem(GymnasiumWorld(factory=kind), **SMALL), mode=mode, chunk=1)
    engine.start(0)
    return engine


@pytest.mark.parametrize("kind", SENTENCES)
def test_what_fails_says_where(kind):
    with pytest.raises(TwinaxError, match=SENTENCES[kind]):
        engine_for(kind, "torch").run(1)


@pytest.mark.parametrize("kind", [Burning, Blind])
def test_a_compiled_program_says_the_same(kind):
    engine = engine_for(kind, "jax")
    with pytest.raises(TwinaxError, match=SENTENCES[kind]):
        engine.run(1)
    with pytest.raises(TwinaxError, match=SENTENCES[kind]):  # an evaluation has copies of its own
        engine.evaluate()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.MultiDiscrete([2, 3]), "takes actions from MultiDiscrete"),
        (spaces.MultiBinary(3), "takes actions from MultiBinary"),
        (spaces.Dict(a=spaces.Discrete(2)), "takes actions from Dict"),
        (spaces.Tuple([spaces.Discrete(2)]), "takes actions from Tuple"),
        (spaces.Box(0, 0, (2,)), "is bounded by 0.0 and 0.0; the first must be smaller"),
    ],
)
def test_actions_that_no_policy_gives(space, words):
    with pytest.raises(TwinaxError, match=words):
        GymnasiumWorld(factory=type("Odd", (Good,), {"action_space": space}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"factory": lambda: 1 / 0}, r"cannot make an environment \(ZeroDivisionError: division by zero\)"),
        ({"factory": lambda size: Good()}, r"cannot make an environment \(TypeError: .*missing 1 required"),
        ({"factory": Good()}, "factory is a Good .*; it must be a function"),
        ({"factory": type("Bare", (gymnasium.Env,), {})}, "Bare has no observation_space"),
        ({"id": "a:b:c"}, "gymnasium cannot make env.id=a:b:c"),
        ({"id": "CartPol"}, "Did you mean: `CartPole`?"),
        ({"options": [1]}, r"options is \[1\]; it must be a dictionary"),
        ({"time_limit": 2.5}, "time_limit is 2.5; it must be a whole number"),
        ({"time_limit": "5"}, "is '5'; it must be a whole number"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(TwinaxError, match=words) as found:
        GymnasiumWorld(**settings)
    assert "\n" not in str(found.value)


def test_a_good_one_trains():
    logs = engine_for(Good, "torch").run(1)
    assert np.isfinite(logs["loss"]).all()
