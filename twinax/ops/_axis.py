"""Named axes of a training program, as seen while it is traced: seeds side by side, and shards of a batch."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_axis: contextvars.ContextVar[str | None] = contextvars.ContextVar("seed_axis", default=None)


@contextlib.contextmanager
def seed_axis(name: str | None) -> Iterator[None]:
    """While tracing, loop predicates and size choices are taken over this named axis.

    A batched predicate would turn a loop into selects and a branch into all of its branches.
    """
    token = _axis.set(name)
    try:
        yield
    finally:
        _axis.reset(token)


def current_seed_axis() -> str | None:
    """The axis that is active, if any."""
    return _axis.get()


_shards: contextvars.ContextVar[tuple[str, int] | None] = contextvars.ContextVar("shards", default=None)


@contextlib.contextmanager
def shards(axis: str, number: int) -> Iterator[None]:
    """While tracing, a batch is one of `number` equal parts along this named axis."""
    token = _shards.set((axis, number))
    try:
        yield
    finally:
        _shards.reset(token)


def current_shards() -> tuple[str, int] | None:
    """The axis and number of shards, if there are several."""
    return _shards.get()
