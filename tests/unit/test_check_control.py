"""Worlds of one's own that PPO refuses before it trains: shapes, dtypes and numbers that would go wrong later."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import numpy as np
import pytest

from twinax import ops, ppo, runs, tree
from twinax.envs import CLASSIC, PROBES, Box, Control, Moved
from twinax.envs.checking_control import check_world
from twinax.errors import TwinaxError
from twinax.noise import Draw

SMALL = {
    "num_envs": 4,
    "num_steps": 4,
    "num_minibatches": 1,
    "num_epochs": 1,
    "hidden": (4,),
    "episodes": 2,
    "film": False,
}


@tree.record
class Ball:
    place: object


@dataclass(frozen=True)
class Valley(Control):
    """A sound world."""

    time_limit: int = 5
    name = "valley"
    observation_size = 1
    actions = Box((-1.0,), (1.0,))

    def reset_draws(self, worlds):
        return {"start": Draw((worlds, 1)), "kind": Draw((worlds,), "integers", high=3)}

    def reset(self, draws):
        return Ball(2 * draws["start"][:, 0] - 1)

    def step(self, ball, action, draws):
        place = ball.place + 0.1 * action[:, 0]
        return Moved(Ball(place), 1 - place * place, ops.abs(place) > 2.0, {"place": place})

    def observe(self, ball):
        return ball.place[:, None]


class Changed(Valley):
    """A sound step, of which one part is changed."""

    def step(self, ball, action, draws):
        return dataclasses.replace(super().step(ball, action, draws), **self.change(ball))


class NanReward(Changed):
    def change(self, ball):
        return {"reward": ops.log(ball.place * 0 - 1 + 1)}


class ColumnReward(Changed):
    def change(self, ball):
        return {"reward": ball.place[:, None]}


class FloatEnd(Changed):
    def change(self, ball):
        return {"terminated": ball.place * 0}


class OneTerm(Changed):
    def change(self, ball):
        return {"terms": {"speed": ops.mean(ball.place)}}


class WideState(Changed):
    def change(self, ball):
        return {"state": Ball(ball.place.astype(np.float64) if isinstance(ball.place, np.ndarray) else ball.place)}


class FlatSight(Valley):
    def observe(self, ball):
        return ball.place


class WideSight(Valley):
    observation_size = 2


class BlindSight(Valley):
    def observe(self, ball):
        return ball.place[:, None] * float("nan")


class OneWorld(Valley):
    def reset(self, draws):
        return Ball(draws["start"][:1, 0])


class OldSight(Changed):
    """Says that it sees where the ball was."""

    def change(self, ball):
        return {"seen": (ball.place[:, None], ball.place[:, None])}


class NotMoved(Valley):
    def step(self, ball, action, draws):
        return ball, 0.0, False, False, {}


BROKEN = {
    NanReward: "the reward of valley is -inf for an action within its bounds; it must be finite",
    ColumnReward: r"the reward of valley is float32 of shape \(3, 1\) .* floats of shape \(3,\)",
    FloatEnd: r"`terminated` of valley is float32 .* it must be booleans of shape \(3,\)",
    OneTerm: r"the term speed of valley has the shape \(\), not \(3,\)",
    WideState: r"step of valley turns an array of the state from float32\(3,\) into float64\(3,\)",
    FlatSight: r"observe of valley after reset is float32 of shape \(3,\) .* floats of shape \(3, 1\)",
    WideSight: r"observe of valley after reset is float32 of shape \(3, 1\) .* floats of shape \(3, 2\)",
    BlindSight: "observe of valley after reset is nan",
    OneWorld: r"a state with an array of shape \(1,\) for 3 worlds; worlds come first",
    OldSight: "step of valley gives `seen` that is not what observe and observe_critic give of its state",
    NotMoved: "step of valley gives tuple; it must give a twinax.envs.Moved",
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_broken_worlds_are_refused_before_training(kind, tmp_path):
    with pytest.raises(TwinaxError, match=BROKEN[kind]):
        runs.train(ppo.problem(kind(), **SMALL), mode="jax", steps=1, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_time_limit_is_not_negative():
    with pytest.raises(TwinaxError, match="the time limit of valley is -1; it must be at least 0"):
        check_world(Valley(time_limit=-1))


def test_sound_worlds_pass_at_once():
    worlds = [Valley(), *(kind() for kind in (*CLASSIC.values(), *PROBES.values()))]
    before = time.process_time()
    for world in worlds:
        check_world(world)
    assert time.process_time() - before < 1.0
