"""Noisy linear layers: initial distribution, order of the draws, gradients, and one output in three frameworks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import tree
from twinax.errors import TwinaxError
from twinax.networks import NoisyLinear, as_torch_module, num_parameters


def rng(seed=0):
    return np.random.default_rng(seed)


def wide(network):
    return jtu.tree_map(lambda x: np.asarray(x, np.float64), network)


def in_torch(network, gradient=False):
    return jtu.tree_map(lambda x: torch.tensor(np.asarray(x), requires_grad=gradient), network)


def in_jax(network):
    return jtu.tree_map(jnp.asarray, network)


def layer(inputs=5, outputs=3):
    """A float64 layer whose standard deviations are all different."""
    made = wide(NoisyLinear.init(rng(), inputs, outputs))
    sigma = rng(7)
    return NoisyLinear(made.weight, made.bias, sigma.random((outputs, inputs)), sigma.random(outputs))


def slow(net, x, noise):
    """The layer, one number at a time."""
    outputs, inputs = net.weight.shape
    y = np.zeros((len(x), outputs))
    for b in range(len(x)):
        for o in range(outputs):
            y[b, o] = net.bias[o] + net.bias_sigma[o] * noise[outputs * inputs + o]
            for i in range(inputs):
                y[b, o] += x[b, i] * (net.weight[o, i] + net.weight_sigma[o, i] * noise[o * inputs + i])
    return y


@pytest.mark.parametrize("inputs", [3, 64, 250])
def test_initial_distribution(inputs):
    net = NoisyLinear.init(rng(), inputs, 400)
    bound = np.sqrt(3 / inputs)
    for mean in (net.weight, net.bias):
        assert mean.dtype == np.float32
        assert np.abs(mean).max() <= bound + 1e-6
        # Both ends are reached, so it is symmetric, and the standard deviation is that of a uniform variable.
        assert mean.min() < -0.97 * bound and mean.max() > 0.97 * bound
        assert mean.std() == pytest.approx(bound / np.sqrt(3), rel=0.08)
        assert abs(mean.mean()) < 5 * bound / np.sqrt(3 * mean.size)
    for sigma, mean in ((net.weight_sigma, net.weight), (net.bias_sigma, net.bias)):
        assert sigma.shape == mean.shape and sigma.dtype == np.float32
        assert (sigma == np.float32(0.017)).all()
    assert (NoisyLinear.init(rng(), 3, 2, sigma=0.5).bias_sigma == 0.5).all()


def test_sizes_and_names():
    net = NoisyLinear.init(rng(), 250, 4)
    assert net.noise_size == 250 * 4 + 4
    assert num_parameters(net) == 2 * net.noise_size
    assert list(tree.named_leaves(net)) == ["weight", "bias", "weight_sigma", "bias_sigma"]
    assert list(as_torch_module(net).state_dict()) == list(tree.named_leaves(net))
    members = jtu.tree_map(lambda w: np.stack([w, w]), net)
    assert members.noise_size == net.noise_size  # of one member
    with pytest.raises(TwinaxError, match="0 inputs and 4 outputs"):
        NoisyLinear.init(rng(), 0, 4)


def test_without_noise_it_is_its_means():
    net, x = layer(), rng(1).normal(size=(4, 5))
    np.testing.assert_allclose(net(x), x @ net.weight.T + net.bias, rtol=1e-14)
    np.testing.assert_array_equal(net(x, np.zeros(net.noise_size)), net(x))
    assert np.abs(net(x, np.ones(net.noise_size)) - net(x)).min() > 1e-3


def test_equal_outputs_in_every_framework(double_precision):
    net, x = layer(), rng(1).normal(size=(4, 5))
    noise = rng(2).normal(size=net.noise_size)
    wanted = slow(net, x, noise)
    np.testing.assert_allclose(net(x, noise), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(in_torch(net)(torch.tensor(x), torch.tensor(noise)), wanted, rtol=1e-12, atol=1e-12)
    in_one_program = jax.jit(lambda n, x, e: n(x, e))(in_jax(net), jnp.asarray(x), jnp.asarray(noise))
    np.testing.assert_allclose(in_one_program, wanted, rtol=1e-12, atol=1e-12)


def test_gradients_by_means_and_deviations(double_precision):
    net, x = layer(), rng(1).normal(size=(4, 5))
    noise = rng(2).normal(size=net.noise_size)
    parameters = in_torch(net, gradient=True)
    (parameters(torch.tensor(x), torch.tensor(noise)) ** 2).sum().backward()
    grads = jax.jit(jax.grad(lambda n: (n(jnp.asarray(x), jnp.asarray(noise)) ** 2).sum()))(in_jax(net))
    # dL/dy = 2 y; the deviation's gradient is the mean's times the draw
    out = 2 * slow(net, x, noise)
    by_weight, by_bias, e, f = out.T @ x, out.sum(0), noise[:15].reshape(3, 5), noise[15:]
    for name, wanted in {
        "weight": by_weight,
        "bias": by_bias,
        "weight_sigma": by_weight * e,
        "bias_sigma": by_bias * f,
    }.items():
        np.testing.assert_allclose(getattr(parameters, name).grad, wanted, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(getattr(grads, name), wanted, rtol=1e-12, atol=1e-12)
        assert np.abs(wanted).min() > 0


def test_deviations_get_no_gradient_without_noise():
    grads = jax.jit(jax.grad(lambda n: (n(jnp.ones((2, 5))) ** 2).sum()))(in_jax(NoisyLinear.init(rng(), 5, 3)))
    assert not np.any(grads.weight_sigma) and not np.any(grads.bias_sigma)
    assert np.any(grads.weight) and np.any(grads.bias)


def test_one_draw_serves_the_batch_and_has_the_right_variance():
    net, x = layer(), rng(1).normal(size=(1, 5))
    rows = net(np.repeat(x, 3, 0), rng(2).normal(size=net.noise_size))
    np.testing.assert_allclose(rows[1:], rows[:1].repeat(2, 0), rtol=1e-14)
    # var y = sum S^2 x^2 + s^2; independent for every output
    draws = rng(3).normal(size=(4000, net.noise_size))
    y = np.array([net(x, draw)[0] for draw in draws])
    np.testing.assert_allclose(y.var(0), (net.weight_sigma**2) @ (x[0] ** 2) + net.bias_sigma**2, rtol=0.1)
    assert np.abs(np.corrcoef(y.T) - np.eye(3)).max() < 0.06


@pytest.mark.parametrize("convert", [lambda t: t, in_torch, in_jax], ids=["numpy", "torch", "jax"])
def test_the_weights_decide_the_precision(convert, double_precision):
    net, x, noise = NoisyLinear.init(rng(), 5, 3), rng(1).normal(size=(4, 5)), rng(2).normal(size=18)
    y = convert(net)(convert(x), convert(noise))
    assert "float32" in str(y.dtype)
    y = convert(wide(net))(convert(x.astype(np.float32)), convert(noise.astype(np.float32)))
    assert "float64" in str(y.dtype)


def test_members_on_a_leading_axis(double_precision):
    nets = [wide(NoisyLinear.init(rng(i), 5, 3)) for i in range(4)]
    x, noise = rng(1).normal(size=(4, 6, 5)), rng(2).normal(size=(4, 18))
    wanted = np.stack([net(x[i], noise[i]) for i, net in enumerate(nets)])
    members = jtu.tree_map(lambda *leaves: np.stack(leaves), *nets)
    out = jax.jit(jax.vmap(lambda n, x, e: n(x, e)))(in_jax(members), jnp.asarray(x), jnp.asarray(noise))
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(17,), (19,), (18, 1)])
def test_a_draw_of_the_wrong_size_is_refused(unchecked, shape):
    with pytest.raises(TwinaxError, match=r"takes \(18,\)"):
        layer()(np.ones((4, 5)), np.zeros(shape))
