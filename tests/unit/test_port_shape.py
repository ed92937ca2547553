"""Operators that arrange numbers anew, against PyTorch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from port_operators import check_operator

from twinax.errors import TwinaxError
from twinax.port._table import LEFT_OUT, OPERATORS
from twinax.port.operators.shape import bounds

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))
SCALAR, EMPTY = np.array(1.5), np.zeros((0, 3))
WHOLE = 9223372036854775807

CASES = [
    ("view.default", X, [4, -1]),
    ("view.default", EMPTY, [3, 0]),
    ("view.default", SCALAR, [1, 1]),
    ("view.default", X[:1, :1, :1], []),
    ("permute.default", X, [2, 0, -2]),
    ("permute.default", SCALAR, []),
    ("transpose.int", X, -1, 0),
    ("transpose.int", SCALAR, 0, -1),
    ("t.default", X[0]),
    ("t.default", X[0, 0]),
    ("expand.default", X[:, :1], [5, -1, 3, -1]),
    ("expand.default", SCALAR, [2, 0]),
    ("expand.default", EMPTY, [2, -1, -1]),
    ("squeeze.default", X[:1, :, :1]),
    ("squeeze.dim", X[:1], 0),
    ("squeeze.dim", X, -1),
    ("squeeze.dim", SCALAR, -1),
    ("squeeze.dims", X[:1, :, :1], [0, 1, -1]),
    ("squeeze.dims", SCALAR, [0]),
    ("unsqueeze.default", X, -1),
    ("unsqueeze.default", X, -4),
    ("unsqueeze.default", SCALAR, 0),
    ("cat.default", [X, X[:, :1], X[:, :0]], 1),
    ("cat.default", [np.zeros(0), X], -1),
    ("cat.default", [np.zeros(0)], 0),
    ("cat.default", [X[0], np.arange(4)[None], np.array([[True] * 4])]),
    ("cat.default", [X[0].astype(np.float32), X[0]]),
    ("cat.default", [np.array([1, 2], np.uint8), np.array([-1], np.int8)]),
    ("stack.default", [X, 2 * X], -1),
    ("split_with_sizes.default", X, [1, 0, 3], -1),
    ("split.Tensor", X, 3, 2),
    ("split.Tensor", EMPTY, 2),
    ("unbind.int", X, 1),
    ("repeat.default", X, [2, 1, 1, 3]),
    ("repeat.default", X, [1, 0, 2]),
    ("repeat.default", SCALAR, [3]),
    ("repeat.default", SCALAR, []),
    ("flip.default", X, [0, -1]),
    ("flip.default", X, []),
    ("flip.default", SCALAR, [0]),
    ("select.int", X, -2, -1),
    ("select.int", X, 0, 1),
    ("slice.Tensor", X, 2, 1, WHOLE, 2),
    ("slice.Tensor", X, -1, -3, -1),
    ("slice.Tensor", X, 1, -100, 100),
    ("slice.Tensor", X, 1, 2, 1),
    ("slice.Tensor", X, 1, 7, 9),
    ("slice.Tensor", X),
    ("slice.Tensor", EMPTY, 0, 1, 5, 3),
    ("narrow_copy.default", X, 2, -3, 2),
    ("slice_scatter.default", X, X[:, :, :2] * 3, 2, 1, WHOLE, 2),
    ("slice_scatter.default", X, X[:, :, :2] * 3, -1, 0, 3, 2),
    ("slice_scatter.default", X, X[:, 1:] * 3, 1, -2),
    ("slice_scatter.default", X, X[:, :0], 1, 2, 1),
    ("slice_scatter.default", X, X[:1] * 2, 0, 1, 50, 7),
    ("select_scatter.default", X, X[:, 0] * 2, -2, -1),
    ("select_scatter.default", X[0, 0], SCALAR, 0, 2),
    ("diagonal.default", X),
    ("diagonal.default", X, 1, 1, 2),
    ("diagonal.default", X, -1, -1, 1),
    ("diagonal.default", X, -2, 1, 2),
    ("diagonal.default", X, 4, 1, 2),
    ("diagonal.default", EMPTY),
    ("diagonal_scatter.default", X, X[:, :, 0] * 2, 1, 1, 2),
    ("diagonal_scatter.default", X[0], X[0, 0, :2], -1),
    ("unfold.default", X, 2, 2, 1),
    ("unfold.default", X, 1, 2, 2),
    ("unfold.default", X, -1, 4, 3),
    ("unfold.default", RNG.normal(size=(9,)), 0, 2, 3),
    ("unfold.default", SCALAR, 0, 1, 1),
    ("as_strided.default", X, [2, 2], [1, 4], 3),
    ("as_strided.default", X, [5, 3], [0, 2]),
    ("as_strided.default", X, [], []),
    ("constant_pad_nd.default", X, [1, 2, 0, 3], 7),
    ("constant_pad_nd.default", X, [-1, 2, 0, -2], -np.inf),
    ("constant_pad_nd.default", X, []),
    ("constant_pad_nd.default", np.arange(3), [1, 1], 2.0),
    ("constant_pad_nd.default", np.array([True]), [1, 0]),
    ("clone.default", X),
    ("alias.default", SCALAR),
]


@pytest.mark.parametrize(("name", "arguments"), [(name, rest) for name, *rest in CASES])
def test_like_pytorch(name, arguments):
    check_operator(f"aten.{name}", *arguments)


@given(st.integers(0, 6), st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9), st.integers(1, 4))
def test_slices_begin_and_end_as_in_pytorch(size, start, end, step):
    """Ends beyond the array, from the end, in the wrong order."""
    first, last, by = bounds(size, start, end, step)
    theirs = torch.ops.aten.slice.Tensor(torch.arange(size), 0, start, end, step)
    assert list(range(first, last, by)) == theirs.tolist()


@settings(max_examples=6)
@given(st.data())
def test_slices_read_and_written_back(data):
    shape = data.draw(st.sampled_from([(4,), (3, 5)]))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    start, step = data.draw(st.integers(-7, 7)), data.draw(st.integers(1, 3))
    x = RNG.normal(size=shape)
    part = torch.ops.aten.slice.Tensor(torch.from_numpy(x), axis, start, None, step).numpy()
    check_operator("aten.slice_scatter.default", x, 2 * part, axis, start, None, step)


@settings(max_examples=6)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(-6, 6))
def test_any_diagonal(rows, columns, offset):
    offset = max(-rows, min(columns, offset))  # beyond it PyTorch refuses
    check_operator("aten.diagonal.default", RNG.normal(size=(2, rows, columns)), offset, 1, 2)


def test_reading_outside_of_memory_is_refused():
    with pytest.raises(TwinaxError, match="entry 27 of an array of 24"):
        OPERATORS["aten.as_strided.default"].function(jnp.zeros((2, 3, 4)), (2,), (4,), 23)


def test_sizes_are_numbers():
    x = jnp.zeros((2, 3))
    assert OPERATORS["aten.sym_size.int"].function(x, -1) == 3
    assert OPERATORS["aten.sym_numel.default"].function(x) == 6


def test_nothing_is_gathered_where_a_slice_does():
    for name, arguments in [
        ("slice.Tensor", (1, 0, 3, 2)),
        ("select.int", (1, -1)),
        ("diagonal.default", (0, 1, 2)),
        ("unfold.default", (2, 2, 1)),
        ("flip.default", ((0,),)),
    ]:
        function = OPERATORS[f"aten.{name}"].function
        text = str(jax.make_jaxpr(jax.grad(lambda x, f=function, a=arguments: f(x, *a).sum()))(jnp.asarray(X)))
        assert "gather" not in text and "scatter" not in text, name


@pytest.mark.parametrize("name", ["slice.Tensor", "select.int", "unsqueeze.default", "squeeze.dim", "diagonal.default"])
def test_under_vmap_and_jit(name):
    """In float32, with the batch on another axis than the first."""
    arguments = {"slice.Tensor": (0, 1), "select.int": (0, 1), "unsqueeze.default": (0,), "squeeze.dim": (0,)}
    arguments = arguments.get(name, ())
    function = OPERATORS[f"aten.{name}"].function
    x = X.astype(np.float32)
    found = jax.jit(jax.vmap(lambda one: function(one, *arguments), in_axes=1))(x)
    packet, overload = name.split(".")
    theirs = getattr(getattr(torch.ops.aten, packet), overload)
    expected = [theirs(torch.from_numpy(x[:, k]), *arguments).numpy() for k in range(3)]
    np.testing.assert_array_equal(found, np.stack(expected))


def test_what_memory_says_is_left_out():
    for name in ("sym_stride.int", "sym_storage_offset.default", "sym_is_contiguous.default", "resize_.default"):
        assert f"aten.{name}" in LEFT_OUT
