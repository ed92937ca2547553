"""Operators that reduce, accumulate and order entries, against PyTorch in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from port_operators import check_operator

from twinax.port._evaluate import run_node
from twinax.port._program import Node

RNG = np.random.default_rng(1)
INF, NAN = np.inf, np.nan
X = RNG.normal(size=(2, 3, 4))
TIES = np.array([[3.0, 1.0, 3.0, 0.0], [0.0, 0.0, -1.0, -1.0], [2.0, 2.0, 2.0, 2.0]])
WHOLE, BYTES = np.array([[4, -2, 4], [0, 1, -2]]), np.array([[250, 3], [10, 9]], np.uint8)
TRUTH = np.array([[True, False, True], [False, False, False]])
NUMBER = np.array(0.7)
SPECIAL = np.array([[1.0, NAN, 3.0], [-INF, -INF, -INF], [INF, 1.0, -INF], [-INF, 0.0, -INF]])
SINGLE = 1e-6
AXES = [[0], [-1], [0, 2], [-2, 1][:1], [0, 1, 2]]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_and_means(axes, keepdim):
    for name in ("sum.dim_IntList", "mean.dim", "amax", "amin", "logsumexp.default"):
        name = name if "." in name else f"{name}.default"
        check_operator(f"aten.{name}", X, axes, keepdim)
    for order in (2, 1, 3, 1.5, INF, -INF, 0):
        check_operator("aten.linalg_vector_norm.default", X, order, axes, keepdim)
    for correction in (1, 0, 2, None):
        check_operator("aten.var.correction", X, axes, correction=correction, keepdim=keepdim, gradients=axes != [0])
        check_operator("aten.std.correction", X, axes, correction=correction, keepdim=keepdim, gradients=axes != [0])


def test_over_all_axes():
    for x in (X, NUMBER):
        for name in ("sum", "mean", "prod", "max", "min", "median", "any", "all"):
            check_operator(f"aten.{name}.default", x)
        for name in ("sum.dim_IntList", "mean.dim", "amax.default", "any.dims", "all.dims"):
            check_operator(f"aten.{name}", x, [])
        check_operator("aten.sum.dim_IntList", x, None)
        check_operator("aten.mean.dim", x, None, True)
        check_operator("aten.linalg_vector_norm.default", x)
    check_operator("aten.var.correction", X)
    check_operator("aten.var.dim", X, None, False)
    check_operator("aten.var.dim", X, [1])
    for name in ("var_mean", "std_mean"):
        check_operator(f"aten.{name}.correction", X, [1], correction=1, keepdim=True)
        check_operator(f"aten.{name}.correction", X, None, correction=0)


@pytest.mark.parametrize("axis", [0, -1])
def test_a_number_may_be_said_to_have_an_axis(axis):
    for name in (
        "max.dim",
        "min.dim",
        "argmax",
        "argmin",
        "cumsum",
        "cumprod",
        "logcumsumexp",
        "cummax",
        "cummin",
        "sort",
    ):
        check_operator(f"aten.{name}" if "." in name else f"aten.{name}.default", NUMBER, axis)
    for name in ("sum.dim_IntList", "mean.dim", "amax.default", "logsumexp.default"):
        check_operator(f"aten.{name}", NUMBER, [axis], True)
    for name in ("_softmax", "_log_softmax"):
        check_operator(f"aten.{name}.default", NUMBER, axis, False)
    for name in ("max.dim", "min.dim", "prod.dim_int", "any.dim", "all.dim", "median.dim"):
        check_operator(f"aten.{name}", NUMBER, axis)
    check_operator("aten.topk.default", NUMBER, 1, axis)
    check_operator("aten.kthvalue.default", NUMBER, 1, axis)


def test_over_nothing():
    nothing = np.zeros((3, 0))
    for name in ("sum.dim_IntList", "mean.dim", "logsumexp.default", "any.dims", "all.dims"):
        check_operator(f"aten.{name}", nothing, [1])
    check_operator("aten.prod.dim_int", nothing, 1)
    check_operator("aten.linalg_vector_norm.default", nothing, 2, [1])
    check_operator("aten.linalg_vector_norm.default", np.zeros((3, 4)), 2, [1])
    for name in ("var", "std"):
        check_operator(f"aten.{name}.correction", nothing, [1], correction=1)
        check_operator(f"aten.{name}.correction", np.ones((3, 1)), [1], correction=1)
        check_operator(f"aten.{name}.correction", np.ones((3, 2)), [1], correction=3, gradients=False)
    for name in ("_softmax", "_log_softmax"):
        check_operator(f"aten.{name}.default", nothing, 1, False)
        check_operator(f"aten.{name}.default", nothing, 0, False)
    for name in ("cumsum", "cumprod", "sort", "amax"):
        check_operator(f"aten.{name}.default", nothing, [0] if name == "amax" else 1)


def test_a_standard_deviation_of_what_does_not_vary():
    check_operator("aten.std.correction", TIES, [1], correction=1)
    check_operator("aten.std_mean.correction", TIES, [1], correction=0)


@pytest.mark.parametrize("order", [2, 1, 3, 0.5, 1.5, INF, -INF, 0, -1])
def test_norms_with_zeros(order):
    rows = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, -2.0], [3.0, -3.0, 1.0]])
    check_operator("aten.linalg_vector_norm.default", rows, order, [1], gradients=order not in (-1, 0.5))
    check_operator("aten.linalg_vector_norm.default", rows[2], order)


def test_gradients_at_ties():
    for name in ("amax", "amin"):
        check_operator(f"aten.{name}.default", TIES, [1])
    for name in ("max.dim", "min.dim"):
        for axis in (0, 1, -1):
            check_operator(f"aten.{name}", TIES, axis)
            check_operator(f"aten.{name}", X, axis, True)
    for name in ("max", "min", "median"):
        check_operator(f"aten.{name}.default", TIES)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_where_extremes_stand(axis):
    for name in ("argmax", "argmin"):
        for x in (TIES, WHOLE, SPECIAL):
            for keepdim in (False, True):
                check_operator(f"aten.{name}.default", x, axis, keepdim)


def test_products_with_zeros():
    rows = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]])
    check_operator("aten.prod.dim_int", rows, 1)
    check_operator("aten.prod.dim_int", rows, 0, True)
    check_operator("aten.prod.default", rows)
    check_operator("aten.cumprod.default", rows, 1)


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax(name):
    for axis in (0, 1, -1):
        check_operator(f"aten.{name}.default", X * 5, axis, False)
    check_operator(f"aten.{name}.default", SPECIAL, 1, False, gradients=False)
    check_operator(f"aten.{name}.default", np.array([[-INF, 0.0, 1.0], [1000.0, 0.0, -1000.0]]), 1, False)
    check_operator(f"aten.{name[1:]}.int", X, 1)


def test_a_safe_softmax():
    check_operator("aten._safe_softmax.default", np.array([[-INF, -INF], [0.5, -INF], [1.0, 2.0]]), 1)


def test_logsumexp_of_special_numbers():
    rows = np.array([[-INF, -INF, -INF], [-INF, 0.0, 1.0], [1000.0, 1000.0, 0.0]])
    check_operator("aten.logsumexp.default", rows[1:], [1])
    check_operator("aten.logsumexp.default", SPECIAL, [1], gradients=False)
    check_operator("aten.logsumexp.default", WHOLE, [1], tolerance=SINGLE)


def test_a_row_of_minus_infinity_has_no_slope():
    node = Node("node", "aten.logsumexp.default", (), {}, ("float32",), None)
    slope = jax.grad(lambda x: jnp.where(x[0] > -1, run_node(node, (x, (0,)), {}), 0.0).sum())(jnp.full(3, -jnp.inf))
    assert np.array_equal(slope, np.zeros(3))


def test_nan_and_infinity():
    for name in ("amax", "amin", "sum.dim_IntList", "mean.dim", "linalg_vector_norm"):
        rest = (2, [1]) if "norm" in name else ([1],)
        check_operator(f"aten.{name}" if "." in name else f"aten.{name}.default", SPECIAL, *rest, gradients=False)
    for name in ("max.dim", "min.dim", "any.dim", "all.dim", "prod.dim_int", "median.dim"):
        check_operator(f"aten.{name}", SPECIAL if name != "median.dim" else SPECIAL[:1], 1, gradients=False)
    for name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "max", "median"):
        rest = () if name in ("max", "median") else (1,)
        check_operator(f"aten.{name}.default", SPECIAL, *rest, gradients=False)


@pytest.mark.parametrize("x", [WHOLE, BYTES, TRUTH], ids=["int64", "uint8", "bool"])
def test_whole_numbers(x):
    for name in ("sum.dim_IntList", "amax.default", "amin.default", "any.dims", "all.dims"):
        check_operator(f"aten.{name}", x, [1])
    for name in (
        "prod.dim_int",
        "max.dim",
        "min.dim",
        "any.dim",
        "cumsum.default",
        "cumprod.default",
        "cummax.default",
    ):
        check_operator(f"aten.{name}", x, 1)
    for name in ("sum", "prod", "any", "max", "argmax", "argmin") if x.dtype != bool else ("sum", "prod", "any", "max"):
        check_operator(f"aten.{name}.default", x)
    check_operator("aten.mean.dim", x, [1], dtype=torch.float64)
    check_operator("aten.sum.dim_IntList", x, [1], dtype=torch.float32)
    check_operator("aten.cumsum.default", x, 0, dtype=torch.float32)
    check_operator("aten.sum.dim_IntList", X, [1], dtype=torch.float32, tolerance=SINGLE)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_running(name):
    for axis in (0, 1, -1):
        check_operator(f"aten.{name}.default", X, axis)
    check_operator(f"aten.{name}.default", TIES, 1)


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending):
    for x in (X, WHOLE, BYTES):
        for axis in (0, -1):
            check_operator("aten.sort.default", x, axis, descending)
    for x in (TIES, SPECIAL, WHOLE, TRUTH, np.array([[0.0, -0.0, 0.0]])):
        check_operator("aten.sort.stable", x, stable=True, dim=1, descending=descending)


def test_sort_has_pytorch_s_defaults():
    check_operator("aten.sort.default", X)
    check_operator("aten.sort.stable", X, stable=True)


@pytest.mark.parametrize("largest", [True, False])
def test_topk(largest):
    for axis in (0, 1, -1):
        check_operator("aten.topk.default", X, 2, axis, largest)
    check_operator("aten.topk.default", X, 0, 1, largest)
    check_operator("aten.topk.default", np.array([3, 1, 2]), 2, -1, largest)
    check_operator("aten.topk.default", np.array([3, 250, 0], np.uint8), 3, -1, largest)
    check_operator("aten.topk.default", np.array([1.0, NAN, INF, -INF]), 4, 0, largest, gradients=False)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_medians(axis):
    for keepdim in (False, True):
        check_operator("aten.median.dim", X, axis, keepdim)
        check_operator("aten.kthvalue.default", X, 2, axis, keepdim)
    check_operator("aten.median.default", WHOLE)


@settings(max_examples=12)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_shapes(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(sum(shape)).normal(size=shape)
    for name in ("sum.dim_IntList", "amax.default", "logsumexp.default"):
        check_operator(f"aten.{name}", x, [axis])
    for name in ("max.dim", "cumsum.default", "sort.default"):
        check_operator(f"aten.{name}", x, axis)
    check_operator("aten._log_softmax.default", x, axis, False)


@pytest.mark.parametrize(
    ("name", "rest"),
    [("max.dim", (1,)), ("sort.default", (-1, True)), ("logsumexp.default", ((-1,),)), ("topk.default", (2,))],
)
def test_mapped_and_compiled_in_single_precision(name, rest):
    x = jnp.asarray(RNG.normal(size=(5, 3, 4)), jnp.float32)
    node = Node("node", f"aten.{name}", (), {}, ("float32", "int64"), None)
    packet, overload = name.split(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    found = jax.jit(jax.vmap(lambda row: run_node(node, (row, *rest), {})))(x)
    expected = [operator(torch.from_numpy(np.array(row)), *rest) for row in x]
    for k, one in enumerate(found if isinstance(found, tuple) else [found]):
        wanted = np.stack([(row[k] if isinstance(row, tuple) else row).numpy() for row in expected])
        np.testing.assert_allclose(one, wanted, rtol=1e-6, atol=1e-6)
