"""JAX's 64-bit switch, put back as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import jax


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Inside, JAX computes in `dtype`; outside, the process is as before, whatever engines switched on meanwhile."""
    before = _process_setting()
    try:
        with jax.enable_x64(dtype == "float64"):
            yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _process_setting() -> bool:
    """The setting of the process: a new thread does not see a surrounding `with jax.enable_x64(...)`."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: bool(jax.config.read("jax_enable_x64"))).result()
