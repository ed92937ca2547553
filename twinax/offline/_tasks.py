"""How an agent is judged: episodes of a task, many at once.

A task in arrays is played inside the compiled evaluation; a Gymnasium environment is played on the host, with one
batched call of the policy for all of its copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs.maze import PointMaze, require_reach
from twinax.errors import TwinaxError, require
from twinax.interval import half_width
from twinax.noise import Draw
from twinax.offline._dataset import OUTSIDE, Dataset
from twinax.offline._notes import say
from twinax.parts import Picture
from twinax.problem import Metrics
from twinax.ranges import check_range

SHOWN = 24
"""Episodes whose paths a picture shows: more would hide each other."""
SQUARES = 4
"""Values that a picture shows along each side of a cell of a maze."""
Act = Callable[[Any], Any]
"""Rows of observations to rows of actions in [-1, 1]."""


class Task:
    """Episodes of a world with a reward."""

    compiled: bool = False
    """Whether `rollout` plays it in arrays; otherwise `play` does on the host."""
    goal: np.ndarray | None = None
    """The observation to reach, where there is one."""
    own_seeds: str = ""
    """Which seeds episodes begin with, as a part of a sentence, where no draws decide it."""

    def require_like(self, observation: tuple[int, ...], actions: int) -> None:
        """An error unless the world shows observations of this shape and takes so many numbers as an action."""

    def say_range(self, data: Dataset) -> None:
        """A sentence if the data, whose box nobody named, look as if they were in the world's own units."""

    def draws(self) -> Mapping[str, Draw]:
        """What `rollout` needs."""
        return {}

    def rollout(self, act: Act, draws: Mapping[str, Any]) -> dict[str, Any]:
        """Returns, lengths and successes of episodes, as arrays of the framework that acts."""
        raise NotImplementedError

    def play(self, act: Act, box: Any = None) -> dict[str, np.ndarray]:
        """The same on the host. With a box, (low, high), actions are those of the data, from low to high; otherwise
        they lie in [-1, 1], which stands for the world's own range."""
        raise NotImplementedError

    def places(self) -> np.ndarray | None:
        """Observations at which pictures show values; None where there is no such picture."""
        return None

    def pictures(self, episodes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays of a report's pictures, from what `rollout` gave and from `values` at the places."""
        return {}

    def drawn(self) -> dict[str, Picture]:
        """How they are drawn."""
        return {}


@checked
@dataclass(frozen=True, eq=False)
class MazeTask(Task):
    """Reach a place of the maze from anywhere; an episode ends there, or when time is up."""

    maze: PointMaze
    place: tuple[float, float]
    """Where the goal is: x to the right, y down, in cells."""
    episodes: int = 64
    """Episodes of an evaluation, all at once."""
    positive: bool = False
    """Rewards are 1 at the goal and 0 elsewhere, in place of 0 and -1."""
    reach: float = 0.0
    """How far the reward reaches beyond the goal, in cells; 0: there alone. What counts as reached stays the same."""

    def __post_init__(self):
        require_reach(self.reach)
        check_range(self, "at least 1", "episodes")
        self.maze.require_free(self.place)

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        return True

    @property
    def goal(self) -> np.ndarray:  # type: ignore[override]
        at_rest = [0.0] * (self.maze.observation_size - 2)
        return np.array([*self.place, *at_rest], np.float32)

    def require_like(self, observation: tuple[int, ...], actions: int) -> None:
        _require_same("the maze", (self.maze.observation_size,), 2, observation, actions)

    def draws(self) -> Mapping[str, Draw]:
        return self.maze.reset_draws(self.episodes)

    def rollout(self, act: Act, draws: Mapping[str, Any]) -> dict[str, Any]:
        state = self.maze.reset(draws)
        place = ops.cast(ops.like(np.array(self.place, np.float32), state.position), state.position)
        state = dataclasses.replace(state, goal=ops.broadcast(place[None], (self.episodes, 2)))
        nothing = ops.zeros((self.episodes,), state.position)

        def move(carry, _):
            state, total, length, over = carry
            after, _, reached, _ = self.maze.step(state, ops.cast(act(self.maze.observe(state)), state.position))
            reward = self.maze.reward(after.position, after.goal, self.reach, self.positive)
            going = 1 - over
            over = ops.maximum(over, ops.cast(reached, over))
            return (after, total + going * reward, length + going, over), after.position

        time = ops.arange(self.maze.max_steps, state.position)
        (_, total, length, over), path = ops.scan(move, (state, nothing, nothing, nothing), time)
        return {"returns": total, "lengths": length, "successes": over, "start": state.position, "path": path}

    # Pictures

    @cached_property
    def _fine(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether each of the small squares of a picture is free, and (x, y) in the middle of those that are."""
        solid = self.maze.solid.reshape(self.maze.height, self.maze.width)
        free = ~np.kron(solid, np.ones((SQUARES, SQUARES), bool))
        rows, columns = np.nonzero(free)
        return free, (np.stack([columns, rows], -1) + 0.5) / SQUARES

    def places(self) -> np.ndarray:
        middles = self._fine[1]
        at_rest = np.zeros((len(middles), self.maze.observation_size - 2))
        return np.concatenate([middles, at_rest], 1).astype(np.float32)

    def pictures(self, episodes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        path = np.concatenate([episodes["start"][None], episodes["path"]])[:, :SHOWN].swapaxes(0, 1)
        path = path.astype(np.float32)
        after = np.arange(path.shape[1]) > episodes["lengths"][:SHOWN, None]
        path[after] = np.nan
        pictures = {
            "maze/walls": self.maze.solid.reshape(self.maze.height, self.maze.width).astype(np.uint8),
            "maze/goal": np.array([*self.place, self.maze.radius], np.float32),
            "maze/paths": path,
            "maze/successes": episodes["successes"][:SHOWN].astype(np.uint8),
        }
        if "values" in episodes and np.isfinite(episodes["values"]).all():
            free, _ = self._fine
            pictures["maze/values"] = np.full(free.shape, np.nan, np.float32)
            pictures["maze/values"][free] = episodes["values"]
        return pictures

    def drawn(self) -> dict[str, Picture]:
        number = min(self.episodes, SHOWN)
        labels = {"values": "Value", "reached": "reached the goal", "missed": "did not"}
        captions = {
            "paths": f"paths of {number} evaluated episodes from their starts (dots) towards the goal (ring)",
            "values": "right, the value that the agent gives each place",
        }
        return {"maze": Picture("Maze", "paths", labels, captions)}


@checked
@dataclass(frozen=True, eq=False)
class GymnasiumTask(Task):
    """Episodes of a Gymnasium environment; several copies run at once and share one call of the policy."""

    name: str
    """Its id, such as Pendulum-v1."""
    episodes: int = 50
    """Episodes of an evaluation."""
    num_envs: int = 10
    """Environments that run at once."""
    seed: int = 0
    """Of the first copy; every evaluation begins with it."""
    frame_stack: int = 1
    """Images that are seen at once, joined on the last axis; an episode begins with copies of its first one."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Arguments of `gymnasium.make`."""

    @property
    def own_seeds(self) -> str:  # type: ignore[override]
        last = self.seed + min(self.num_envs, self.episodes) - 1
        return f"episodes of {self.name} begin with its own seeds {self.seed} to {last}, whatever the draws"

    def __post_init__(self):
        check_range(self, "at least 1", "episodes", "num_envs", "frame_stack")

    def require_like(self, observation: tuple[int, ...], actions: int) -> None:
        require("gymnasium", "offline", "evaluating in Gymnasium environments")
        from twinax.offline._gymnasium import make

        world = make(self.name, self.settings)
        *place, channels = world.observation_space.shape
        box = world.action_space
        world.close()
        if not box.shape:
            raise TwinaxError(f"'{self.name}' has actions of {box}; these agents act in a box of real numbers")
        _require_same(f"'{self.name}'", (*place, channels * self.frame_stack), box.shape[0], observation, actions)

    def say_range(self, data: Dataset) -> None:
        from twinax.offline._gymnasium import make

        world = make(self.name, self.settings)
        box = world.action_space
        world.close()
        if (np.abs([box.low, box.high]) >= 1).any():  # then data in its units would have been refused
            return
        low, high = data.action_range()
        if ((low >= box.low - OUTSIDE) & (high <= box.high + OUTSIDE)).all():
            say(
                data.source,
                f"actions are from {low.min():g} to {high.max():g}, and '{self.name}' takes {box.low.min():g} to "
                f"{box.high.max():g}; if they are in its own units, name the box by low and high (in a run data.low "
                "and data.high), or 1 will stand for its largest action",
            )

    def play(self, act: Act, box: Any = None) -> dict[str, np.ndarray]:
        require("gymnasium", "offline", "evaluating in Gymnasium environments")
        from twinax.offline._gymnasium import clipped_to_box, make, scaled_to_box

        copies = min(self.num_envs, self.episodes)
        worlds = [make(self.name, self.settings) for _ in range(copies)]
        quota = [self.episodes // copies + (k < self.episodes % copies) for k in range(copies)]
        own = worlds[0].action_space
        finished: list[tuple[float, int, float]] = []
        seen = [[world.reset(seed=self.seed + k)[0]] * self.frame_stack for k, world in enumerate(worlds)]
        total, length, done = np.zeros(copies), np.zeros(copies, int), np.zeros(copies, int)
        try:
            while len(finished) < self.episodes:
                states = np.stack([np.concatenate(frames, -1) for frames in seen])
                actions = np.asarray(act(states.astype(np.float32)))
                actions = scaled_to_box(actions, own) if box is None else clipped_to_box(actions, own)
                for k, world in enumerate(worlds):
                    if done[k] == quota[k]:
                        continue
                    newest, reward, terminated, truncated, info = world.step(actions[k])
                    seen[k] = [*seen[k][1:], newest]
                    total[k] += float(reward)
                    length[k] += 1
                    if terminated or truncated:
                        finished.append((total[k], int(length[k]), float(info.get("success", np.nan))))
                        seen[k] = [world.reset()[0]] * self.frame_stack
                        total[k], length[k] = 0.0, 0
                        done[k] += 1
        finally:
            for world in worlds:
                world.close()
        returns, lengths, successes = (np.array(column) for column in zip(*finished, strict=True))
        return {
            "returns": returns,
            "lengths": lengths,
            **({} if np.isnan(successes).all() else {"successes": successes}),
        }


def _require_same(world: str, shown: tuple[int, ...], taken: int, observation: tuple[int, ...], actions: int) -> None:
    for what, one, other in (("observations", shown, observation), ("actions", (taken,), (actions,))):
        if one != other:
            raise TwinaxError(f"{world} has {what} of shape {one}, but those of the data have shape {other}")


def judged(episodes: Mapping[str, np.ndarray]) -> Metrics:
    """Means over episodes; `_ci` is half the width of a 95 % interval, which one episode alone does not have."""
    metrics: Metrics = {}
    for name, label in (("returns", "return"), ("successes", "success"), ("lengths", "length")):
        if name in episodes:
            values = np.asarray(episodes[name], np.float64)
            metrics[label] = float(values.mean())
            if label != "length" and len(values) > 1:
                metrics[f"{label}_ci"] = float(half_width(values))
    return metrics
