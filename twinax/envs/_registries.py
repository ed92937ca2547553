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
from twinax.envs._probes import PROBES
from twinax.envs._treasurehunt import TreasureHunt
from twinax.envs.world import World
from twinax.registry import Registry

_ENVIRONMENTS: dict[str, type[Environment] | str] = {
    "hypergrid": Hypergrid,
    "sequences": "twinax.envs._sequences:Sequences",
    "bitseq": "twinax.envs._bit_sequences:BitSequences",
    "table": "twinax.envs._tabulated:Tabulated",
    "tfbind8": "twinax.envs._tabulated:TFBind8",
    "qm9": "twinax.envs._tabulated:QM9Small",
    "rna": "twinax.envs._rna_binding:RNABinding",
    "amp": "twinax.envs._peptides:Peptides",
    "dag": "twinax.envs._dag:DAG",
    "phylo": "twinax.envs._phylogeny:PhylogeneticTree",
    "molecules": "twinax.envs._molecules:Molecules",
    "set": "twinax.envs._sets:Sets",
    "bag": "twinax.envs._sets:Bags",
    "perfect_tree": "twinax.envs._perfect_tree:PerfectTree",
    "rings": "twinax.envs._ring_graphs:RingGraphs",
    "ising": "twinax.envs._spins:Ising",
    "spins": "twinax.envs._plain_spins:PlainSpins",
}
_REWARDS: dict[str, type | str] = {
    "uniform": Uniform,
    "corners": Corners,
    "bands": GridReward,
    "doubled_letters": "twinax.envs._sequences:DoubledLetters",
    "bit_modes": "twinax.envs._bit_modes:BitModes",
    "bge": "twinax.envs._dag_rewards:BGe",
    "linear_gaussian": "twinax.envs._dag_rewards:LinearGaussian",
    "cosine": Cosine,
    "deceptive": Deceptive,
    "sparse": Sparse,
    "tiers": Tiers,
    "parsimony": "twinax.envs._phylogeny:Parsimony",
    "properties": "twinax.envs._molecules:Properties",
    "item_weights": "twinax.envs._set_rewards:ItemWeights",
    "bag_modes": "twinax.envs._set_rewards:BagModes",
    "leaf_number": "twinax.envs._perfect_tree:LeafNumber",
    "ring": "twinax.envs._ring_graphs:Ring",
    "learned_couplings": "twinax.envs._learned_couplings:LearnedCouplings",
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
