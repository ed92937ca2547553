"""Losses of distributional Q-learning: numbers worked out by hand, slow loops, gradients in both frameworks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.iqn._losses import (
    categorical_cross_entropy,
    double_q_target,
    greedy,
    of_actions,
    priorities,
    project_categorical,
    quantile_huber,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def everywhere(function, *arrays, rtol=1e-12):
    """The result in NumPy, after PyTorch and JAX were found to agree."""
    wanted = function(*arrays)
    for got in (function(*map(torch.tensor, arrays)), jax.jit(function)(*map(jnp.asarray, arrays))):
        assert tuple(got.shape) == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-12)
    return wanted


def gradients(function, *arrays):
    """Gradients of the sum by every array in PyTorch, after JAX was found to agree."""
    moving = [torch.tensor(x, requires_grad=True) for x in arrays]
    by_torch = torch.autograd.grad(function(*moving).sum(), moving, materialize_grads=True)
    by_jax = jax.jit(jax.grad(lambda given: function(*given).sum()))(list(map(jnp.asarray, arrays)))
    for a, b in zip(by_torch, by_jax, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    return [g.numpy() for g in by_torch]


def blocked_gradients(function, *arrays):
    """JAX's gradients of a function whose result in PyTorch was found to be detached."""
    assert not function(*(torch.tensor(x, requires_grad=True) for x in arrays)).requires_grad
    return jax.jit(jax.grad(lambda given: function(*given).sum()))(list(map(jnp.asarray, arrays)))


# Quantile Huber loss

# Two rows, two predicted and two target quantiles. In the first row target_j - predicted_i is
#   i = 0 (tau 1/4):  1/2, 3     huber 1/8, 5/2    weight 1/4, 1/4    products 1/32, 5/8     together 21/32
#   i = 1 (tau 3/4): -1/2, 2     huber 1/8, 3/2    weight 1/4, 3/4    products 1/32, 9/8     together 37/32
# so the mean over all four is 58/128, and the sum over i of the means over j is 58/64. The second row has
#   i = 0 (tau 1/2): -1, -4      huber 1/2, 7/2    weight 1/2, 1/2    products 1/4, 7/4      together 2
#   i = 1 (tau 0):    0, -3      huber 0, 5/2      weight 0, 1        products 0, 5/2        together 5/2
PREDICTED = np.array([[0.0, 1.0], [3.0, 2.0]])
TARGET = np.array([[0.5, 3.0], [2.0, -1.0]])
TAUS = np.array([[0.25, 0.75], [0.5, 0.0]])


def test_quantile_huber_by_hand(double_precision):
    np.testing.assert_allclose(everywhere(quantile_huber, PREDICTED, TARGET, TAUS), [58 / 128, 9 / 8], rtol=1e-14)
    summed = everywhere(lambda p, t, u: quantile_huber(p, t, u, reduction="sum"), PREDICTED, TARGET, TAUS)
    np.testing.assert_allclose(summed, [58 / 64, 9 / 4], rtol=1e-14)


def test_gradient_of_quantile_huber_by_hand(double_precision):
    # -weight * clip(difference, -1, 1), mean over j and then over i (two and two): first row
    #   i = 0: -(1/4 * 1/2 + 1/4 * 1) / 4 = -3/32      i = 1: -(1/4 * -1/2 + 3/4 * 1) / 4 = -5/32
    # second row
    #   i = 0: (1/2 + 1/2) / 4 = 1/4                    i = 1: (0 + 1) / 4 = 1/4
    # and the fractions get none: the weight is not differentiated.
    by_predicted, _, by_taus = gradients(quantile_huber, PREDICTED, TARGET, TAUS)
    np.testing.assert_allclose(by_predicted, [[-3 / 32, -5 / 32], [1 / 4, 1 / 4]], rtol=1e-14)
    np.testing.assert_array_equal(by_taus, np.zeros((2, 2)))


def test_kappa_is_where_the_loss_becomes_linear(double_precision):
    # With kappa 2 the first row's hubers are 1/8, 2 (3 - 1) = 4, 1/8, 2; weighted 1/32, 1, 1/32, 3/2: 82/32.
    # The mean over four is 82/128, divided by kappa 41/128.
    two = everywhere(lambda p, t, u: quantile_huber(p, t, u, 2.0), PREDICTED, TARGET, TAUS)
    assert two[0] == pytest.approx(41 / 128, rel=1e-14)
    # A small kappa is quantile regression: |tau - 1(d < 0)| |d|
    tiny = quantile_huber(PREDICTED[:1], TARGET[:1], TAUS[:1], 1e-9)
    assert tiny[0] == pytest.approx((0.25 * 0.5 + 0.25 * 3 + 0.25 * 0.5 + 0.75 * 2) / 4, rel=1e-8)


def slow_quantile_huber(predicted, target, taus, kappa, reduction):
    out = np.zeros(len(predicted))
    for b in range(len(predicted)):
        for i in range(predicted.shape[1]):
            for j in range(target.shape[1]):
                d = target[b, j] - predicted[b, i]
                huber = 0.5 * d * d if abs(d) <= kappa else kappa * (abs(d) - 0.5 * kappa)
                out[b] += abs(taus[b, i] - (1 if d < 0 else 0)) * huber / kappa / target.shape[1]
        out[b] /= predicted.shape[1] if reduction == "mean" else 1
    return out


