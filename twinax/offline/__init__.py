"""Offline agents: data and its samplers, networks, losses, agents, and the problem that an engine trains."""

from twinax.offline._agent import Agent, Nets, Sizes
from twinax.offline._collect import collect_gymnasium, collect_maze, label_maze
from twinax.offline._d4rl import read_d4rl
from twinax.offline._dataset import Dataset, from_arrays
from twinax.offline._encoders import ENCODERS, encoder, make_encoder
from twinax.offline._goals import (
    GOAL_PRESETS,
    GoalMixture,
    GoalOptions,
    goal_batch_draws,
    goal_draws,
    goal_preset,
    goal_rows,
    sample_goal_batch,
)
from twinax.offline._hdf5 import read_minari
from twinax.offline._normaliser import NORMALISERS, Normaliser
from twinax.offline._problem import Offline, problem
from twinax.offline._readers import find_format, read_arrays, read_dataset, read_exorl, read_ogbench, save_ogbench
from twinax.offline._sampling import BatchOptions, batch_draws, batch_of_rows, random_crop, sample_batch
from twinax.offline._tasks import GymnasiumTask, MazeTask, Task
from twinax.offline.agents import AGENTS, agent

__all__ = [
    "AGENTS",
    "ENCODERS",
    "GOAL_PRESETS",
    "NORMALISERS",
    "Agent",
    "BatchOptions",
    "Dataset",
    "GoalMixture",
    "GoalOptions",
    "GymnasiumTask",
    "MazeTask",
    "Nets",
    "Normaliser",
    "Offline",
    "Sizes",
    "Task",
    "agent",
    "batch_draws",
    "batch_of_rows",
    "collect_gymnasium",
    "collect_maze",
    "encoder",
    "find_format",
    "from_arrays",
    "goal_batch_draws",
    "goal_draws",
    "goal_preset",
    "goal_rows",
    "label_maze",
    "make_encoder",
    "problem",
    "random_crop",
    "read_arrays",
    "read_d4rl",
    "read_dataset",
    "read_exorl",
    "read_minari",
    "read_ogbench",
    "sample_batch",
    "sample_goal_batch",
    "save_ogbench",
]
