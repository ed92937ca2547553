"""Products whose gradients XLA is quick at; for programs that are only differentiated once, and backwards."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

_QUICK: ContextVar[bool] = ContextVar("quick_gradients", default=False)
WIDE = 4
"""How many times as many outputs as inputs a layer has that is treated as wide."""


@contextlib.contextmanager
def quick_gradients() -> Iterator[None]:
    """Inside of it, layers cannot be differentiated forwards, as `jax.jvp` does."""
    token = _QUICK.set(True)
    try:
        yield
    finally:
        _QUICK.reset(token)


def product(a: Any, b: Any) -> Any:
    """a @ b."""
    return _quick_product(a, b) if _QUICK.get() and a.ndim == b.ndim == 2 else a @ b


def rows(row: Any, shape: tuple[Any, ...]) -> Any:
    """An array as every row of one of this shape, a row being all that lies on the last axes."""
    if _QUICK.get() and 0 < row.ndim < len(shape) and row.shape == shape[-row.ndim :] and row.size:
        return _quick_rows(row, shape)
    return jnp.broadcast_to(row, shape)


@jax.custom_vjp
def _quick_product(a: Any, b: Any) -> Any:
    return a @ b


def _product_forward(a: Any, b: Any) -> Any:
    return a @ b, (a, b)


def _product_backward(kept: Any, gradient: Any) -> Any:
    a, b = kept
    if b.shape[1] < WIDE * b.shape[0]:
        return gradient @ b.T, (gradient.T @ a).T
    # PyTorch's layers hold the transpose of b. XLA would work out its gradient at once, a product with few columns,
    # for which it takes several times as long on the CPU as for this one with many; the barrier keeps it from that.
    return gradient @ b.T, jax.lax.optimization_barrier(a.T @ gradient)


_quick_product.defvjp(_product_forward, _product_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _quick_rows(row: Any, shape: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(row, shape)


def _rows_forward(row: Any, shape: tuple[int, ...]) -> Any:
    return jnp.broadcast_to(row, shape), row.shape


def _rows_backward(shape: tuple[int, ...], row: tuple[int, ...], gradient: Any) -> Any:
    # In a sum, or a product with one row, XLA works out again, entry by entry, all that the gradient is made of.
    gradient = gradient.reshape(-1, math.prod(row))
    return ((jnp.ones((2, gradient.shape[0]), gradient.dtype) @ gradient)[0].reshape(row),)


_quick_rows.defvjp(_rows_forward, _rows_backward)