@pytest.mark.parametrize(("kappa", "reduction"), [(0.3, "mean"), (1.0, "sum"), (2.5, "mean")])
def test_quantile_huber_is_its_loops(kappa, reduction, double_precision):
    # Different numbers of predicted and target quantiles: an axis taken for the other one would show.
    predicted, target, taus = rng(1).normal(size=(5, 4)), 2 * rng(2).normal(size=(5, 7)), rng(3).random((5, 4))
    got = everywhere(lambda p, t, u: quantile_huber(p, t, u, kappa, reduction), predicted, target, taus)
    np.testing.assert_allclose(got, slow_quantile_huber(predicted, target, taus, kappa, reduction), rtol=1e-12)
    by_predicted, *_ = gradients(lambda p, t, u: quantile_huber(p, t, u, kappa, reduction), predicted, target, taus)
    step = 1e-6 * rng(4).normal(size=predicted.shape)
    change = quantile_huber(predicted + step, target, taus, kappa, reduction) - quantile_huber(
        predicted - step, target, taus, kappa, reduction
    )
    np.testing.assert_allclose((2 * by_predicted * step).sum(1), change, rtol=1e-4, atol=1e-12)


def test_the_best_prediction_is_the_quantile():
    # The loss of a constant prediction against many targets is least near the targets' quantile at tau.
    target, grid = rng(0).normal(size=(1, 20_000)), np.linspace(-2, 2, 81)
    for tau, quantile in ((0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816)):
        losses = [quantile_huber(np.array([[q]]), target, np.array([[tau]]), 1e-3)[0] for q in grid]
        assert grid[int(np.argmin(losses))] == pytest.approx(quantile, abs=0.08)


def test_rows_do_not_mix():
    predicted, target, taus = rng(1).normal(size=(5, 4)), rng(2).normal(size=(5, 7)), rng(3).random((5, 4))
    together = quantile_huber(predicted, target, taus)
    for b in range(5):
        np.testing.assert_allclose(quantile_huber(*(x[b : b + 1] for x in (predicted, target, taus)))[0], together[b])


def test_fractions_in_double_do_not_widen_the_loss(double_precision):
    given = PREDICTED.astype(np.float32), TARGET.astype(np.float32), TAUS
    assert quantile_huber(*given).dtype == np.float32
    assert quantile_huber(*map(torch.tensor, given)).dtype == torch.float32
    assert jax.eval_shape(quantile_huber, *map(jnp.asarray, given)).dtype == jnp.float32


def test_options_of_quantile_huber_are_checked():
    for kappa in (0.0, -1.0, float("inf")):
        with pytest.raises(TwinaxError, match=f"is {kappa}"):
            quantile_huber(PREDICTED, TARGET, TAUS, kappa)
    with pytest.raises(UnknownName, match="unknown reduction 'means'; known: mean, sum"):
        quantile_huber(PREDICTED, TARGET, TAUS, reduction="means")


def test_priorities(double_precision):
    # First row: 1/2, 3, 1/2, 2; second row: 1, 4, 0, 3
    np.testing.assert_allclose(everywhere(priorities, PREDICTED, TARGET), [1.5, 2.0], rtol=1e-14)
    assert not any(np.any(g) for g in blocked_gradients(priorities, PREDICTED, TARGET))


# Choosing and valuing actions


def test_greedy_takes_the_largest_mean_and_the_first_of_equals(double_precision):
    values = np.array(
        [
            [[9.0, 4.0, 0.0], [-9.0, 4.0, 0.0], [1.0, 4.0, 0.0]],  # the largest single value is not the largest mean
            [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0]],  # all equal
            [[0.0, 5.0, 1.0], [0.0, -4.0, 1.0], [0.0, 2.0, 1.0]],  # the last two are equal
        ]
    )
    np.testing.assert_array_equal(everywhere(greedy, values), [1, 0, 1])
    assert greedy(values).dtype == np.int32 and greedy(torch.tensor(values)).dtype == torch.int32


def test_of_actions(double_precision):
    values, actions = rng(0).normal(size=(4, 3, 5)), np.array([4, 0, 2, 2], np.int32)
    picked = everywhere(of_actions, values, actions)
    np.testing.assert_array_equal(picked, np.stack([values[b, :, a] for b, a in enumerate(actions)]))
    (by_values,) = gradients(lambda v: of_actions(v, ops.like(actions, v)), values)
    assert by_values.sum() == 12 and all((by_values[b, :, a] == 1).all() for b, a in enumerate(actions))


