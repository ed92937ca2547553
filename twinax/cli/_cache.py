"""JAX's compilation cache on disk, so that a second start need not compile again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "TWINAX_CACHE"


def directory() -> Path | None:
    """Where compiled programs are kept; None when TWINAX_CACHE=off. A person's own JAX setting comes first."""
    if os.environ.get(VARIABLE, "").lower() in ("off", "0", "no", "false"):
        return None
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen:
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "twinax" / "xla"


def enable() -> Path | None:
    """Switch the cache on for this process and its children; without a place to write it stays off."""
    path = directory()
    if path is None:
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(path, os.W_OK):
        return None
    # Of each program read from the cache XLA warns, on some processors as an error, that this machine may be another
    # one. What really goes wrong is raised. "1" is what JAX itself sets.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    settings = {
        "jax_compilation_cache_dir": str(path),
        # Small programs too: a start is the sum of many of them.
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        if not os.environ.get(name.upper()):
            os.environ[name.upper()] = str(value)
    jax = sys.modules.get("jax")
    if jax is not None and jax.config.jax_compilation_cache_dir is None:  # too late for the environment
        for name, value in settings.items():
            jax.config.update(name, value)
    return path
