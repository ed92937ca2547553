"""Arithmetic of two arrays. Gradients at ties and kinks are PyTorch's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from twinax import ops
from twinax.port._products import rows
from twinax.port._table import leave_out, operator
from twinax.port.operators.functions import as_floats, where


@operator("aten.add.Tensor", "aten.add.Scalar", promote=True)
def add(x, y, alpha=1):
    if 0 < jnp.ndim(y) < jnp.ndim(x):  # such as a bias or an embedding of places
        y = rows(y, jnp.broadcast_shapes(x.shape, y.shape))
    return x + y if alpha == 1 else x + alpha * y


@operator("aten.sub.Tensor", "aten.sub.Scalar", promote=True)
def sub(x, y, alpha=1):
    return x - y if alpha == 1 else x - alpha * y


@operator("aten.rsub.Tensor", "aten.rsub.Scalar", promote=True)
def reversed_sub(x, y, alpha=1):
    return sub(y, x, alpha)


@operator("aten.mul.Tensor", "aten.mul.Scalar", promote=True)
def mul(x, y):
    return x * y


@operator("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", promote=True)
def div(x, y):
    return as_floats(x) / as_floats(y)


@operator("aten.div.Tensor_mode", "aten.div.Scalar_mode", promote=True)
def div_rounded(x, y, *, rounding_mode=None):
    """Rounded towards zero, or down; whole numbers have no slope."""
    if rounding_mode is None:
        return div(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if jnp.issubdtype(jnp.result_type(x, y), jnp.floating):
        return lax.stop_gradient(jnp.trunc(x / y))
    return lax.div(*jnp.broadcast_arrays(x, jnp.asarray(y, x.dtype)))


@operator("aten.floor_divide.default", "aten.floor_divide.Scalar", promote=True)
def floor_divide(x, y):
    """Rounded down, of the exact quotient; by zero it is that of floats."""
    x, y = (lax.stop_gradient(jnp.asarray(one)) for one in (x, y))
    quotient = jnp.floor_divide(x, y)
    if jnp.issubdtype(quotient.dtype, jnp.floating):
        quotient = where(y == 0, x / y, quotient)
    return quotient


@operator("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", promote=True)
def remainder(x, y):
    """With the sign of the divisor."""
    return jnp.remainder(x, y)


@operator("aten.fmod.Tensor", "aten.fmod.Scalar", promote=True)
def fmod(x, y):
    """With the sign of the dividend."""
    return jnp.fmod(x, y)


@operator("aten.pow.Tensor_Scalar", promote=True)
def pow_scalar(x, exponent):
    """A whole exponent multiplies, which is many times faster than a power, and its slope is finite at zero."""
    if exponent == 0:
        return jnp.ones_like(x)
    if exponent == 0.5:
        return jnp.sqrt(as_floats(x))
    if exponent == -0.5:
        return lax.rsqrt(as_floats(x))
    if float(exponent).is_integer() and abs(exponent) <= 64:
        return lax.integer_pow(x, int(exponent))
    return power(x, exponent)


@operator("aten.pow.Scalar", "aten.pow.Tensor_Tensor", promote=True)
def power(x, exponent):
    x, exponent = jnp.broadcast_arrays(x, exponent)
    dtype = jnp.result_type(x, exponent)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.power(x, exponent)
    return _power(x.astype(dtype), exponent.astype(dtype))


@jax.custom_jvp
def _power(x, exponent):
    return lax.pow(x, exponent)


@_power.defjvp
def _(primals, tangents):
    """No slope where the exponent is 0, nor by the exponent where a power of 0 is 0."""
    (x, exponent), (dx, dexponent) = primals, tangents
    result = _power(x, exponent)
    by_x = where(exponent == 0, 0, exponent * _power(x, where(exponent == 0, 1, exponent - 1)))
    settled = (x == 0) & (exponent >= 0)
    by_exponent = where(settled, 0, result * jnp.log(where(settled, 1, x)))
    return result, by_x * dx + by_exponent * dexponent


@operator("aten.atan2.default", promote=True)
def atan2(y, x):
    return jnp.arctan2(as_floats(y), as_floats(x))


@operator("aten.hypot.default", promote=True)
def hypot(x, y):
    """Infinite if one is, even next to NaN."""
    either = jnp.isinf(x) | jnp.isinf(y)
    return where(either, jnp.inf, jnp.sqrt(x * x + y * y))


@operator("aten.copysign.Tensor", "aten.copysign.Scalar", promote=True)
def copysign(x, y):
    x, y = as_floats(x), as_floats(y)
    return x * lax.stop_gradient(where(jnp.signbit(x) == jnp.signbit(y), 1, -1) * where(x == 0, 0, 1))


@operator("aten.maximum.default", "aten.max.other", promote=True)
def maximum(x, y):
    return ops.maximum(x, y)


@operator("aten.minimum.default", "aten.min.other", promote=True)
def minimum(x, y):
    return ops.minimum(x, y)


leave_out("it writes into an array that it is given, which a function must leave as it is", "aten.atan2.out")
