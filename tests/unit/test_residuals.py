"""Functions of residuals by their golden values, and where objectives put their signs."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import Scores, objectives
from twinax.gflownet._residuals import RESIDUALS, residual

AT = np.array([-2.0, -0.5, 0.5, 2.0])
GOLDEN = {
    ("squared", 1.0): (4, 0.25, 0.25, 4),
    ("half", 1.0): (2, 0.125, 0.125, 2),
    ("shifted_cosh", 1.0): (5.524391382, 0.255251930, 0.255251930, 5.524391382),
    ("linex", 1.0): (1.135335283, 0.106530660, 0.148721271, 4.389056099),
    ("linex", 0.5): (1.471517765, 0.115203132, 0.136101667, 2.873127314),
    ("huber", 1.0): (1.5, 0.125, 0.125, 1.5),
}


@pytest.mark.parametrize(("name", "slope"), GOLDEN)
def test_golden_values(name, slope):
    np.testing.assert_allclose(residual(name, slope)(AT), GOLDEN[name, slope], atol=6e-10)


def test_every_function_has_a_golden_value():
    assert {name for name, _ in GOLDEN} == set(RESIDUALS)


@pytest.mark.parametrize("name", RESIDUALS)
def test_large_residuals_stay_finite(name):
    values = residual(name)(np.array([-1e4, 1e4], np.float32))
    assert np.isfinite(values).all() and (values > 0).all()


@pytest.mark.parametrize("slope", [1.0, -0.5])
@pytest.mark.parametrize("name", RESIDUALS)
def test_gradients_of_large_residuals_lead_back_to_zero(name, slope):
    """log Z begins at 0 and rewards may be e^-1000: a gradient of the wrong sign, or of 0, would never get there."""
    for t in (-1000.0, -81.0, 81.0, 1000.0):
        gradient = float(jax.grad(residual(name, slope))(jnp.float32(t)))
        assert np.sign(gradient) == np.sign(t) and np.isfinite(gradient)


def scores(log_z=0.0, log_reward=0.0, gain=0.0) -> Scores:
    grid = np.zeros((2, 3))
    grid[0] = gain
    flow = np.zeros((2, 3))
    flow[0] = log_z
    fields = dict.fromkeys(("log_flow", "state_log_reward", "state_log_energy", "log_pf_stop", "logit"), flow)
    return Scores(
        log_pf=grid,
        log_pb=np.zeros((2, 3)),
        log_reward=np.full(3, log_reward),
        valid=np.ones((2, 3), bool),
        log_z=np.asarray(log_z),
        log_inflow=flow,
        log_outflow=np.zeros((2, 3)),
        log_final_flow=np.zeros((2, 3)),
        **fields,
    )


@pytest.mark.parametrize("name", ["trajectory_balance", "detailed_balance", "subtrajectory_balance"])
def test_linex_tells_too_much_from_too_little(name):
    """The model is on the left: a flow that is too large weighs more than one that is too small."""
    made = objectives.OBJECTIVES[name](residual_loss="linex")
    much, little = (float(made(scores(log_z=sign * 2.0))[0]) for sign in (1, -1))
    assert much > 1.5 * little
    even = objectives.OBJECTIVES[name]()
    assert float(even(scores(log_z=2.0))[0]) == pytest.approx(float(even(scores(log_z=-2.0))[0]))


def test_the_variance_has_the_model_on_the_left_as_well():
    """log P_F above the mean is a model that says too much."""
    gains = np.array([3.0, 0.0, 0.0])
    made = objectives.LogPartitionVariance(residual_loss="linex")
    much, little = (float(made(scores(gain=sign * gains))[0]) for sign in (1, -1))
    assert much > little


def test_unknown_names_and_slopes_are_refused():
    with pytest.raises(UnknownName, match="residual loss 'cube'"):
        objectives.TrajectoryBalance(residual_loss="cube")
    with pytest.raises(TwinaxError, match="the slope of linex is 0"):
        objectives.DetailedBalance(residual_loss="linex", linex_slope=0.0)
    with pytest.raises(TwinaxError, match="terminal_weight is -1"):
        objectives.DetailedBalance(terminal_weight=-1.0)


def test_a_likelihood_has_no_residual():
    with pytest.raises(TwinaxError, match="residual_loss is huber, but maximum_likelihood has no residual"):
        objectives.OBJECTIVES["maximum_likelihood"](residual_loss="huber")


def test_the_last_transition_can_weigh_more():
    s = scores(log_z=1.0, log_reward=3.0)
    one, many = (objectives.DetailedBalance(terminal_weight=w)(s) for w in (1.0, 25.0))
    assert many[1].parts["terminal_loss"] == pytest.approx(25 * one[1].parts["terminal_loss"])
    assert many[1].parts["inner_loss"] == pytest.approx(one[1].parts["inner_loss"])
    assert float(many[0]) == pytest.approx(sum(float(part) for part in many[1].parts.values()))


def test_targets_are_read_at_the_next_state_alone():
    s = scores(log_z=1.0)
    target = dataclasses.replace(s, log_flow=s.log_flow + 7.0)
    moved = dataclasses.replace(s, target=target)
    # Of two transitions the first reads the flow of state 1, the last one the reward.
    residuals = np.array([1.0 - (0.0 + 7.0), 0.0])
    assert float(objectives.detailed_balance(moved)[0]) == pytest.approx((residuals**2).mean())