def test_double_q_target(double_precision):
    # The online network takes action 0, then action 1; the target network, by itself, would do the opposite.
    online = np.array([[[1.0, 0.0], [3.0, 0.0]], [[1.0, 5.0], [3.0, 5.0]], [[0.0, 0.0], [0.0, 0.0]]])
    target = np.array([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
    target = np.stack([target, -target, target])
    rewards, discounts = np.array([1.0, -1.0, 7.0]), np.array([0.5, 0.1, 0.0])
    # 1 + (10, 30, 50) / 2; -1 - (20, 40, 60) / 10; and at the end of an episode the reward alone
    wanted = [[6.0, 16.0, 26.0], [-3.0, -5.0, -7.0], [7.0, 7.0, 7.0]]
    np.testing.assert_allclose(everywhere(double_q_target, online, target, rewards, discounts), wanted)
    assert not any(np.any(g) for g in blocked_gradients(double_q_target, online, target, rewards, discounts))


# Atoms


def test_cross_entropy(double_precision):
    target = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    probs = np.array([[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]])
    got = everywhere(categorical_cross_entropy, np.log(probs), target)
    np.testing.assert_allclose(got, [np.log(4), np.log(2)], rtol=1e-14)
    by_log_probs, _ = gradients(categorical_cross_entropy, np.log(probs), target)
    np.testing.assert_allclose(by_log_probs, -target)


SUPPORT = np.linspace(-2.0, 2.0, 5)  # -2, -1, 0, 1, 2


def slow_projection(probs, rewards, discounts, support):
    """The two neighbours of each moved atom, one atom at a time."""
    out, step = np.zeros_like(probs), (support[-1] - support[0]) / (len(support) - 1)
    for b in range(len(probs)):
        for k, z in enumerate(support):
            position = (min(max(rewards[b] + discounts[b] * z, support[0]), support[-1]) - support[0]) / step
            below, above = int(np.floor(position)), int(np.ceil(position))
            if below == above:
                out[b, below] += probs[b, k]
            else:
                out[b, below] += probs[b, k] * (above - position)
                out[b, above] += probs[b, k] * (position - below)
    return out


@pytest.mark.parametrize(
    ("reward", "discount", "wanted"),
    [
        (0.0, 1.0, [0.1, 0.2, 0.3, 0.25, 0.15]),  # nothing moves: exact at the atoms
        (1.0, 1.0, [0.0, 0.1, 0.2, 0.3, 0.4]),  # one atom up; the last two meet at the end
        (-1.0, 1.0, [0.3, 0.3, 0.25, 0.15, 0.0]),
        (0.5, 0.0, [0.0, 0.0, 0.5, 0.5, 0.0]),  # the end of an episode, half way between two atoms
        (-1.0, 0.0, [0.0, 1.0, 0.0, 0.0, 0.0]),
        (2.0, 0.0, [0.0, 0.0, 0.0, 0.0, 1.0]),  # at the ends and beyond
        (-2.0, 0.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
        (100.0, 0.9, [0.0, 0.0, 0.0, 0.0, 1.0]),
        (-100.0, 0.9, [1.0, 0.0, 0.0, 0.0, 0.0]),
        (0.0, 0.5, [0.0, 0.2, 0.525, 0.275, 0.0]),  # to -1, -1/2, 0, 1/2, 1
    ],
)
def test_projection_by_hand(reward, discount, wanted, double_precision):
    probs = np.array([[0.1, 0.2, 0.3, 0.25, 0.15]])
    got = everywhere(project_categorical, probs, np.array([reward]), np.array([discount]), SUPPORT)
    np.testing.assert_allclose(got, [wanted], rtol=1e-14, atol=1e-15)


def test_projection_is_its_loops(double_precision):
    support, draw = np.linspace(-10, 10, 51), rng(0)
    probs = draw.dirichlet(np.ones(51), 16)
    rewards, discounts = 6 * draw.normal(size=16), draw.choice([0.0, 0.9, 0.97], 16)
    got = everywhere(project_categorical, probs, rewards, discounts, support)
    np.testing.assert_allclose(got, slow_projection(probs, rewards, discounts, support), rtol=1e-9, atol=1e-12)
    assert not any(np.any(g) for g in blocked_gradients(project_categorical, probs, rewards, discounts, support))


reals = st.floats(-30, 30, allow_subnormal=False)


@settings(max_examples=60)
@given(
    weights=st.lists(st.floats(0.01, 1), min_size=2, max_size=12),
    reward=reals,
    discount=st.floats(0, 1),
    low=reals,
    width=st.floats(0.1, 50),
)
def test_projection_keeps_the_mass_and_inside_the_support_the_mean(weights, reward, discount, low, width):
    probs, support = np.array([weights]) / sum(weights), np.linspace(low, low + width, len(weights))
    out = project_categorical(probs, np.array([reward]), np.array([discount]), support)
    assert (out >= 0).all()
    assert out.sum() == pytest.approx(1.0, abs=1e-12)
    moved = np.clip(reward + discount * support, support[0], support[-1])
    assert (out @ support)[0] == pytest.approx((probs @ moved)[0], abs=1e-9)
    # In single precision the mass is kept too, whatever the rounding of the support.
    single = (x.astype(np.float32) for x in (probs, np.array([reward]), np.array([discount]), support))
    assert project_categorical(*single).sum() == pytest.approx(1.0, abs=1e-5)
