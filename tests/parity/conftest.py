"""The small worlds that the parity tests run on."""

from __future__ import annotations

import dataclasses

import pytest

from twinax.envs import GridReward, Hypergrid
from twinax.gflownet import Exploration, MetricOptions, PolicyOptions, ReplayOptions, objectives, problem
from twinax.optimizer import Optimizer


@pytest.fixture(scope="session")
def small():
    """Make a problem on a 4 x 4 grid; one shape for all, so that compiled draws are shared."""

    def make(objective, *, exploration=None, optimizer=None, sizes=None, log_z=(0.0,), targets=None, **policy):
        made = problem(
            Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0)),
            objective,
            batch_size=8,
            policy=PolicyOptions(hidden=(16, 16), **policy),
            exploration=exploration or Exploration(),
            optimizer=optimizer or Optimizer(learning_rate=1e-2, rates={"log_z": 0.1}),
            metrics=MetricOptions(fifo=50),
            log_z=log_z,
            targets=targets,
            # What imitates objects is not given its own alone.
            replay=ReplayOptions(size=64, batch_size=4) if objectives.OBJECTIVES[objective].of_data else None,
        )
        if sizes:
            # A grid this small has one size of its own; a choice among several must be exercised as well.
            vars(made)["compile"] = dataclasses.replace(made.compile, sizes=sizes)
        return made

    return make
