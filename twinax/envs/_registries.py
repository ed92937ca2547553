"""Worlds and rewards by name: what the command line offers, and where a new one adds its line."""

from __future__ import annotations

from twinax.envs._brax_world import BraxWorld
from twinax.envs._classic import CLASSIC
from twinax.envs._cleanup import Cleanup
from twinax.envs._control import Control
from twinax.envs._environment import Environment
from twinax.envs._grid_landscapes import Cosine, Deceptive, Sparse
from twinax.envs._grid_rewards import Corners, GridReward, Uniform
from twinax.envs._grid_tiers import Tiers
from twinax.envs._gymnasium_world import GymnasiumWorld
from twinax.envs._gymnax_world import GymnaxWorld
from twinax.envs._hypergrid import Hypergrid
from twinax.envs._perfect_tree import LeafNumber, PerfectTree
from twinax.envs._probes import PROBES
from twinax.envs._ring_graphs import Ring, RingGraphs
from twinax.envs._set_rewards import BagModes, ItemWeights
from twinax.envs._sets import Bags, Sets
from twinax.envs._spins import Ising
from twinax.envs._treasurehunt import TreasureHunt
from twinax.envs.world import World
from twinax.registry import Registry

_ENVIRONMENTS: dict[str, type[Environment]] = {
    "hypergrid": Hypergrid,
    "set": Sets,
    "bag": Bags,
    "perfect_tree": PerfectTree,
    "rings": RingGraphs,
    "ising": Ising,
}
_REWARDS: dict[str, type] = {
    "uniform": Uniform,
    "corners": Corners,
    "bands": GridReward,
    "cosine": Cosine,
    "deceptive": Deceptive,
    "sparse": Sparse,
    "tiers": Tiers,
    "item_weights": ItemWeights,
    "bag_modes": BagModes,
    "leaf_number": LeafNumber,
    "ring": Ring,
}
_WORLDS: dict[str, type[World]] = {"treasurehunt": TreasureHunt, "cleanup": Cleanup}
_CONTROLS: dict[str, type[Control]] = {
    **CLASSIC,
    **PROBES,
    "gymnasium": GymnasiumWorld,
    "gymnax": GymnaxWorld,
    "brax": BraxWorld,
}

ENVIRONMENTS = Registry("environment", _ENVIRONMENTS)
"""Where a GFlowNet builds objects."""
REWARDS = Registry("reward", _REWARDS)
"""Rewards of such objects."""
WORLDS = Registry("world", _WORLDS)
"""Worlds of several agents."""
CONTROLS = Registry("control", _CONTROLS)
"""Worlds of one agent that is controlled step by step."""
