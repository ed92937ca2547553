"""A reward on the host is proven as a compiled one is."""

from __future__ import annotations

import numpy as np
import pytest

from twinax import parity
from twinax.envs import BlackBox, Hypergrid
from twinax.gflownet import MetricOptions, PolicyOptions, problem


def slope(cells):
    """Not to be had from a table of the grid's own rewards."""
    return np.exp(0.3 * cells[:, 0] - 0.2 * cells[:, 1] ** 2)


# The one that asks for most: finished objects, and every state on the way from within the differentiated loss.
@pytest.mark.parametrize("objective", [pytest.param("trajectory_balance", marks=pytest.mark.slow), "forward_looking"])
def test_the_modes_agree_on_a_black_box(objective):
    made = problem(
        Hypergrid(dim=2, side=4),
        objective,
        reward=BlackBox(slope, cache=5),
        batch_size=8,
        policy=PolicyOptions(hidden=(16, 16)),
        metrics=MetricOptions(fifo=50),
    )
    parity.check(made, steps=5).raise_if_different()
