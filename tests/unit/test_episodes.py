"""Filmed episodes: the same as evaluated ones, drawn where things are, and never in the way of a training."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import twinax as tx
from twinax.envs import CLASSIC, PROBES, Biped, CartPole, Pendulum, make_biped
from twinax.envs._canvas import Canvas
from twinax.envs.biped import _film, _stick
from twinax.episode import Episode, View, frame_places
from twinax.errors import TwinaxError
from twinax.noise import numpy_draws
from twinax.ppo import Policy, problem
from twinax.ppo._episodes import episode_draws, play_episodes
from twinax.runs import RunDirectory, episode_plots, episodes

SMALL: dict = {"hidden": (8,), "num_envs": 4, "num_steps": 4, "num_minibatches": 2, "episodes": 2}
ORANGE, BLUE, RED = (0xF9, 0x73, 0x16), (0x3B, 0x82, 0xF6), (0xEF, 0x44, 0x44)


@pytest.fixture
def drawn(monkeypatch):
    """No GL library."""
    monkeypatch.setenv("MUJOCO_GL", "off")


def where(frame: np.ndarray, colour) -> np.ndarray:
    """Rows and columns of a colour's pixels."""
    return np.argwhere((frame == np.array(colour, np.uint8)).all(-1))


@pytest.mark.parametrize(
    "world", [CartPole(), Pendulum(time_limit=30), make_biped("stand", robot="planar", time_limit=9)]
)
def test_an_episode_is_that_of_an_evaluation(world, drawn):
    subject = problem(world, normalise_observations=True, **SMALL)
    state = subject.init(3)
    shown = subject.present.show(state, 7)
    assert shown is not None
    steps = world.time_limit
    draws = numpy_draws(episode_draws(world, 1, steps), 7, 0)
    wanted = play_episodes(world, Policy.of(subject, state).act, draws, steps)
    assert len(shown.reward) == wanted["lengths"][0]
    np.testing.assert_allclose(shown.reward.sum(), wanted["returns"][0], rtol=1e-5)
    for name, values in shown.terms.items():
        term = wanted["terms"].get(f"reward_{name}", wanted["terms"].get(name))
        np.testing.assert_allclose(values.mean(), term[0], rtol=1e-4, atol=1e-7)
    if shown.terms:
        np.testing.assert_allclose(sum(shown.terms.values()), shown.reward, rtol=1e-4, atol=1e-6)


def test_a_world_of_one_framework_is_shown_as_well():
    @dataclasses.dataclass(frozen=True)
    class OnlyJax(Pendulum):
        frameworks = ("jax",)

    found = [problem(kind(time_limit=12), **SMALL) for kind in (Pendulum, OnlyJax)]
    one, other = (subject.present.show(subject.init(0), 1) for subject in found)
    assert one is not None and other is not None
    np.testing.assert_allclose(one.reward, other.reward, rtol=1e-4)


@pytest.mark.parametrize("name", CLASSIC)
def test_every_classic_world_is_drawn(name):
    subject = problem(CLASSIC[name](time_limit=20), **SMALL)
    shown = subject.present.show(subject.init(0), 0)
    assert shown is not None and shown.view.frames is not None
    frames = shown.view.frames
    assert frames.dtype == np.uint8 and frames.shape[-1] == 3
    assert (frames[0] != frames[-1]).any() and (frames[0] != 255).any()


def test_the_pole_leans_where_the_angle_says():
    from twinax.envs._classic_film import _cartpole

    middles = []
    for angle in (-0.2, 0.2):
        frame = _cartpole({"position": 0.0, "velocity": 0.0, "angle": angle, "spin": 0.0})
        middles.append(where(frame, ORANGE)[:, 1].mean())
    assert middles[0] < 198 and middles[1] > 202


def test_frames_are_in_real_time_and_not_too_many():
    places, seconds = frame_places(500, 0.02)
    assert len(places) == 250 and seconds == pytest.approx(0.04)
    places, seconds = frame_places(80, 0.2)
    assert len(places) == 80 and seconds == pytest.approx(0.1)
    assert len(frame_places(10_000, 0.0)[0]) <= 250


