"""The maze against a slow point, its shortest ways, and datasets collected in it and in Gymnasium."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path

from twinax import ops, tree
from twinax.envs import MAZES, MazeState, PointMaze
from twinax.errors import MissingExtra, TwinaxError
from twinax.noise import numpy_draws
from twinax.offline import collect_gymnasium, collect_maze, label_maze, read_ogbench, save_ogbench

BLOCK = "#####\n#...#\n#.#.#\n#...#\n#####"


def slow_step(maze, position, velocity, action):
    """One point: x first, then y; it stops a margin before a wall, and is never pushed back."""
    place = list(position)
    for axis in (0, 1):
        push = maze.speed * min(max(action[axis], -1), 1)
        speed = (1 - maze.friction) * velocity[axis] + maze.friction * push if maze.inertia else push
        if speed == 0:
            continue
        sign = math.copysign(1, speed)
        ahead = list(place)
        ahead[axis] += speed + sign * maze.margin
        if maze.rows[int(ahead[1])][int(ahead[0])] == "#":
            edge = int(place[axis]) + (1 if sign > 0 else 0) - sign * maze.margin
            place[axis] = sign * max(sign * edge, sign * place[axis])
        else:
            place[axis] += speed
    kept = [b - a for a, b in zip(position, place, strict=True)] if maze.inertia else [0.0, 0.0]
    return place, kept


@pytest.mark.parametrize("inertia", [False, True])
@pytest.mark.parametrize("walls", [*MAZES, BLOCK])
def test_steps_are_those_of_a_slow_point(walls, inertia):
    maze = PointMaze(walls=walls, inertia=inertia, speed=0.4, radius=0.3, max_steps=60)
    rng = np.random.default_rng(0)
    state = maze.reset(numpy_draws(maze.reset_draws(8), 0, 0))
    state = tree.map_leaves(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, state)
    action = rng.uniform(-1.5, 1.5, (8, 2))
    touched = 0
    for t in range(60):
        action = np.where(rng.random((8, 1)) < 0.2, rng.uniform(-1.5, 1.5, (8, 2)), action)
        after, reward, reached, late = maze.step(state, action)
        for k in range(8):
            place, kept = slow_step(maze, state.position[k], state.velocity[k], action[k])
            np.testing.assert_allclose(after.position[k], place, atol=1e-12)
            np.testing.assert_allclose(after.velocity[k], kept, atol=1e-12)
            near = math.dist(place, state.goal[k]) <= 0.3
            assert reached[k] == near and reward[k] == (0 if near else -1)
            x, y = place
            assert maze.rows[int(y)][int(x)] != "#"
        touched += (np.abs(after.position - state.position) < 1e-12).any(1).sum()
        assert (late == (t == 59)).all() and (after.time == t + 1).all()
        state = after
    assert touched > 20, "walls were hardly met"


def test_shortest_ways():
    for walls in MAZES:
        maze = PointMaze(walls=walls)
        apart = np.abs(maze.free[:, None] - maze.free[None]).sum(-1)
        wanted = shortest_path(apart == 1, unweighted=True)
        np.testing.assert_array_equal(maze.distances, wanted)
        for a in range(len(maze.free)):
            for b in range(len(maze.free)):
                step = maze.way[a, b]
                assert (step == a) if a == b else apart[a, step] == 1 and wanted[step, b] == wanted[a, b] - 1


@pytest.mark.parametrize("inertia", [False, True])
def test_the_guide_gets_there(inertia):
    maze = PointMaze(walls="large", inertia=inertia)
    state = maze.reset(numpy_draws(maze.reset_draws(200), 1, 0))
    rng, arrived = np.random.default_rng(0), np.zeros(200, bool)
    for _ in range(maze.max_steps):
        state, _, reached, _ = maze.step(state, maze.guide(state, rng.standard_normal((200, 2)), 0.5))
        arrived |= reached
    assert arrived.all()


def test_points_start_in_the_middle_of_free_cells():
    maze = PointMaze(inertia=True)
    state = maze.reset(numpy_draws(maze.reset_draws(500), 0, 0))
    for place in (state.position, state.goal):
        cells = {tuple(cell) for cell in np.floor(place).astype(int).tolist()}
        assert cells == {tuple(cell) for cell in maze.free.tolist()}
        inside = place - np.floor(place)
        assert inside.min() > 0.25 and inside.max() < 0.75
    assert maze.observe(state).shape == (500, 4) == (500, maze.observation_size)
    assert not maze.observe_goal(state)[:, 2:].any() and (maze.observe_goal(state)[:, :2] == state.goal).all()
    assert PointMaze().observe(state).shape == (500, 2) and (PointMaze().observe_goal(state) == state.goal).all()


@pytest.mark.parametrize("inertia", [False, True])
def test_the_maze_is_the_same_in_every_framework(inertia, double_precision):
    maze = PointMaze(inertia=inertia)
    draws = {
        k: v.astype(np.float64) if v.dtype == np.float32 else v
        for k, v in numpy_draws(maze.reset_draws(16), 0, 0).items()
    }
    normal = np.random.default_rng(0).normal(size=(25, 16, 2))

    def run(draws, normal):
        def turn(state, normal):
            state, reward, reached, _ = maze.step(state, maze.guide(state, normal, 0.5))
            return state, (reward, reached)

        state, rewards = ops.scan(turn, maze.reset(draws), normal)
        return state, rewards, maze.observe(state)

    wanted = tree.named_leaves(run(draws, normal))
    found = {
        "jax": jax.jit(run)(*jtu.tree_map(jnp.asarray, (draws, normal))),
        "torch": run(*jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), (draws, normal))),
    }
    for result in found.values():
        for name, value in tree.named_leaves(result).items():
            np.testing.assert_allclose(np.asarray(value), wanted[name], atol=1e-12, err_msg=name)
            assert str(value.dtype).removeprefix("torch.") == str(wanted[name].dtype), name


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"walls": "tiny"},
            "rows of 4 cells; it must be a rectangle of at least 3 x 3, or one of open, u, medium, large",
        ),
        ({"walls": "####\n#..#\n###"}, "rows of 4, 4, 3 cells"),
        ({"walls": "####\n#...\n####"}, "the maze is open at row 1, column 3; its border must be walls (#)"),
        ({"walls": "###\n###\n###"}, "the maze has no free cell"),
        ({"walls": "#####\n#.#.#\n#####"}, "no way leads from cell (1, 1) to cell (3, 1) of the maze"),
        ({"speed": 0.0}, "speed is 0.0; it must be above 0 and at most 0.5"),
        ({"speed": 0.6}, "speed is 0.6"),
        ({"friction": 0.0}, "friction is 0.0; it must be above 0 and at most 1"),
        ({"margin": 0.5}, "margin is 0.5; it must be above 0 and at most 0.4"),
        ({"radius": float("nan")}, "radius is nan"),
        ({"max_steps": 0}, "max_steps is 0; it must be at least 1"),
    ],
)
def test_wrong_mazes_are_refused(settings, words):
    with pytest.raises(TwinaxError) as caught:
        PointMaze(**settings)
    assert words in str(caught.value) and "\n" not in str(caught.value)


# Collecting


@pytest.mark.parametrize("walk", ["navigate", "random"])
@pytest.mark.parametrize("inertia", [False, True])
def test_collected_rows_are_steps_of_the_maze(tmp_path, walk, inertia):
    maze = PointMaze(walls="u", inertia=inertia)
    data = collect_maze(maze, trajectories=6, steps=50, walk=walk, seed=3)
    path = save_ogbench(data, tmp_path / "maze.npz")
    rows = read_ogbench(path)
    assert rows.lengths.tolist() == [50] * 6
    now = rows.observations
    speed = now[:, 2:] if inertia else np.zeros_like(now)
    state = MazeState(now[:, :2], speed, np.zeros_like(now[:, :2]), np.zeros(len(now), np.int32))
    after, *_ = maze.step(state, rows.actions)
    np.testing.assert_allclose(maze.observe(after), rows.next_observations, atol=1e-5)
    again = collect_maze(maze, trajectories=6, steps=50, walk=walk, seed=3)
    np.testing.assert_array_equal(again.observations, data.observations)
    other = collect_maze(maze, trajectories=6, steps=50, walk=walk, seed=4)
    assert (other.observations != data.observations).any()


def test_walks_cover_the_maze():
    maze = PointMaze(walls="medium")
    cells = np.floor(collect_maze(maze, trajectories=20, steps=300).observations).astype(int)
    assert {tuple(cell) for cell in cells.tolist()} == {tuple(cell) for cell in maze.free.tolist()}


def test_labels_of_a_task():
    maze = PointMaze(walls="u")
    data = collect_maze(maze, trajectories=5, steps=60)
    task = label_maze(data, maze, (1.5, 3.5))
    near = np.linalg.norm(data.observations - np.array([1.5, 3.5]), axis=1) <= maze.radius
    assert near.any() and not near.all()
    np.testing.assert_array_equal(task.rewards, np.where(near, 0, -1))
    np.testing.assert_array_equal(task.masks, np.where(near, 0, 1))
    with pytest.raises(TwinaxError, match=r"the goal is \[9.0, 1.0\]; it must be \(x, y\) inside the maze of 5 x 5"):
        label_maze(data, maze, (9, 1))
    with pytest.raises(TwinaxError, match="label the dataset before that"):
        label_maze(data.normalised("normal"), maze, (1, 1))


@pytest.mark.parametrize("positive", [True, False])
def test_a_reward_that_reaches_falls_off_like_a_bell(positive):
    maze, goal = PointMaze("u"), (1.5, 3.5)
    data = collect_maze(maze, 2, 20)
    task = label_maze(data, maze, goal, positive=positive, reach=0.7)
    away = np.linalg.norm(data.observations - np.array(goal), axis=1)
    np.testing.assert_allclose(task.rewards, np.exp(-(away**2) / 0.98) - (not positive), rtol=2e-5, atol=1e-6)
    # What ends an episode is the goal itself, as without a reach.
    np.testing.assert_array_equal(task.masks, label_maze(data, maze, goal).masks)
    for reach in (-1.0, math.nan, math.inf):
        with pytest.raises(TwinaxError, match="reach is .* it must be a number of cells"):
            label_maze(data, maze, goal, reach=reach)


def test_wrong_walks():
    with pytest.raises(TwinaxError, match="unknown walk 'navigat'; .* Did you mean 'navigate'"):
        collect_maze(PointMaze(), 1, 1, walk="navigat")
    with pytest.raises(TwinaxError, match="steps is 0; it must be at least 1"):
        collect_maze(PointMaze(), 1, 0)


def test_gymnasium_boxes():
    pytest.importorskip("gymnasium")
    data = collect_gymnasium("Pendulum-v1", steps=450, seed=1)
    assert data.lengths.tolist() == [200, 200, 50] and data.observations.shape == (450, 3)
    assert np.flatnonzero(data.truncations).tolist() == [199, 399] and (data.masks == 1).all()
    assert data.actions.min() < -0.9 and data.actions.max() > 0.9  # of a box from -2 to 2
    inside = ~data.terminals[:-1]
    np.testing.assert_array_equal(data.next_observations[:-1][inside], data.observations[1:][inside])
    again = collect_gymnasium("Pendulum-v1", steps=450, seed=1)
    np.testing.assert_array_equal(again.observations, data.observations)
    still = collect_gymnasium("Pendulum-v1", steps=5, policy=lambda observation, rng: np.array([2.5]))
    np.testing.assert_allclose(still.actions, 1, atol=2e-5)


def test_gymnasium_choices_and_ends():
    pytest.importorskip("gymnasium")
    data = collect_gymnasium("CartPole-v1", steps=300)
    assert set(data.actions.tolist()) == {0, 1} and data.actions.dtype == np.int32
    ends = np.flatnonzero(data.terminals[:-1])
    assert len(ends) > 3 and (data.masks[ends] == 0).all() and not data.truncations.any()
    assert (data.masks == 0).sum() - len(ends) in (0, 1)
    assert collect_gymnasium("FrozenLake-v1", steps=20).observations.shape == (20, 16)  # choices as one-hot rows


def test_gymnasium_names_and_the_extra(monkeypatch):
    pytest.importorskip("gymnasium")
    with pytest.raises(TwinaxError, match="Gymnasium cannot make 'Pendlum-v1': ") as caught:
        collect_gymnasium("Pendlum-v1")
    assert "\n" not in str(caught.value)
    with pytest.raises(TwinaxError, match="steps is 0"):
        collect_gymnasium("Pendulum-v1", steps=0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs gymnasium.*pip install 'twinax\[offline\]'"):
        collect_gymnasium("Pendulum-v1")
