"""Indices outside of an array: PyTorch raises, a compiled program cannot, so they are looked at when asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
from jax.core import Tracer

from twinax.errors import TwinaxError

_CHECKED: ContextVar[bool] = ContextVar("checked_indices", default=False)


class IndexOutside(TwinaxError):
    """An index that no entry has; whoever knows the operator and its line adds them."""


@contextlib.contextmanager
def checked_indices() -> Iterator[None]:
    """Inside of it, an index outside of its array is an error, as in PyTorch.

    It looks at numbers, so it sees only what is not compiled and not under `vmap`: call the function outside of
    `jax.jit`. Without it a read outside gives some other entry, and a write outside is lost.

    >>> with twinax.port.checked_indices():  # doctest: +SKIP
    ...     policy(policy.params, observations)
    """
    token = _CHECKED.set(True)
    try:
        yield
    finally:
        _CHECKED.reset(token)


def within(index: Any, size: int, negative: bool = False) -> None:
    """Raise if indices are to be checked and one lies outside of an axis of this size."""
    if not _CHECKED.get() or isinstance(index, Tracer):
        return
    found = np.asarray(index)
    lowest = -size if negative else 0
    outside = found[(found < lowest) | (found >= size)]
    if outside.size:
        allowed = f"{lowest} to {size - 1} are" if size else "none is"
        raise IndexOutside(f"index {outside[0]} lies outside of an axis of size {size}, where {allowed} allowed")
