"""Whole-network operations that are tree maps."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.tree_util as jtu
import numpy as np

from twinax import ops

T = TypeVar("T")


def frozen(network: T) -> T:
    """The same network with parameters that receive no gradient; gradients still reach its inputs."""
    return jtu.tree_map(ops.stop_gradient, network)


def ema(target: T, online: T, rate: float) -> T:
    """Each leaf moved towards the online network: (1 - rate) target + rate online, without gradients."""
    # In this form a rate of 1 is an exact copy.
    return jtu.tree_map(lambda t, o: (1 - rate) * ops.stop_gradient(t) + rate * ops.stop_gradient(o), target, online)


def num_parameters(network: Any) -> int:
    """How many numbers the leaves hold."""
    return int(sum(np.prod(leaf.shape) for leaf in jtu.tree_leaves(network)))
