"""Weights that make up for drawing some objects of a replay more often than others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from twinax.envs import GridReward, Hypergrid
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions, ReplayOptions, problem
from twinax.gflownet.objectives import log_z_estimates
from twinax.noise import numpy_draws

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))
CELLS = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2).astype(np.int32)


def made_of(file=None, objective="trajectory_balance", batch_size=0, draws=8192, **options):
    return problem(
        GRID,
        objective,
        batch_size=batch_size,
        policy=PolicyOptions(hidden=(8,), backward="uniform"),
        metrics=MetricOptions(fifo=40, samples=32),
        replay=ReplayOptions(size=8192, batch_size=draws, file=file, **options),
        log_z=(1.0,),
    )


def with_errors(made, number=16, state=None):
    """A state whose objects have different errors: those of far cells are larger."""
    state = state or made.init(0)
    replay = state.carry.replay
    far = np.exp(0.5 * replay.objects.position.sum(-1))
    values = np.where(np.arange(8192) < number, far, 77.0).astype(np.float32)
    given = values if made.replay.priority == "loss" else replay.values
    return dataclasses.replace(
        state, carry=dataclasses.replace(state.carry, replay=dataclasses.replace(replay, values=given))
    )


@pytest.mark.parametrize("objective", ["trajectory_balance", "log_partition_variance", "maximum_likelihood"])
def test_the_weighted_loss_of_uneven_draws_is_that_of_even_ones(tmp_path, objective):
    np.savez(tmp_path / "known.npz", position=CELLS)
    found, error = {}, 0.0
    for name, options in {
        "even": {},
        "weighted": {"priority": "loss", "correction": 1.0},
        "uneven": {"priority": "loss", "correction": 0.0},
    }.items():
        made = made_of(str(tmp_path / "known.npz"), objective, **options)
        state = with_errors(made)
        batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]
        found[name] = float(made.loss(state.networks, batch)[0])
        if name == "weighted":
            # The deviation of the ratio of two means, from how each trajectory's loss lies about it
            s = made.scores(state.networks, batch)
            alone = {
                "trajectory_balance": lambda s: np.square(log_z_estimates(s) - s.log_z),
                "log_partition_variance": lambda s: np.square(log_z_estimates(s) - s.mean(log_z_estimates(s))),
                "maximum_likelihood": lambda s: -s.log_pf.sum(0),
            }[objective](s)
            np.testing.assert_allclose(s.mean(alone), found[name], rtol=1e-4)
            error = (s.weight * (alone - found[name])).std() / s.weight.mean() / np.sqrt(len(alone))
    assert abs(found["weighted"] - found["even"]) < 4 * np.sqrt(2) * error
    assert abs(found["uneven"] - found["even"]) > 6 * np.sqrt(2) * error, "or the test shows nothing"


def test_fresh_trajectories_count_once_and_others_by_how_often_they_are_drawn():
    made = made_of(batch_size=16, draws=5, priority="loss", start=3)
    state = made.init(0)
    draws = numpy_draws(made.draws(), 0, 0)
    carry, batch = made.collect(state, draws, made.inputs())
    held = int(carry.replay.held)
    assert held > 3
    np.testing.assert_allclose(batch.weight, 1.0, rtol=1e-6)  # whatever has not been trained on is drawn evenly

    state = with_errors(made, held, dataclasses.replace(state, carry=carry))
    later, batch = made.collect(state, numpy_draws(made.draws(), 0, 1), made.inputs())
    values, number = later.replay.values, int(later.replay.held)
    slots = later.replay.draw(made.replay, numpy_draws(made.draws(), 0, 1)["replay/choose"][0])
    assert (later.replay.at(slots).position == batch.last.position[16:]).all()
    chance = values[slots] / values[:number].sum()
    np.testing.assert_allclose(batch.weight, [*np.ones(16), *(number * chance) ** -0.1], rtol=1e-5)
    assert np.ptp(batch.weight) > 0.1
    s = made.scores(state.networks, batch)
    squares = np.square(log_z_estimates(s) - s.log_z)
    np.testing.assert_allclose(made.loss(state.networks, batch)[0], np.average(squares, weights=s.weight), rtol=1e-5)


def test_before_the_start_all_count_once():
    made = made_of(batch_size=4, draws=3, priority="loss", start=8000)
    state = with_errors(made)
    batch = made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1]
    assert batch.weight.tolist() == [1.0] * 7


def test_other_priorities_have_no_weights():
    made = made_of(batch_size=4, draws=3, priority="reward")
    state = made.init(0)
    assert made.collect(state, numpy_draws(made.draws(), 0, 0), made.inputs())[1].weight is None


def test_a_bad_correction_is_said():
    with pytest.raises(TwinaxError, match="correction is 1.5; it must be between 0 and 1"):
        ReplayOptions(correction=1.5)
