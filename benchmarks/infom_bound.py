"""Why InFOM finds the maze hard: exact values of the data's walkers, and how many sampled states they need.

    python benchmarks/infom_bound.py

InFOM's critic is the mean reward of states that a flow generates. Here the flow is replaced by the truth: a table of
the walks (quarters of cells, eight directions) gives, for each place and direction, the law of the states that the
walkers reach, discounted. A point that always goes in the best direction is then played 400 times, once with the exact
means, and with means of as many sampled states as stand above the columns. What differs between the rows is the reward
alone: at the goal only, or falling off around it like a bell (`task.reach`, in cells).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import sparse

from twinax.envs import PointMaze
from twinax.offline import collect_maze

GOAL, PER_CELL, DIRECTIONS = (1.5, 1.5), 4, 8
SAMPLES = (256, 2_000, 20_000)
REACHES, DISCOUNTS = (0.0, 0.5, 1.0, 1.5), (0.9, 0.95)
SHAKE = 0.2
"""Noise of the point's hand, without which it may stay in a corner for ever."""


class Table:
    """The walks, counted."""

    def __init__(self, maze: PointMaze):
        data = collect_maze(maze, trajectories=400, steps=250)
        rows = np.flatnonzero(np.asarray(data.valids)[:-1] & np.asarray(data.valids)[1:])
        self.maze, self.side = maze, max(maze.width, maze.height) * PER_CELL
        self.number = self.side**2 * DIRECTIONS
        self.position = np.asarray(data.observations)[rows]
        angle = np.arctan2(*np.asarray(data.actions).T[::-1])
        direction = np.round(angle / (2 * np.pi / DIRECTIONS)).astype(int) % DIRECTIONS
        self.here = self.cell(self.position) * DIRECTIONS + direction[rows]
        there = self.cell(np.asarray(data.observations)[rows + 1]) * DIRECTIONS + direction[rows + 1]
        self.counts = np.bincount(self.here, minlength=self.number)
        pairs = sparse.csr_matrix((np.ones(len(rows)), (self.here, there)), shape=(self.number, self.number))
        self.follows = sparse.diags(1 / np.maximum(np.asarray(pairs.sum(1)).ravel(), 1)) @ pairs

    def cell(self, position: np.ndarray) -> np.ndarray:
        """The square that a position is in."""
        column, row = np.floor(position * PER_CELL).astype(int).T
        return row * self.side + column

    def mean(self, values: np.ndarray, discount: float) -> np.ndarray:
        """The mean of a function of states over those that follow each place and direction."""
        now = np.bincount(self.here, values, self.number) / np.maximum(self.counts, 1)
        found = np.zeros(self.number)
        for _ in range(600):
            found = (1 - discount) * now + discount * (self.follows @ found)
        return found

    def success(self, values: np.ndarray, episodes: int = 400) -> float:
        """How often a point that takes the best direction reaches the goal."""
        rng, goal = np.random.default_rng(1), np.array(GOAL, np.float32)
        values = np.where(self.counts > 0, values, -np.inf).reshape(-1, DIRECTIONS)
        seen, best = np.flatnonzero(np.isfinite(values).any(1)), values.argmax(1)
        middle = np.stack([seen % self.side, seen // self.side], -1) / PER_CELL + 0.5 / PER_CELL
        angle = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
        steps = np.stack([np.cos(angle), np.sin(angle)], -1)
        steps /= np.abs(steps).max(-1, keepdims=True)
        draws = {
            name: rng.integers(draw.high, size=draw.shape) if draw.high else rng.random(draw.shape, np.float32)
            for name, draw in self.maze.reset_draws(episodes).items()
        }
        state = dataclasses.replace(self.maze.reset(draws), goal=np.tile(goal, (episodes, 1)))
        reached = np.zeros(episodes, bool)
        for _ in range(self.maze.max_steps):
            # Where no walker was, the nearest place where one was tells the way.
            nearest = seen[np.square(state.position[:, None] - middle[None]).sum(-1).argmin(1)]
            action = steps[best[nearest]] + SHAKE * rng.normal(size=(episodes, 2))
            state, _, now, _ = self.maze.step(state, np.clip(action, -1, 1).astype(np.float32))
            reached |= now
        return float(reached.mean())


def main() -> None:
    maze = PointMaze("medium")
    table, rng = Table(maze), np.random.default_rng(0)
    columns = ["reach", "discount", "mean reward", "exact", *(f"{number:,}" for number in SAMPLES)]
    print("episodes that reach the goal, by the states that a mean is taken over")
    print(" ".join(f"{column:>12s}" for column in columns))
    for reach in REACHES:
        reward = np.asarray(maze.reward(table.position, np.array(GOAL, np.float32), reach, positive=True), float)
        for discount in DISCOUNTS:
            mean, square = table.mean(reward, discount), table.mean(reward**2, discount)
            deviation = np.sqrt(np.maximum(square - mean**2, 0))
            noisy = [mean + deviation / np.sqrt(number) * rng.normal(size=mean.shape) for number in SAMPLES]
            found = [table.success(values) for values in (mean, *noisy)]
            typical = np.median(mean[table.counts > 0])
            print(f"{reach:12g} {discount:12g} {typical:12.2g} " + " ".join(f"{value:12.2f}" for value in found))


if __name__ == "__main__":
    main()
