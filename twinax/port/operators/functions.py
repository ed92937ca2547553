"""Functions of one array, entry by entry. Where PyTorch has no slope at a kink, neither have they."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from twinax import ops
from twinax.port._table import operator

where: Callable[..., Any] = jnp.where  # one of its forms gives a tuple, which a type checker would follow


def as_floats(x: Any) -> Any:
    """Whole numbers as floats, as functions with real values take them; Python's numbers and floats as they are."""
    if isinstance(x, (bool, int, float, complex)) or jnp.issubdtype(x.dtype, jnp.inexact):
        return x
    return x.astype(float)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "i0": special.i0,
    "lgamma": special.gammaln,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "reciprocal": jnp.reciprocal,
    "rsqrt": lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}
"""Functions with real values, which whole numbers enter as floats."""


def _enter(name: str, function: Callable[[Any], Any]) -> None:
    @operator(f"aten.{name}.default")
    def of_floats(x):
        return function(as_floats(x))


for _name, _function in FUNCTIONS.items():
    _enter(_name, _function)


@operator("aten.digamma.default")
def digamma(x):
    """At zero it is infinite, against the sign of the zero."""
    x = as_floats(x)
    return where(x == 0, jnp.copysign(jnp.inf, -x), special.digamma(where(x == 0, 1, x)))


@operator("aten.polygamma.default")
def polygamma(order, x):
    x = as_floats(x)
    return digamma(x) if order == 0 else special.polygamma(order, x)


@operator("aten.special_ndtri.default")
def normal_quantile(x):
    return special.ndtri(as_floats(x))


@operator("aten.special_erfcx.default")
def scaled_erfc(x):
    x = as_floats(x)
    return jnp.exp(x * x) * special.erfc(x)


@operator("aten.special_i0e.default")
def scaled_i0(x):
    return special.i0e(as_floats(x))


@operator("aten.special_i1.default")
def i1(x):
    return special.i1(as_floats(x))


@operator("aten.special_i1e.default")
def scaled_i1(x):
    return special.i1e(as_floats(x))


@operator("aten.angle.default")
def angle(x):
    """Half a turn for what is negative; a zero has no sign."""
    x = lax.stop_gradient(as_floats(x))
    return where(x < 0, math.pi, where(x == x, 0.0, x))


@operator("aten.neg.default")
def neg(x):
    return -x


@operator("aten.abs.default")
def absolute(x):
    return jnp.abs(x) if jnp.iscomplexobj(x) else ops.abs(x)


@operator("aten.sign.default", "aten.sgn.default")
def sign(x):
    """Of NaN it is 0."""
    return x if x.dtype == bool else where(x == x, jnp.sign(x), 0)


def _rounded(x: Any, function: Callable[[Any], Any]) -> Any:
    """Integers are rounded already."""
    return function(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


@operator("aten.floor.default")
def floor(x):
    return _rounded(x, jnp.floor)


@operator("aten.ceil.default")
def ceil(x):
    return _rounded(x, jnp.ceil)


@operator("aten.trunc.default")
def trunc(x):
    return _rounded(x, jnp.trunc)


@operator("aten.round.default")
def round_half_to_even(x):
    return _rounded(x, jnp.round)


@operator("aten.round.decimals")
def round_decimals(x, *, decimals=0):
    scale = 10.0 ** math.fabs(decimals)
    if decimals < 0:
        return _rounded(x, lambda x: jnp.round(x / scale) * scale)
    return _rounded(x, lambda x: jnp.round(x * scale) / scale)
