"""How much memory there is, and arrays that lie in a file instead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

GIGABYTE = 1e9
ALIGNMENT = 64
"""Bytes. JAX uses an array of the host where it lies if it begins at a multiple of this; otherwise it copies it."""


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


def is_mapped(x: Any) -> bool:
    """Whether an array, or what it is a view of, lies in a file.

    The type alone does not say: results computed from a mapped array can have it too.
    """
    while isinstance(x, np.ndarray):
        if isinstance(x, np.memmap) and getattr(x, "_mmap", None) is not None:
            return True
        x = x.base
    return False
