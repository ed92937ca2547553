"""Comparisons, logic, bits, and choices by them. Gradients at bounds are PyTorch's."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from twinax.port._table import operator

COMPARISONS = {name: getattr(python, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
LOGIC = {"logical_and": jnp.logical_and, "logical_or": jnp.logical_or, "logical_xor": jnp.logical_xor}
BITS = {"bitwise_and": jnp.bitwise_and, "bitwise_or": jnp.bitwise_or, "bitwise_xor": jnp.bitwise_xor}
SHIFTS = {"bitwise_left_shift": jnp.left_shift, "bitwise_right_shift": jnp.right_shift}


def _enter(function: Callable[..., Any], *names: str, promote: bool) -> None:
    @operator(*names, promote=promote)
    def of_two(x, y):
        return function(x, y)


for _name, _function in COMPARISONS.items():
    _enter(_function, f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", promote=True)
for _name, _function in LOGIC.items():
    _enter(_function, f"aten.{_name}.default", promote=False)
for _name, _function in BITS.items():
    _enter(_function, *(f"aten.{_name}.{kind}" for kind in ("Tensor", "Scalar", "Scalar_Tensor")), promote=True)
for _name, _function in SHIFTS.items():
    _enter(_function, *(f"aten.{_name}.{kind}" for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")), promote=True)


@operator("aten.logical_not.default")
def logical_not(x):
    return jnp.logical_not(x)


@operator("aten.bitwise_not.default")
def bitwise_not(x):
    return jnp.bitwise_not(x)


@operator("aten.isnan.default")
def isnan(x):
    return jnp.isnan(x)


@operator("aten.isinf.default")
def isinf(x):
    return jnp.isinf(x)


@operator("aten.signbit.default")
def signbit(x):
    return jnp.signbit(x) if jnp.issubdtype(x.dtype, jnp.floating) else x < 0


@operator("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(condition, x, y):
    return jnp.where(condition, x, y)


@operator("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(x, mask, value):
    return jnp.where(mask, value, x)


@operator("aten.clamp.default", "aten.clamp_min.default", promote=True)
def clamp(x, low=None, high=None):
    """Inside, and at a bound, the gradient is 1; elsewhere, and of NaN, it is 0."""
    inside = x == x
    if low is not None:
        inside = inside & (x >= low)
    if high is not None:
        inside = inside & (x <= high)
    return jnp.where(inside, x, lax.stop_gradient(jnp.clip(x, low, high)))


@operator("aten.clamp_max.default", promote=True)
def clamp_max(x, high):
    return clamp(x, None, high)


@operator("aten.clamp.Tensor", "aten.clamp_min.Tensor", promote=True)
def clamp_between(x, low=None, high=None):
    """Bounds get the gradient of what they replace; the upper one wins where they are crossed."""
    found = x
    if low is not None:
        found = jnp.where((x < low) | jnp.isnan(low), low, found)
    if high is not None:
        found = jnp.where((found > high) | jnp.isnan(high), high, found)
    return jnp.where(jnp.isnan(x), lax.stop_gradient(x), found)


@operator("aten.clamp_max.Tensor", promote=True)
def clamp_below(x, high):
    return clamp_between(x, None, high)


@operator("aten.fmax.default", promote=True)
def fmax(x, y):
    """The number where the other is NaN; the first at a tie."""
    return jnp.where((x >= y) | jnp.isnan(y), x, y)


@operator("aten.fmin.default", promote=True)
def fmin(x, y):
    return jnp.where((x <= y) | jnp.isnan(y), x, y)
