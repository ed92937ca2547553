"""Gymnasium environments are drawn by Gymnasium; what cannot be drawn says so, and costs no run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twinax import runs
from twinax.envs import GymnasiumWorld
from twinax.envs._gymnasium_film import smaller
from twinax.ppo import problem

pytest.importorskip("PIL")
pytest.importorskip("matplotlib")
gymnasium = pytest.importorskip("gymnasium")
pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL: dict = {"hidden": (4,), "num_envs": 2, "num_steps": 4, "num_epochs": 1, "num_minibatches": 1, "episodes": 2}


class Lamp(gymnasium.Env):
    """Its picture is as bright as the episode is old."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 25}

    def __init__(self, render_mode: str | None = None, length: int = 6):
        self.render_mode, self.length = render_mode, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.age += 1
        return np.zeros(2, np.float32), 1.0, self.age >= self.length, False, {}

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((8, 12, 3), 10 * self.age % 256, np.uint8)


class Dark(Lamp):
    """Cannot be drawn."""

    metadata: dict[str, Any] = {"render_modes": ["human", "ansi"]}


class Broken(Lamp):
    """Fails when it is drawn the third time."""

    def render(self):
        if self.age == 2:
            raise RuntimeError("the lamp is broken\nand more")
        return super().render()


class Grey(Lamp):
    """Pictures of one colour."""

    def render(self):
        return np.zeros((8, 12), np.uint8)


def stubborn():
    """A factory that takes no render_mode."""
    return Lamp()


def ready():
    """A factory whose environment can be drawn already."""
    return Lamp("rgb_array")


def shown(factory, **options):
    subject = problem(GymnasiumWorld(factory=factory, options=options), **SMALL)
    return subject.present.show(subject.init(0), 3)


@pytest.mark.parametrize("factory", [Lamp, ready])
def test_the_environment_draws_itself_before_the_first_step_and_after_each(factory):
    episode = shown(factory)
    assert episode is not None and episode.ended == "ended after 6 steps" and episode.reward.sum() == 6
    frames = episode.view.frames
    assert frames is not None and frames.shape == (7, 8, 12, 3)
    np.testing.assert_array_equal(frames[:, 0, 0, 0], 10 * np.arange(7))  # the last one from before any restart
    assert episode.view.drawn == "by Gymnasium" and episode.view.frame_seconds == 0.04


def test_long_episodes_have_few_frames_and_large_pictures_become_small():
    episode = shown(Lamp, length=450)
    assert episode is not None and episode.view.frames is not None
    frames = episode.view.frames
    assert 100 < len(frames) <= 250 and len(episode.reward) == 450
    assert episode.view.frame_seconds == 0.08  # every second picture, in real time
    picture = np.random.default_rng(0).integers(0, 255, (900, 1001, 3), np.uint8)
    assert smaller(picture).shape == (300, 333, 3)
    np.testing.assert_allclose(smaller(picture)[0, 0], picture[:3, :3].mean((0, 1)), atol=1)


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (Dark, "Dark cannot be drawn: of the render modes it has only human, ansi, and a film needs rgb_array"),
        (Broken, "Broken cannot be drawn (the lamp is broken)"),
        (Grey, "the pictures of Grey are uint8 of shape (8, 12), and not uint8 of shape (height, width, 3)"),
        (stubborn, "stubborn cannot be made with render_mode=rgb_array: the factory stubborn cannot make an"),
    ],
)
def test_what_cannot_be_drawn_says_so_and_costs_no_run(tmp_path, capsys, factory, sentence):
    episode = shown(factory)
    assert episode is not None and episode.view.frames is None and len(episode.reward) == 6
    assert episode.view.drawn.startswith(sentence)
    subject = problem(GymnasiumWorld(factory=factory), **SMALL)
    run = runs.train(subject, mode="torch", steps=1, run_dir=tmp_path / "run", progress=True)
    assert run.summary["status"] == "finished"
    said = capsys.readouterr()
    assert sentence.replace("\n", " ")[:40] in " ".join((said.err + said.out).split())
    assert (tmp_path / "run" / "plots" / "episode-reward.png").is_file()


def test_a_run_ends_with_a_film(tmp_path):
    runs.train(problem(GymnasiumWorld(factory=Lamp), **SMALL), mode="torch", steps=1, run_dir=tmp_path, progress=False)
    assert (tmp_path / "films" / "episode-0000000001.gif").is_file()


def test_a_library_that_is_missing_is_named():
    """CartPole is drawn with pygame, which may not be there."""
    subject = problem(GymnasiumWorld("CartPole-v1", time_limit=5), **SMALL)
    episode = subject.present.show(subject.init(0), 0)
    assert episode is not None
    try:
        import pygame  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        assert episode.view.frames is None and 'pip install "gymnasium[classic-control]"' in episode.view.drawn
    else:
        assert episode.view.frames is not None and episode.view.frames.shape[1:] == (200, 300, 3)