def test_a_canvas_has_its_middle_and_up_where_they_belong():
    canvas = Canvas(60, 40, 10, (1.0, 2.0))
    canvas.circle((1.0, 3.0), 0.3, "#ff0000")
    rows, columns = where(canvas.array(), (255, 0, 0)).T
    assert abs(rows.mean() - 9.5) < 1 and abs(columns.mean() - 29.5) < 1


def standing(world: Biped) -> np.ndarray:
    return world.body.home_qpos[None]


def test_the_drawn_robot_stands_on_the_floor_with_its_left_on_the_left():
    world = Biped()
    frame = _stick.draw(world.body, standing(world), np.zeros((1, 2)))[0]
    front, floor = frame[:, _stick.SIDE :], where(frame, (0xE8, 0xEC, 0xF1))[:, 0].min()
    # Seen from ahead, its left is on our right.
    assert where(front, ORANGE)[:, 1].min() > where(front, BLUE)[:, 1].max()
    for colour in (ORANGE, BLUE):
        assert abs(where(front, colour)[:, 0].max() - floor) <= 4
    # From the side, bent knees point to the right, where x does, and the right leg hides the left one.
    side = where(frame[:, : _stick.SIDE], BLUE)
    knees = side[(side[:, 0] > floor - 100) & (side[:, 0] < floor - 60), 1]
    assert knees.mean() > _stick.SIDE / 2 + 5
    assert len(where(frame[:, : _stick.SIDE], ORANGE)) < 0.2 * len(side)


def test_a_push_is_an_arrow():
    world = Biped()
    ahead = _stick.draw(world.body, standing(world), np.array([[4.0, 0.0]]))[0]
    assert len(where(ahead[:, : _stick.SIDE], RED)) > 50 and not len(where(ahead[:, _stick.SIDE :], RED))
    assert not len(where(_stick.draw(world.body, standing(world), np.zeros((1, 2)))[0], RED))


def test_a_hull_goes_round():
    points = np.array([[0, 0], [2, 0], [1, 0.5], [2, 2], [0, 2], [1, 1]], float)
    hull = _stick._hull(points)
    assert {tuple(p) for p in hull} == {(0, 0), (2, 0), (2, 2), (0, 2)}


def test_a_robot_is_rendered_where_a_library_works():
    world = Biped()
    frames = _film.rendered(world.body, np.repeat(standing(world), 2, 0), np.array([[0.0, 0.0], [0.0, 5.0]]))
    if frames is None:
        pytest.skip("no GL library works here")
    assert frames.shape == (2, 320, 400, 3) and frames.std() > 10
    red, green, blue = (frames[0, ..., k].astype(int) for k in range(3))
    assert (red > blue + 60).sum() > 200 and (blue > red + 60).sum() > 200
    assert (frames[0] != frames[1]).any()


@pytest.mark.parametrize("library", ["off", "nonsense"])
def test_without_a_gl_library_the_robot_is_drawn(monkeypatch, library):
    monkeypatch.setenv("MUJOCO_GL", library)
    subject = problem(make_biped("walk", time_limit=4), **SMALL)
    shown = subject.present.show(subject.init(0), 0)
    assert shown is not None and shown.view.drawn == "drawn from the robot's geoms, because no GL library works"
    assert shown.view.frames is not None and shown.view.frames.shape[2] == _stick.SIDE + _stick.FRONT


def test_feet_on_the_floor_are_told_by_name(drawn):
    world = Biped()
    qpos = np.repeat(standing(world), 3, 0)
    qpos[1, 2] += 0.1
    draws = {name: np.full(draw.shape, 0.5, np.float32) for name, draw in world.reset_draws(3).items()}
    view = world.view(dataclasses.replace(world.reset(draws), qpos=qpos))
    assert list(view.bars["feet on the floor"]) == ["left foot", "right foot"]
    assert view.bars["feet on the floor"]["left foot"].tolist() == [True, False, True]
    assert view.tracks["height of the base, m"]["robot"][1] == pytest.approx(0.556, abs=1e-3)


def test_mjx_robots_are_shown_by_mujoco_in_c():
    pytest.importorskip("mujoco.mjx")
    assert Biped(runner="mjx").on_host().runner == "c"


