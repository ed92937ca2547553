"""The seed axis of a vmapped training loop, as seen by loops while they are traced."""

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
