"""GFlowNets: objectives, policies, trajectories, exact and sampled metrics."""

from twinax.gflownet import objectives
from twinax.gflownet._energy import EnergyOptions
from twinax.gflownet._exploration import Exploration
from twinax.gflownet._likelihood import likelihood_draws, log_probabilities
from twinax.gflownet._local_search import LocalSearchOptions
from twinax.gflownet._metrics import MetricOptions
from twinax.gflownet._policy import Networks, Outputs, Policy, PolicyOptions
from twinax.gflownet._problem import GFlowNet, problem
from twinax.gflownet._replay import ReplayOptions
from twinax.gflownet._scores import Scores, score
from twinax.gflownet._targets import TargetOptions
from twinax.gflownet._trajectories import Trajectories, backward_rollout, forward_rollout
from twinax.gflownet._visited import Visited, visit

__all__ = [
    "EnergyOptions",
    "Exploration",
    "GFlowNet",
    "LocalSearchOptions",
    "MetricOptions",
    "Networks",
    "Outputs",
    "Policy",
    "PolicyOptions",
    "ReplayOptions",
    "Scores",
    "TargetOptions",
    "Trajectories",
    "Visited",
    "backward_rollout",
    "forward_rollout",
    "likelihood_draws",
    "log_probabilities",
    "objectives",
    "problem",
    "score",
    "visit",
]