def an_episode(steps=12, frames=True, **view) -> Episode:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (steps, 20, 30, 3)).astype(np.uint8) if frames else None
    terms = {"good": np.ones(steps), "bad": -rng.random(steps)}
    return Episode(0.02, terms["good"] + terms["bad"], terms, "ended", View(pixels, **view))


def test_a_strip_has_frames_from_where_the_world_says():
    long = an_episode(100, frame_seconds=0.1, strip=(2.0, 5.5))
    frames = long.view.frames
    assert frames is not None
    found = episodes.strip(long)
    assert found.shape == (40, 120, 3)
    np.testing.assert_array_equal(found[:20, :30], frames[20])
    np.testing.assert_array_equal(found[20:, 90:], frames[55])
    # A film that ends earlier is shown whole, and a short one does not fill its last row.
    short = episodes.strip(an_episode(6, frame_seconds=0.1, strip=(2.0, 5.5)))
    assert short.shape == (40, 120, 3) and (short[20:, 60:] == 255).all()


def test_an_episode_leaves_a_film_and_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(episodes.shutil, "which", lambda _: None)
    shown = an_episode(
        bars={"feet": {"left foot": np.arange(12) % 4 < 2}}, tracks={"height, m": {"robot": np.ones(12)}}
    )
    written = episodes.save(RunDirectory(tmp_path), shown, 5)
    names = ["episode-0000000005.gif", "episode-frames.png", "episode-reward.png", "episode-tracks.png"]
    assert [file.name for file in written] == names and all(file.stat().st_size for file in written)
    assert list(episodes.figures(tmp_path / "plots")) == [f"{kind} of an episode" for kind in episodes.FIGURES]
    episodes.save(RunDirectory(tmp_path), an_episode(frames=False), 6, "eval-episode")
    assert list(episodes.figures(tmp_path / "plots").values()) == [tmp_path / "plots" / "eval-episode-reward.png"]


def test_mp4_is_written_where_ffmpeg_is(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(episodes.shutil, "which", lambda _: "ffmpeg")
    monkeypatch.setattr(episodes.films, "write_mp4", lambda path, frames, time: asked.append((path, time)) or path)
    episodes.save(RunDirectory(tmp_path), an_episode(), 5)
    assert asked == [(tmp_path / "films" / "episode-0000000005.mp4", 40)]


def test_bars_of_contacts_begin_and_end_where_feet_do():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    touches = np.array([1, 1, 0, 0, 1, 0, 1, 1, 1, 0], bool)
    episode_plots._paint_bars(axes, {"left foot": touches}, np.arange(1, 11) * 0.5)
    bars = [path.get_extents() for path in axes.collections[0].get_paths()]
    assert [(bar.x0, bar.x1) for bar in bars] == [(0.0, 1.0), (2.0, 2.5), (3.0, 4.5)]


def test_worlds_that_nobody_drew_have_figures_only():
    subject = problem(next(iter(PROBES.values()))(), **SMALL)
    shown = subject.present.show(subject.init(0), 0)
    assert shown is not None and shown.view.frames is None and list(episode_plots.paintings(shown)) == ["reward"]


def trained(tmp_path, **settings):
    subject = problem(Pendulum(time_limit=5), **SMALL, **settings)
    return tx.train(subject, mode="torch", steps=1, run_dir=tmp_path / "run", progress=False)


def test_a_run_ends_with_a_film(tmp_path):
    assert trained(tmp_path).dir is not None
    assert [file.name for file in (tmp_path / "run" / "films").iterdir()] == ["episode-0000000001.gif"]
    page = tx.runs.write_report([tmp_path / "run"]).read_text()
    assert "reward of an episode" in page


def test_a_run_can_do_without(tmp_path):
    trained(tmp_path, film=False)
    assert not (tmp_path / "run" / "films").exists()


def test_what_is_in_the_way_of_a_film_is_not_in_the_way_of_a_run(tmp_path, monkeypatch):
    def broken(*_):
        raise TwinaxError("the camera is broken")

    monkeypatch.setattr(episodes, "save", broken)
    assert trained(tmp_path).summary["status"] == "finished"
