"""Real environments: data of MuJoCo, an agent judged in it, and sentences about what is missing or does not fit."""

from __future__ import annotations

import importlib.util
import sys
import types

import numpy as np
import offline_small as few
import pytest

import twinax as tx
from twinax.errors import TwinaxError
from twinax.offline import (
    GymnasiumTask,
    MazeTask,
    collect_gymnasium,
    collect_maze,
    from_arrays,
    problem,
    read_ogbench,
    save_ogbench,
)

pytest.importorskip("gymnasium")


@pytest.fixture
def mujoco(monkeypatch):
    """MuJoCo, and what Gymnasium imports beside it only to write films."""
    pytest.importorskip("mujoco")
    if importlib.util.find_spec("imageio") is None:
        monkeypatch.setitem(sys.modules, "imageio", types.ModuleType("imageio"))


def balance(observation, rng):
    """A hand that holds the pendulum upright; its force is in [-3, 3]."""
    place, angle, speed, turn = observation
    return np.clip([0.3 * place + 10 * angle + 0.5 * speed + turn + 0.3 * rng.standard_normal()], -3, 3)


def test_an_agent_learns_to_balance_from_a_hand_in_mujoco(mujoco, tmp_path):
    fallen = collect_gymnasium("InvertedPendulum-v5", steps=100)
    assert fallen.lengths.mean() < 30 and (fallen.masks == 0).sum() >= 3
    path = save_ogbench(collect_gymnasium("InvertedPendulum-v5", steps=1100, policy=balance), tmp_path / "hand.npz")
    data = read_ogbench(path)
    assert data.lengths.tolist() == [1000, 100] and data.truncations.sum() == 1 and (data.masks == 1).all()
    assert 0.05 < np.abs(data.actions).max() <= 1
    task = GymnasiumTask("InvertedPendulum-v5", episodes=2, num_envs=2)
    agent, fast = few.small("bc", hidden=(32,)), tx.Optimizer(learning_rate=3e-3)
    subject = problem(agent, None, data.normalised("normal"), batch_size=64, task=task, optimizer=fast)
    engine = tx.engines.make_engine(subject, mode="torch", chunk=100)
    engine.start(seed=0)
    before = engine.evaluate()["length"]
    engine.run(300)
    assert before < 100 and engine.evaluate()["length"] > 500


def test_a_task_that_is_not_of_the_data_is_refused():
    data = collect_gymnasium("Pendulum-v1", steps=20)
    for task, sentence in (
        (GymnasiumTask("MountainCarContinuous-v0"), "'MountainCarContinuous-v0' has observations of shape (2,)"),
        (GymnasiumTask("CartPole-v1"), "'CartPole-v1' has actions of Discrete(2)"),
        (GymnasiumTask("Pendulum-v1", frame_stack=2), "'Pendulum-v1' has observations of shape (6,), but those of"),
        (MazeTask(tx.envs.PointMaze("u"), (1.5, 1.5)), "the maze has observations of shape (2,), but those of"),
    ):
        with pytest.raises(TwinaxError) as caught:
            problem(few.small("bc"), None, data, batch_size=4, task=task)
        assert sentence in str(caught.value)
    walks = collect_maze(tx.envs.PointMaze("u", inertia=True), 2, 5)
    with pytest.raises(TwinaxError, match="the maze has observations of shape"):
        problem(
            few.small("bc"), walks, pretrain_steps=1, batch_size=4, task=MazeTask(tx.envs.PointMaze("u"), (1.5, 1.5))
        )


@pytest.mark.parametrize(
    ("name", "hidden", "sentence"),
    [
        ("cube-single-v0", "ogbench", "it needs ogbench, which is not installed: pip install 'ogbench'"),
        ("ogbench:cube-single-v0", "ogbench", "it needs ogbench, which is not installed: pip install 'ogbench'"),
        ("Hopper-v5", "mujoco", "it needs mujoco, which is not installed: pip install 'gymnasium[mujoco]'"),
        ("Hopper-v5", "imageio", "it needs imageio, which is not installed: pip install 'gymnasium[mujoco]'"),
        ("Hoper-v5", None, "Environment `Hoper` doesn't exist"),
    ],
)
def test_what_is_missing_is_one_sentence(name, hidden, sentence, monkeypatch):
    if hidden:
        for loaded in [one for one in sys.modules if one.startswith("gymnasium.envs.mujoco")]:
            monkeypatch.delitem(sys.modules, loaded)
        if hidden == "mujoco":
            monkeypatch.setitem(sys.modules, "imageio", types.ModuleType("imageio"))
        elif hidden == "imageio":
            pytest.importorskip("mujoco")
        monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(TwinaxError) as caught:
        collect_gymnasium(name, steps=1)
    text = str(caught.value)
    assert text.startswith(f"Gymnasium cannot make '{name}': ") and sentence in text and "\n" not in text


def test_actions_of_the_datas_box_reach_the_world_as_they_are():
    fields = {name: np.zeros((8, 3), np.float32) for name in ("observations", "next_observations")}
    fields |= {"actions": np.full((8, 1), 0.75), "rewards": np.zeros(8), "terminals": np.arange(8) == 7}
    seen = []

    class Watched(GymnasiumTask):
        def play(self, act, box=None):
            seen.append((np.asarray(act(np.zeros((2, 3), np.float32))), box))
            return super().play(act, box)

    for low, high in ((0.5, 1.0), (-2.0, 2.0)):
        data = from_arrays(fields, low, high)
        task = Watched("Pendulum-v1", episodes=1, num_envs=1, settings={"max_episode_steps": 3})
        subject = problem(few.small("bc"), data, pretrain_steps=1, batch_size=4, task=task)
        engine = tx.engines.make_engine(subject, mode="torch", chunk=1)
        engine.start(0)
        engine.evaluate()
        middle = (low + high) / 2  # where an actor of small first weights acts
        acted, box = seen[-1]
        assert np.abs(acted - middle).max() < 0.1 * (high - low) and (box[0], box[1]) == (low, high)


def test_data_that_look_as_if_in_the_worlds_units_are_said(capsys):
    fields = {name: np.zeros((8, 4), np.float32) for name in ("observations", "next_observations")}
    fields |= {"actions": np.full((8, 1), 0.3), "rewards": np.zeros(8), "terminals": np.arange(8) == 7}

    class Narrow:
        action_space = type("Box", (), {"low": np.array([-0.4]), "high": np.array([0.4])})()

        def close(self):
            pass

    task = GymnasiumTask("Narrow-v0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twinax.offline._gymnasium.make", lambda *_: Narrow())
        task.say_range(from_arrays(fields, source="narrow.npz"))
    assert "narrow.npz: actions are from 0.3 to 0.3, and 'Narrow-v0' takes -0.4 to 0.4;" in capsys.readouterr().err
