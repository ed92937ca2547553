"""Normalisation, recurrent layers, Fourier transforms and gradients' operators of the table against PyTorch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from port_operators import check_operator, doubles

from twinax.errors import TwinaxError
from twinax.port._evaluate import run_node
from twinax.port._program import Node
from twinax.port._table import OPERATORS

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm(affine):
    for shape in ([5], [4, 5]):
        weight, bias = (normal(*shape), normal(*shape)) if affine else (None, None)
        check_operator(
            "aten.native_layer_norm.default", 100 + normal(3, 4, 5), shape, weight, bias, 1e-5, tolerance=1e-10
        )


def test_layer_norm_of_a_large_mean_in_single_precision():
    x = np.float32(1e4 + normal(8, 64))
    found = OPERATORS["aten.native_layer_norm.default"].function(jnp.asarray(x), (64,), None, None, 1e-5)[0]
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), (64,))
    np.testing.assert_allclose(found, expected, atol=5e-3)  # a variance of one pass would be wrong by more than one


@pytest.mark.parametrize("affine", [False, True])
def test_group_norm(affine):
    weight, bias = (normal(6), normal(6)) if affine else (None, None)
    check_operator(
        "aten.native_group_norm.default", normal(2, 6, 3, 2), weight, bias, 2, 6, 6, 3, 1e-5, tolerance=1e-11
    )


def statistics():
    return normal(3), RNG.uniform(0.5, 2, 3)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 5), (2, 3, 4, 2)])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(shape, affine):
    x, (mean, var) = normal(*shape), statistics()
    weight, bias = (normal(3), normal(3)) if affine else (None, None)
    name = "aten._native_batch_norm_legit"
    mean, var = torch.from_numpy(mean), torch.from_numpy(var)
    check_operator(f"{name}_functional.default", x, weight, bias, mean, var, True, 0.2, 1e-5, gradients=False)
    check_operator(f"{name}.no_stats", x, weight, bias, True, 0.2, 1e-5, tolerance=1e-11)
    check_operator(f"{name}_no_training.default", x, weight, bias, mean, var, 0.2, 1e-5, gradients=False)
    check_operator(f"{name}.default", x, weight, bias, mean, var, False, 0.2, 1e-5, gradients=False)


def layers(gates, inputs, hidden, number, directions, biases, projection=0):
    made = []
    out = projection or hidden
    for level in range(number):
        for _ in range(directions):
            made += [normal(gates * hidden, inputs if level == 0 else out * directions), normal(gates * hidden, out)]
            made += [normal(gates * hidden), normal(gates * hidden)] if biases else []
            made += [normal(projection, hidden)] if projection else []
    return made


@pytest.mark.parametrize("name, gates", [("gru", 3), ("lstm", 4), ("rnn_tanh", 1), ("rnn_relu", 1)])
@pytest.mark.parametrize(
    "number, directions, biases, batch_first, length",
    [(1, 1, True, False, 1), (2, 2, True, True, 4), (2, 1, False, False, 3)],
)
def test_recurrent_layers(name, gates, number, directions, biases, batch_first, length):
    x = normal(2, length, 3) if batch_first else normal(length, 2, 3)
    state = normal(number * directions, 2, 4)
    state = [state, normal(*state.shape)] if name == "lstm" else state
    weights = layers(gates, 3, 4, number, directions, biases)
    options = (biases, number, 0.0, True, directions == 2, batch_first)
    check_operator(f"aten.{name}.input", x, state, weights, *options, tolerance=1e-11)


def test_projected_lstm():
    weights = layers(4, 3, 4, 2, 2, True, projection=2)
    states = [normal(4, 2, 2), normal(4, 2, 4)]
    check_operator(
        "aten.lstm.input", normal(3, 2, 3), states, weights, True, 2, 0.0, False, True, False, tolerance=1e-11
    )


@pytest.mark.parametrize("name, gates, projection", [("gru", 3, 0), ("lstm", 4, 0), ("lstm", 4, 2), ("rnn_tanh", 1, 0)])
def test_the_program_does_not_grow_with_the_length(name, gates, projection):
    layer = OPERATORS[f"aten.{name}.input"].function
    weights = [jnp.asarray(one) for one in layers(gates, 3, 4, 1, 1, True, projection)]
    state = jnp.zeros((1, 2, projection or 4))
    state = (state, jnp.zeros((1, 2, 4))) if name == "lstm" else state

    def equations(length):
        def total(x):
            return layer(x, state, weights, True, 1, 0.0, True, False, False)[0].sum()

        return count(jax.make_jaxpr(jax.grad(total))(jnp.zeros((length, 2, 3))).jaxpr)

    assert equations(50) == equations(5)


def count(jaxpr):
    """Equations, those of inner programs too."""
    inner = [part for equation in jaxpr.eqns for part in jax.core.jaxprs_in_params(equation.params)]
    return len(jaxpr.eqns) + sum(count(getattr(part, "jaxpr", part)) for part in inner)


def test_dropout_inside_a_recurrent_layer_is_refused():
    with pytest.raises(TwinaxError, match="between 2 layers"):
        OPERATORS["aten.gru.input"].function(None, None, (), True, 2, 0.1, True, False, False)


@pytest.mark.parametrize("normalization", [0, 1, 2])
def test_fourier_transforms(normalization):
    x = normal(3, 4, 6)
    for onesided in (False, True):
        check_operator("aten._fft_r2c.default", x, [1, 2], normalization, onesided, gradients=False)
    z = x + 1j * normal(3, 4, 6)
    check_operator("aten._fft_c2c.default", z, [0, 2], normalization, True)
    check_operator("aten._fft_c2c.default", z, [2], normalization, False)
    for last in (10, 11):
        check_operator("aten._fft_c2r.default", z, [1, 2], normalization, last)


def test_complex_numbers_are_pairs():
    check_operator("aten.view_as_complex.default", normal(3, 2), gradients=False)
    check_operator("aten.view_as_real.default", normal(3) + 1j * normal(3))


def saved(shape, *axes):
    x = normal(*shape)
    return x, x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def test_gradients_as_operators():
    def check(name, *arguments):
        check_operator(f"aten.{name}.default", *arguments, gradients=False)

    every = [True, True, True]
    x, mean, rstd = saved((3, 4, 5), 2)
    check("native_layer_norm_backward", normal(3, 4, 5), x, [5], mean, rstd, normal(5), normal(5), every)
    x, mean, rstd = saved((2, 3, 8), 2)
    groups = (mean[..., 0], rstd[..., 0], normal(6), 2, 6, 4, 3, every)
    check("native_group_norm_backward", normal(2, 6, 4), x.reshape(2, 6, 4), *groups)
    x, mean, rstd = saved((4, 3, 5), 0, 2)
    rest = (normal(3), *statistics(), mean.reshape(-1), rstd.reshape(-1))
    for train in (True, False):
        check("native_batch_norm_backward", normal(4, 3, 5), x, *rest, train, 1e-5, every)
    options = ([2, 1], [1, 0], [1, 1], False, [0, 0], 2, every)
    check("convolution_backward", normal(2, 6, 4, 4), normal(2, 4, 7, 6), normal(6, 2, 3, 3), [6], *options)
    options = ([2, 1], [1, 0], [1, 1], True, [1, 0], 2, every)
    check("convolution_backward", normal(2, 6, 9, 5), normal(2, 4, 5, 3), normal(4, 3, 2, 3), [6], *options)
    check("avg_pool2d_backward", normal(2, 3, 3, 2), normal(2, 3, 6, 4), [2, 2], [2, 2], [0, 0], False, True, None)
    check("_adaptive_avg_pool2d_backward", normal(2, 3, 4, 3), normal(2, 3, 6, 5))
    x, pool = torch.from_numpy(normal(2, 3, 6, 5)), ([3, 2], [2, 1], [1, 1], [1, 1], False)
    found, index = torch.ops.aten.max_pool2d_with_indices(x, *pool)
    check("max_pool2d_with_indices_backward", normal(*found.shape), x, *pool, index)
    for scaled in (False, True):
        check("embedding_dense_backward", normal(2, 4, 3), RNG.integers(0, 4, (2, 4)), 5, 2, scaled)


def test_gradients_that_nobody_asked_for_are_none():
    arguments = (normal(1, 2, 3), normal(1, 2, 4), normal(2, 2, 2), [2], [1], [0], [1], False, [0], 1)
    node = Node("node", "aten.convolution_backward.default", (), {}, (None, "float64", None), None)
    with doubles():
        found = run_node(node, [*map(jnp.asarray, arguments[:3]), *arguments[3:], (False, True, False)], {})
    assert found[0] is None and found[1].shape == (2, 2, 2) and found[2] is None
