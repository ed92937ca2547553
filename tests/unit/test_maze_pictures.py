"""Pictures of offline runs in a maze: what an evaluation hands out, and how a report paints it."""

from __future__ import annotations

import numpy as np
import offline_small as few
import pytest

import twinax as tx
from twinax.offline import AGENTS, MazeTask, collect_maze, label_maze, problem
from twinax.offline._tasks import SHOWN, SQUARES
from twinax.runs import paths, pictures, plots

MAZE = tx.envs.PointMaze("u", max_steps=30)
GOAL = (1.5, 1.5)
WITHOUT_VALUES = {"bc", "gcbc", "crl_infonce", "td_infonce"}


def engine_of(name, mode="torch", pretrain=2, maze=MAZE, episodes=5):
    data = label_maze(collect_maze(maze, trajectories=4, steps=20), maze, GOAL).normalised("normal")
    task = MazeTask(maze, GOAL, episodes=episodes)
    subject = problem(few.small(name), data, data, pretrain_steps=pretrain, batch_size=6, task=task)
    engine = tx.engines.make_engine(subject, mode=mode, chunk=2)
    engine.start(seed=0)
    return engine


def shown(engine):
    return pictures.select(engine.evaluate())


@pytest.mark.parametrize("inertia", [False, True])
def test_paths_begin_at_the_start_and_end_with_the_episode(inertia):
    maze = tx.envs.PointMaze("u", max_steps=30, inertia=inertia)
    engine = engine_of("bc", maze=maze, episodes=SHOWN + 3)
    measured = engine._measure(engine.problem.judge.tables())
    found = {
        name.removeprefix("picture/"): x for name, x in engine.problem.judge.summarise(measured).items() if "/" in name
    }
    assert set(found) == {"maze/walls", "maze/goal", "maze/paths", "maze/successes"}
    assert ["".join("#" if x else "." for x in row) for row in found["maze/walls"]] == maze.rows
    assert found["maze/goal"].tolist() == [1.5, 1.5, 0.5]
    assert found["maze/paths"].shape == (SHOWN, 31, 2) and found["maze/paths"].dtype == np.float32
    assert 0 < found["maze/successes"].sum() < SHOWN
    for k, path in enumerate(found["maze/paths"]):
        length = int(measured["lengths"][k])
        assert np.isfinite(path[: length + 1]).all() and np.isnan(path[length + 1 :]).all()
        np.testing.assert_array_equal(path[0], measured["start"][k])
        np.testing.assert_array_equal(path[1 : length + 1], measured["path"][:length, k])
        assert maze.reached(path[length], np.array(GOAL)) == found["maze/successes"][k]


def test_values_lie_where_they_belong():
    task = MazeTask(MAZE, GOAL, episodes=2)
    places = task.places()
    assert places.shape == (len(MAZE.free) * SQUARES**2, 2)
    empty = {"start": np.zeros((2, 2)), "path": np.zeros((30, 2, 2)), "lengths": np.ones(2), "successes": np.ones(2)}
    found = task.pictures({**empty, "values": places[:, 0] + 100 * places[:, 1]})["maze/values"]
    rows, columns = np.indices(found.shape)
    expected = (columns + 0.5) / SQUARES + 100 * (rows + 0.5) / SQUARES
    free = np.array([[cell != "#" for cell in row] for row in MAZE.rows])[rows // SQUARES, columns // SQUARES]
    np.testing.assert_allclose(found, np.where(free, expected, np.nan), rtol=1e-6)
    assert "maze/values" not in task.pictures({**empty, "values": np.full(len(places), np.nan)})


@pytest.mark.parametrize("name", AGENTS)
def test_values_of_every_agent_that_has_them(name):
    agent = few.small(name)
    assert bool(agent.valued_by) == (name not in WITHOUT_VALUES)
    if not agent.valued_by:
        return
    rng, rows = np.random.default_rng(0), 7
    networks = agent.build(rng, few.SIZES)
    states, noise = rng.normal(size=(rows, 3)), np.zeros((rows, 2))
    given = {"latent": rng.normal(size=(rows, 5)), "goal": rng.normal(size=(rows, 3))}.get(agent.actor_sees)
    found = agent.values(networks, states, given, noise)
    assert found.shape == (rows,) and np.isfinite(found).all() and np.std(found) > 0


@pytest.mark.parametrize(
    ("name", "before", "after"), [("iql", False, True), ("gcivl", True, True), ("bc", False, False)]
)
def test_values_are_shown_once_they_are_learned(name, before, after):
    engine = engine_of(name)
    assert ("maze/values" in shown(engine)) == before
    engine.run(4)
    found = shown(engine)
    assert ("maze/values" in found) == after
    if after:
        assert np.isfinite(found["maze/values"]).sum() == len(MAZE.free) * SQUARES**2


def test_values_are_those_of_the_networks():
    for name in ("iql", "rebrac"):
        engine = engine_of(name)
        engine.run(3)
        subject, networks = engine.problem, engine.state().networks
        free, places = subject.task._fine
        states = subject.normaliser(places.astype(np.float32))
        if name == "iql":
            expected = networks["value"](states)
        else:
            expected = networks["critic"](states, networks["actor"](states).mode).min(0)
        np.testing.assert_allclose(shown(engine)["maze/values"][free], expected, rtol=1e-4, atol=1e-5)


def test_modes_show_the_same(quick_compilation):
    torch, jax = (shown(engine_of("iql", mode, pretrain=0)) for mode in ("torch", "jax"))
    assert torch.keys() == jax.keys()
    for name in torch:
        np.testing.assert_allclose(torch[name], jax[name], atol=1e-4, err_msg=name)


@pytest.mark.parametrize("seeds", [0, 2])
@pytest.mark.parametrize("values", [False, True])
def test_a_maze_is_painted(tmp_path, seeds, values):
    engine = engine_of("iql", pretrain=0)
    engine.run(2)
    found = shown(engine)
    if not values:
        del found["maze/values"]
    if seeds:
        found = {name: np.stack([x] * seeds) for name, x in found.items()}
    pictures.save(tmp_path / "pictures.safetensors", found, 7, engine.problem.judge.pictures)
    arrays, told, step = pictures.load(tmp_path / "pictures.safetensors")
    ((name, picture, arrays),) = pictures.grouped(arrays, told)
    assert (name, picture.title, step) == ("maze", "Maze", 7) and told == engine.problem.judge.pictures
    reached = int(np.sum(arrays["successes"][0] if seeds else arrays["successes"]))
    drawing = paths.drawing(arrays, picture)
    svg = plots.draw("maze", drawing.paint, drawing.size, tmp_path)
    assert (tmp_path / "maze.png").stat().st_size > 5000
    assert f"reached the goal: {reached}<" in svg and f"did not: {5 - reached}<" in svg
    assert (">Value<" in svg) == values
    assert ("the value that the agent gives" in drawing.said) == values
    assert ("the first of 2 seeds" in drawing.said) == bool(seeds)
    assert paths.REACHED in svg and paths.MISSED in svg  # the legend has both
    assert pictures.maps(found, told) == {}, "what is no picture by itself is sent to no logger"
