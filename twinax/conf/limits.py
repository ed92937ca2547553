"""Refusing what cannot fit: memory is estimated before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping

from twinax.errors import TwinaxError
from twinax.memory import available_memory

GIGABYTE = 1e9


def check_memory(parts: Mapping[str, float], available: float | None = None) -> None:
    """Refuse when the parts (what they are, with the keys that set them: bytes) exceed the memory.

    >>> check_memory({"the batch (trainer.batch_size)": 1e6})
    """
    available = available_memory() if available is None else available
    total = sum(parts.values())
    if total <= available:
        return
    largest = max(parts, key=lambda part: parts[part])
    raise TwinaxError(
        f"this problem needs about {_gigabytes(total)} of memory and {_gigabytes(available)} are free; "
        f"most of it, {_gigabytes(parts[largest])}, is {largest}"
    )


def _gigabytes(size: float) -> str:
    return f"{size / GIGABYTE:,.1f} GB" if size < 1e15 else f"{size / GIGABYTE:.0e} GB"
