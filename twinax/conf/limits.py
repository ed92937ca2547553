"""Refusing what cannot fit: memory is estimated before anything is allocated."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from twinax.errors import TwinaxError

GIGABYTE = 1e9


def available_memory() -> float:
    """Bytes that a new process may use: free memory, or a container's limit when that is smaller."""
    free = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    information = Path("/proc/meminfo")
    if information.is_file():
        lines = dict(line.split(":", 1) for line in information.read_text().splitlines() if ":" in line)
        free = float(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else free
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file():
        limit = container.read_text().strip()
        free = min(free, float(limit)) if limit.isdigit() else free
    return free


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
