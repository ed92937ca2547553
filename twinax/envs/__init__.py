"""Worlds: their rules as arrays in, arrays out, for every framework."""

from twinax.envs._check import EnvReport, check_env
from twinax.envs._enumeration import Enumeration, enumerate_states
from twinax.envs._environment import Environment
from twinax.envs._grid_rewards import Corners, GridReward, Uniform
from twinax.envs._hypergrid import GridState, Hypergrid

__all__ = [
    "Corners",
    "Enumeration",
    "EnvReport",
    "Environment",
    "GridReward",
    "GridState",
    "Hypergrid",
    "Uniform",
    "check_env",
    "enumerate_states",
]
