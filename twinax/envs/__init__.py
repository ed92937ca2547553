"""Worlds: their rules as arrays in, arrays out, for every framework."""

from twinax.envs._alignments import Alignment, read_alignment, simulate_alignment
from twinax.envs._bit_modes import BitModes
from twinax.envs._bit_sequences import BitSequences
from twinax.envs._black_box import BlackBox
from twinax.envs._brax_checks import check_brax_env
from twinax.envs._brax_world import BraxWorld
from twinax.envs._classic import CLASSIC
from twinax.envs._classic_cars import MountainCar, MountainCarContinuous
from twinax.envs._classic_poles import Acrobot, CartPole, Pendulum
from twinax.envs._cleanup import Cleanup
from twinax.envs._control import Actions, Box, Control, Discrete, Moved, Restarting
from twinax.envs._dag import DAG, DAGState
from twinax.envs._dag_rewards import BGe, LinearGaussian
from twinax.envs._enumeration import Enumeration, TooManyStates, enumerate_states
from twinax.envs._environment import Environment
from twinax.envs._frozen_array import FrozenArray
from twinax.envs._grid_landscapes import Cosine, Deceptive, Sparse
from twinax.envs._grid_rewards import Corners, GridReward, Uniform
from twinax.envs._grid_tiers import Tiers
from twinax.envs._gymnasium_world import GymnasiumWorld
from twinax.envs._gymnax_world import GymnaxWorld
from twinax.envs._hypergrid import GridState, Hypergrid
from twinax.envs._learned_couplings import LearnedCouplings
from twinax.envs._made_rows import MadeRows
from twinax.envs._molecules import Molecules, Properties
from twinax.envs._peptides import Peptides
from twinax.envs._perfect_tree import LeafNumber, PerfectTree
from twinax.envs._phylogeny import ForestState, Parsimony, PhylogeneticTree
from twinax.envs._plain_spins import PlainSpins
from twinax.envs._probes import PROBES
from twinax.envs._reference import Feature, Reference
from twinax.envs._registries import CONTROLS, ENVIRONMENTS, REWARDS, WORLDS
from twinax.envs._ring_graphs import Ring, RingGraphs
from twinax.envs._rna_binding import RNABinding
from twinax.envs._sequence_rules import SequenceRules, SequenceState
from twinax.envs._sequences import DoubledLetters, Sequences
from twinax.envs._set_rewards import BagModes, ItemWeights
from twinax.envs._sets import Bags, Sets
from twinax.envs._spin_samples import sample_spins
from twinax.envs._spins import Ising, Spins, SpinState
from twinax.envs._tabulated import QM9Small, Tabulated, TFBind8
from twinax.envs._treasurehunt import TreasureHunt
from twinax.envs.biped import Biped, make_biped
from twinax.envs.checking import EnvReport, check_env
from twinax.envs.maze import MAZES, MazeState, PointMaze
from twinax.envs.world import World

__all__ = [
    "CLASSIC",
    "CONTROLS",
    "DAG",
    "ENVIRONMENTS",
    "MAZES",
    "PROBES",
    "REWARDS",
    "WORLDS",
    "Acrobot",
    "Actions",
    "Alignment",
    "BGe",
    "BagModes",
    "Bags",
    "Biped",
    "BitModes",
    "BitSequences",
    "BlackBox",
    "Box",
    "BraxWorld",
    "CartPole",
    "Cleanup",
    "Control",
    "Corners",
    "Cosine",
    "DAGState",
    "Deceptive",
    "Discrete",
    "DoubledLetters",
    "Enumeration",
    "EnvReport",
    "Environment",
    "Feature",
    "ForestState",
    "FrozenArray",
    "GridReward",
    "GridState",
    "GymnasiumWorld",
    "GymnaxWorld",
    "Hypergrid",
    "Ising",
    "ItemWeights",
    "LeafNumber",
    "LearnedCouplings",
    "LinearGaussian",
    "MadeRows",
    "MazeState",
    "Molecules",
    "MountainCar",
    "MountainCarContinuous",
    "Moved",
    "Parsimony",
    "Pendulum",
    "Peptides",
    "PerfectTree",
    "PhylogeneticTree",
    "PlainSpins",
    "PointMaze",
    "Properties",
    "QM9Small",
    "RNABinding",
    "Reference",
    "Restarting",
    "Ring",
    "RingGraphs",
    "SequenceRules",
    "SequenceState",
    "Sequences",
    "Sets",
    "Sparse",
    "SpinState",
    "Spins",
    "TFBind8",
    "Tabulated",
    "Tiers",
    "TooManyStates",
    "TreasureHunt",
    "Uniform",
    "World",
    "check_brax_env",
    "check_env",
    "enumerate_states",
    "make_biped",
    "read_alignment",
    "sample_spins",
    "simulate_alignment",
]
