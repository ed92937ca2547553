"""Agents that learn how their returns are distributed, in worlds for several agents."""

from twinax.iqn._epoch import Epoch, play
from twinax.iqn._learner import Learners
from twinax.iqn._network import Categorical, FixedQuantiles, QuantileNetwork
from twinax.iqn._players import Players
from twinax.iqn._problem import Agents, Lesson, problem
from twinax.iqn._replay import Batch, Replay, ReplayOptions, sample
from twinax.iqn._scripted import scripted_epoch

__all__ = [
    "Agents",
    "Batch",
    "Categorical",
    "Epoch",
    "FixedQuantiles",
    "Learners",
    "Lesson",
    "Players",
    "QuantileNetwork",
    "Replay",
    "ReplayOptions",
    "play",
    "problem",
    "sample",
    "scripted_epoch",
]
