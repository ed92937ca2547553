"""The rule of promotion against PyTorch's own."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import pytest
import torch
from port_operators import doubles

from twinax.errors import TwinaxError
from twinax.port._dtypes import KNOWN, result_type, to_jax_dtype

NUMBERS = (True, 3, 2.5, 1j)


def operands():
    """Every dtype with axes and without, and Python's numbers; PyTorch's next to JAX's."""
    for name in sorted(KNOWN):
        for shape in ((2,), ()):
            yield torch.ones(shape, dtype=getattr(torch, name)), jnp.ones(shape, name)
    yield from zip(NUMBERS, NUMBERS, strict=True)


def test_every_pair_of_dtypes():
    with doubles():
        compared = 0
        for (a, x), (b, y) in itertools.product(list(operands()), repeat=2):
            try:
                expected = torch.result_type(a, b)
            except RuntimeError:  # unsigned integers wider than a byte have no rule of promotion with others
                continue
            if expected == torch.complex32:  # which JAX does not have
                expected = torch.complex64
            compared += 1
            assert result_type(x, y).name == str(expected).removeprefix("torch."), (x, y)
        assert compared > 900


def test_three_operands():
    """PyTorch's rule takes two; `clamp` shows it for three."""
    names = ("uint8", "int64", "bfloat16", "float32", "float64")
    operands = [(name, shape) for name in names for shape in ((2,), ())]
    with doubles():
        for chosen in itertools.product(operands, repeat=3):
            expected = torch.clamp(*(torch.ones(shape, dtype=getattr(torch, name)) for name, shape in chosen)).dtype
            found = result_type(*(jnp.ones(shape, name) for name, shape in chosen))
            assert found.name == str(expected).removeprefix("torch."), chosen


def test_all_floats_are_doubles_when_wide():
    with doubles():
        assert result_type(jnp.ones(2, int), 1.5, wide=True) == jnp.float64
        assert result_type(jnp.ones(2, int), 1.5) == jnp.float32
        assert to_jax_dtype("bfloat16", wide=True) == jnp.float64


def test_narrow_while_jax_has_no_64_bits():
    assert to_jax_dtype("int64") == jnp.int32 and to_jax_dtype("float64") == jnp.float32
    assert result_type(jnp.ones(2, bool), 3) == jnp.int32


def test_a_dtype_that_jax_lacks():
    with pytest.raises(TwinaxError, match="JAX has no dtype for torch.complex32"):
        to_jax_dtype("complex32")
