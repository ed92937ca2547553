"""Elementwise operators of the table against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from port_operators import check_operator

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_two_arrays(name):
    check_operator(f"aten.{name}.Tensor", X, Y)


def test_no_slope_of_abs_at_zero():
    check_operator("aten.abs.default", np.array([-1.0, 0.0, 2.0]))
