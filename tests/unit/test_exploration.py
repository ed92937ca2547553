"""Random actions one by one, or for whole trajectories."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from twinax import parity
from twinax.gflownet import Exploration, MetricOptions, PolicyOptions, problem
from twinax.noise import numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import LeftToRight

LENGTH, BATCH, EPSILON = 6, 4000, 0.3


def made(batch=BATCH, **options):
    """Strings of bits from left to right, by a policy that always writes the same unless it explores."""
    return problem(
        LeftToRight(LENGTH),
        batch_size=batch,
        policy=PolicyOptions(hidden=(8,)),
        metrics=MetricOptions(fifo=BATCH, samples=32),
        exploration=Exploration(epsilon=EPSILON, temperature=1e-6, **options),
    )


@pytest.mark.parametrize("per_trajectory", [False, True])
def test_how_often_a_trajectory_departs_from_the_policy(per_trajectory):
    problem = made(per_trajectory=per_trajectory)
    state = problem.init(0)
    batch = problem.collect(state, numpy_draws(problem.draws(), 0, 0), problem.inputs())[1]
    logits = np.stack(
        [
            state.networks.policy(
                problem.env.observe(batch.states.__class__(*(x[t] for x in batch.states)))
            ).forward_logits
            for t in range(LENGTH)
        ]
    )
    departed = (batch.actions != logits.argmax(-1)).any(0).mean()
    # Each random action departs with probability 1/2.
    each = 1 - (1 - EPSILON / 2) ** LENGTH
    whole = EPSILON * (1 - 0.5**LENGTH)
    wanted = whole if per_trajectory else each
    assert abs(departed - wanted) < 5 * np.sqrt(0.25 / BATCH) and abs(each - whole) > 0.3


@pytest.mark.slow
def test_modes_agree():
    parity.check(made(batch=4, per_trajectory=True), steps=5).raise_if_different()
