"""Datasets without downloads: walks in a maze, and episodes of a Gymnasium environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from twinax.envs.maze import MazeState, PointMaze, require_reach
from twinax.errors import TwinaxError, UnknownName, require
from twinax.offline._dataset import Dataset, from_arrays
from twinax.recipe import remembered

WALKS = ("navigate", "random")


@remembered
def collect_maze(
    maze: PointMaze,
    trajectories: int = 1000,
    steps: int = 1000,
    walk: str = "navigate",
    noise: float = 0.5,
    seed: int = 0,
) -> Dataset:
    """Walks in a maze, all at once: a million steps in seconds. Compact, without rewards.

    navigate: along shortest ways to random goals with a noisy hand, a new goal whenever one is reached. random: each
    action is kept for some steps.

    >>> data = collect_maze(PointMaze(walls="u"), trajectories=3, steps=20)
    >>> data.size, data.lengths.tolist()
    (60, [20, 20, 20])
    """
    if walk not in WALKS:
        raise UnknownName("walk", walk, WALKS)
    for label, value in (("trajectories", trajectories), ("steps", steps)):
        if value < 1:
            raise TwinaxError(f"{label} is {value}; it must be at least 1")
    rng = np.random.default_rng(seed)
    state = maze.reset(_drawn(maze, trajectories, rng))
    seen = np.empty((trajectories, steps + 1, maze.observation_size), np.float32)
    done = np.empty((trajectories, steps + 1, 2), np.float32)
    action = rng.uniform(-1, 1, (trajectories, 2)).astype(np.float32)
    for t in range(steps + 1):
        if walk == "navigate":
            action = maze.guide(state, rng.standard_normal((trajectories, 2), np.float32), noise)
        else:
            turns = rng.random((trajectories, 1)) < 0.1
            action = np.where(turns, rng.uniform(-1, 1, action.shape), action).astype(np.float32)
        seen[:, t], done[:, t] = maze.observe(state), action
        state, _, reached, _ = maze.step(state, action)
        state = _with_new_goals(maze, state, reached, rng)
    last = np.tile(np.arange(steps + 1) == steps, trajectories)
    return Dataset(
        observations=seen.reshape(-1, maze.observation_size),
        actions=done.reshape(-1, 2),
        terminals=last,
        valids=~last,
        source="maze",
    )


def _drawn(maze: PointMaze, worlds: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    def one(draw):
        return rng.integers(draw.high, size=draw.shape) if draw.high else rng.random(draw.shape, np.float32)

    return {name: one(draw) for name, draw in maze.reset_draws(worlds).items()}


def _with_new_goals(maze: PointMaze, state: MazeState, reached: np.ndarray, rng: np.random.Generator) -> MazeState:
    which = np.flatnonzero(reached)
    if not len(which):
        return state
    goal = state.goal.copy()
    cells, places = rng.integers(len(maze.free), size=len(which)), rng.random((len(which), 2), np.float32)
    goal[which] = maze.spot(cells, places)
    return dataclasses.replace(state, goal=goal)


@remembered
def label_maze(dataset: Dataset, maze: PointMaze, goal: Any, positive: bool = False, reach: float = 0.0) -> Dataset:
    """The same walks as data of one task: the reward of an observation is 0 at the goal and -1 elsewhere, or 1 and 0.

    Masks are 0 at the goal, which is (x, y) in cells. With a `reach` the reward falls off around it (`maze.reward`).
    """
    goal = maze.require_free(goal)
    require_reach(reach)
    if dataset.normaliser is not None:
        raise dataset.error("the observations are normalised; label the dataset before that")
    places = np.asarray(dataset.observations[:, :2], np.float32)
    rewards = maze.reward(places, goal, reach, positive).astype(np.float32)
    return dataclasses.replace(dataset, rewards=rewards, masks=~maze.reached(places, goal), reward_on_next=False)


def collect_gymnasium(
    name: str,
    steps: int = 10_000,
    policy: Callable[[Any, np.random.Generator], Any] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Dataset:
    """Whole episodes of a Gymnasium environment, until there are enough steps; the last one is cut there.

    `policy(observation, rng)` gives an action; by default it is drawn evenly from the box or the choices. Actions of a
    box are stored in [-1, 1]. Observations with parts are flattened.

    >>> collect_gymnasium("Pendulum-v1", steps=400).lengths        # doctest: +SKIP
    array([200, 200], dtype=int32)
    """
    require("gymnasium", "offline", "collecting data of Gymnasium environments")
    from gymnasium import spaces  # pyright: ignore[reportMissingImports]

    from twinax.offline._gymnasium import make

    if steps < 1:
        raise TwinaxError(f"steps is {steps}; it must be at least 1")
    env = make(name, settings)
    box = env.action_space
    low, high = (box.low, box.high) if isinstance(box, spaces.Box) else (-1.0, 1.0)

    def act(observation):
        if policy is not None:
            return policy(observation, rng)
        if isinstance(box, spaces.Box):
            return rng.uniform(box.low, box.high).astype(box.dtype)
        return int(box.start + rng.integers(box.n))

    rng = np.random.default_rng(seed)
    states, following, actions, rewards, over, cut, ends = [], [], [], [], [], [], []
    observation, _ = env.reset(seed=seed)
    try:
        while len(actions) < steps:
            action = act(observation)
            then, reward, terminated, truncated, _ = env.step(action)
            states.append(observation)
            following.append(then)
            actions.append(action if isinstance(box, spaces.Box) else int(action) - int(box.start))
            rewards.append(reward)
            over.append(terminated)
            cut.append(truncated)
            ends.append(terminated or truncated)
            observation = env.reset()[0] if ends[-1] else then
    finally:
        env.close()
    ends[-1] = True
    fields = {
        "observations": np.stack(states),
        "next_observations": np.stack(following),
        "actions": np.clip(np.stack(actions), low, high) if isinstance(box, spaces.Box) else np.array(actions),
        "rewards": np.array(rewards),
        "masks": ~np.array(over),
        "truncations": np.array(cut),
        "terminals": np.array(ends),
    }
    return from_arrays(fields, low, high, source=name)
