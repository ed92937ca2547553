"""Products, distances and convolutions of the table against PyTorch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from port_operators import check_operator

from twinax.port._table import OPERATORS

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


@pytest.mark.parametrize(
    "name, shapes",
    [
        ("mm", [(3, 4), (4, 2)]),
        ("mm", [(3, 0), (0, 2)]),
        ("mm", [(0, 4), (4, 2)]),
        ("bmm", [(2, 3, 4), (2, 4, 5)]),
        ("mv", [(3, 4), (4,)]),
        ("dot", [(4,), (4,)]),
        ("vdot", [(4,), (4,)]),
        ("linear", [(2, 3, 4), (5, 4), (5,)]),
        ("linear", [(4,), (5, 4)]),
        ("addmm", [(2,), (3, 4), (4, 2)]),
        ("addmm", [(3, 2), (3, 4), (4, 2)]),
        ("addmv", [(3,), (3, 4), (4,)]),
        ("addbmm", [(3, 5), (2, 3, 4), (2, 4, 5)]),
        ("baddbmm", [(3, 5), (2, 3, 4), (2, 4, 5)]),
        ("addr", [(3, 4), (3,), (4,)]),
    ],
)
def test_products(name, shapes):
    arrays = [normal(*shape) for shape in shapes]
    check_operator(f"aten.{name}.default", *arrays)
    if name.startswith(("add", "badd")):
        check_operator(f"aten.{name}.default", *arrays, beta=0.5, alpha=-2)


def test_what_is_multiplied_by_zero_is_not_read():
    check_operator("aten.addmm.default", np.full(2, np.nan), normal(3, 4), normal(4, 2), gradients=False, beta=0)


def test_products_of_integers_stay_integers():
    check_operator("aten.mm.default", np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2))


def test_bilinear_product():
    check_operator("aten._trilinear.default", normal(5, 2), normal(4, 2, 3), normal(5, 3), [1, 3], [0], [1, 2], [2, 3])


P = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]


@pytest.mark.parametrize("p", P)
def test_distances(p):
    x, y = normal(2, 4, 3), normal(2, 5, 3)
    y[0, 1] = x[0, 2]  # zero distance
    y[1, 0, 1] = x[1, 0, 1]  # one entry of the difference is zero
    check_operator("aten._cdist_forward.default", x, y, p, None)
    check_operator("aten._pdist_forward.default", np.concatenate([x[0], x[0, :1]]), p)


def test_ties_of_the_largest_difference_have_its_whole_slope():
    check_operator("aten._cdist_forward.default", np.zeros((1, 3)), np.array([[1.0, -1.0, 0.5]]), float("inf"), None)


def test_no_rows_have_no_distances():
    check_operator("aten._cdist_forward.default", normal(0, 3), normal(2, 3), 2.0, None)
    check_operator("aten._pdist_forward.default", normal(1, 3), 2.0)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    "stride, padding, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (3, 1, 2, 1), (2, 0, 1, 4)]
)
def test_convolutions(axes, transposed, stride, padding, dilation, groups):
    x = normal(2, 4, *(9, 8, 7)[:axes])
    weight = normal(4, 6 // 2 * 2 // 2, *(3, 2, 3)[:axes]) if transposed else normal(8, 4 // groups, *(3, 2, 3)[:axes])
    bias = normal(weight.shape[1] * groups if transposed else 8)
    each = [[n] * axes for n in (stride, padding, dilation)]
    extra = [int(transposed and max(stride, dilation) > 1)] * axes
    check_operator("aten.convolution.default", x, weight, bias, *each, transposed, extra, groups)


@settings(max_examples=6)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(1, 2), st.integers(7, 10), st.integers(1, 2)
)
def test_convolution_windows_lie_as_in_pytorch(kernel, stride, padding, dilation, size, groups):
    weight = normal(2, 2 // groups, kernel, kernel)
    options = ([stride, 1], [padding, 1], [dilation, 1], False, [0, 0], groups)
    check_operator("aten.convolution.default", normal(1, 2, size, 7), weight, None, *options)


def test_one_number_stands_for_all_axes_and_no_bias():
    check_operator(
        "aten.convolution.default", normal(2, 3, 6, 5), normal(4, 3, 2, 2), None, [2], [1], [1], False, [0], 1
    )


def test_convolution_is_compiled_and_mapped_over_weights():
    convolution = OPERATORS["aten.convolution.default"].function
    x, weights = (np.float32(normal(2, 3, 6, 6)), np.float32(normal(5, 4, 3, 3, 3)))

    def one(weight):
        return convolution(jnp.asarray(x), weight, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)

    found = jax.jit(jax.vmap(one))(weights)
    expected = torch.stack([torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w)) for w in weights])
    np.testing.assert_allclose(found, expected, atol=2e-5)
