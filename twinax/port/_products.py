"""Products whose gradients XLA is quick at; for programs that are only differentiated once, and backwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax

_QUICK: ContextVar[bool] = ContextVar("quick_gradients", default=False)
WIDE = 4
"""How many times as many outputs as inputs a layer has that is treated as wide."""


@contextlib.contextmanager
def quick_gradients() -> Iterator[None]:
    """Inside of it, products cannot be differentiated forwards, as `jax.jvp` does."""
    token = _QUICK.set(True)
    try:
        yield
    finally:
        _QUICK.reset(token)


def product(a: Any, b: Any) -> Any:
    """a @ b."""
    quick = _QUICK.get() and a.ndim == b.ndim == 2 and b.shape[1] >= WIDE * b.shape[0]
    return _quick_product(a, b) if quick else a @ b


@jax.custom_vjp
def _quick_product(a: Any, b: Any) -> Any:
    return a @ b


def _forward(a: Any, b: Any) -> Any:
    return a @ b, (a, b)


def _backward(kept: Any, gradient: Any) -> Any:
    a, b = kept
    # PyTorch's layers hold the transpose of b. XLA would work out its gradient at once, a product with few columns,
    # for which it takes several times as long on the CPU as for this one with many; the barrier keeps it from that.
    return gradient @ b.T, jax.lax.optimization_barrier(a.T @ gradient)


_quick_product.defvjp(_forward, _backward)
