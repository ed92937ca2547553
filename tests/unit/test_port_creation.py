"""Operators that make arrays, against PyTorch."""

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
X, SCALAR, EMPTY = RNG.normal(size=(2, 3)), np.array(1.5), np.zeros((0, 3))
FLOAT, INT, BYTE, BOOL = torch.float64, torch.int64, torch.uint8, torch.bool

CASES = [
    ("arange.default", (5,), {}),
    ("arange.default", (2.5,), {"dtype": FLOAT}),
    ("arange.start", (2, 7), {"dtype": torch.float32}),
    ("arange.start_step", (0, 7, 3), {}),
    ("arange.start_step", (7, -1, -2), {}),
    ("arange.start_step", (3, 3, 1), {}),
    ("arange.start_step", (0.0, 1.0, 0.1), {"dtype": FLOAT}),
    ("arange.start_step", (0.0, 1.0, 0.1), {"dtype": torch.float32}),
    ("arange.start_step", (1.5, 4.5), {"dtype": INT}),
    ("arange.start_step", (0, 3), {"dtype": BYTE}),
    ("full.default", ([2, 3], 1.5), {}),
    ("full.default", ([], -1), {"dtype": INT}),
    ("full.default", ([2], True), {}),
    ("full.default", ([0, 2], 1), {"dtype": FLOAT}),
    ("full.default", ([2], 2.7), {"dtype": INT}),
    ("full.default", ([2], -np.inf), {"dtype": FLOAT}),
    ("full_like.default", (X, 2), {}),
    ("full_like.default", (X, 2.5), {"dtype": INT}),
    ("full_like.default", (np.arange(3), 0), {"dtype": BOOL}),
    ("full_like.default", (SCALAR, 1), {}),
    ("new_full.default", (X, [3], 4), {}),
    ("scalar_tensor.default", (3,), {}),
    ("scalar_tensor.default", (2.5,), {"dtype": FLOAT}),
    ("scalar_tensor.default", (True,), {"dtype": BOOL}),
    ("zeros.default", ([2, 3],), {}),
    ("ones.default", ([2],), {"dtype": INT}),
    ("zeros_like.default", (X,), {}),
    ("ones_like.default", (X,), {"dtype": torch.float32}),
    ("new_zeros.default", (X, [4]), {}),
    ("new_ones.default", (np.arange(2), [4]), {}),
    ("eye.default", (3,), {"dtype": FLOAT}),
    ("eye.m", (2, 4), {}),
    ("eye.m", (3, 0), {"dtype": INT}),
    ("linspace.default", (0.0, 1.0, 5), {"dtype": FLOAT}),
    ("linspace.default", (2, -1, 1), {"dtype": FLOAT}),
    ("tril_indices.default", (3, 4, -1), {}),
    ("triu_indices.default", (4, 3, 1), {}),
    ("tril_indices.default", (2, 2), {}),
]


@pytest.mark.parametrize(("name", "arguments", "options"), CASES)
def test_like_pytorch(name, arguments, options):
    check_operator(f"aten.{name}", *arguments, **options)


@settings(max_examples=12)
@given(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-3, -2, -1, 1, 2, 3, 0.5, -0.25]))
def test_counting(start, end, step):
    end = start + abs(end) * (1 if step > 0 else -1)  # the other way PyTorch refuses
    check_operator("aten.arange.start_step", start, end, step)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("empty.memory_format", ([2, 3],)),
        ("empty_strided.default", ([2, 3], [3, 1])),
        ("empty_permuted.default", ([2, 3], [1, 0])),
        ("empty_like.default", (X,)),
        ("new_empty.default", (X, [4, 1])),
        ("new_empty_strided.default", (X, [4, 1], [1, 1])),
    ],
)
def test_what_is_left_open_has_the_shape(name, arguments):
    packet, overload = name.split(".")
    given = [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arguments]
    theirs = getattr(getattr(torch.ops.aten, packet), overload)(*given)
    arrays = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    ours = OPERATORS[f"aten.{name}"].function(*arrays)
    assert ours.shape == tuple(theirs.shape)


def test_integers_are_as_wide_as_jax_has_them():
    """Without 64 bits, and without a warning that some were cut off."""
    assert OPERATORS["aten.arange.default"].function(3).dtype == np.int32
    assert OPERATORS["aten.tril_indices.default"].function(2, 2).dtype == np.int32


def test_a_long_count_is_no_constant_of_the_program():
    text = str(jax.make_jaxpr(lambda: OPERATORS["aten.arange.start_step"].function(0, 10**6, 2))())
    assert "iota" in text
