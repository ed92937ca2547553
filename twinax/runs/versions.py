"""Which versions a run was made with, without importing the packages."""

from __future__ import annotations

import platform
from importlib import metadata

_PACKAGES = ("jax", "jaxlib", "torch", "numpy", "equinox", "optax", "safetensors")


def versions() -> dict[str, str | None]:
    """Installed versions by package; None for what is not installed."""
    import twinax

    by_package: dict[str, str | None] = {"twinax": twinax.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            by_package[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            by_package[package] = None
    return by_package
