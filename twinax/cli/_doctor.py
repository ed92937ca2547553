"""Look at this machine: versions, devices, threads, extras, matrix speed, caches and memory.

With a robot's MJCF, look at that instead: parts, pairs that can touch, solver, speed, and what slows it down."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from twinax import __version__
from twinax.cli import _cache, _console

HELP = "versions, devices and speed of this machine, or what slows down a robot's MJCF"

CORE = ("jax", "jaxlib", "equinox", "optax", "numpy", "safetensors", "hydra-core", "omegaconf", "rich", "jaxtyping")
EXTRAS = {
    "torch": ("torch", "the torch and hybrid modes"),
    "matplotlib": ("plots", "pictures in reports"),
    "tensorboard": ("tensorboard", "trainer.tensorboard=true"),
    "gymnasium": ("gymnasium", "env=gymnasium"),
    "gymnax": ("gymnax", "env=gymnax"),
    "brax": ("brax", "env=brax"),
    "mujoco": ("mujoco", "walking robots"),
    "mujoco-mjx": ("mujoco", "robots on accelerators"),
    "onnx": ("export", "policies as ONNX"),
    "onnxruntime": ("export", "policies as ONNX"),
}
"""Package to the extra that installs it and what it is for."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("robot", nargs="?", metavar="ROBOT.xml", help="an MJCF to look at instead of the machine")
    parser.add_argument("--quick", action="store_true", help="leave out the speed measurement")


def run(found: Namespace) -> int:
    if found.robot is not None:
        from twinax.cli import _robot_doctor

        return _robot_doctor.examine(Path(found.robot), 0.0 if found.quick else 0.5)
    import jax

    from twinax.conf.limits import GIGABYTE
    from twinax.memory import available_memory

    missing = [name for name in CORE if version(name) is None]
    devices = ", ".join(f"{device.platform} {device.device_kind}" for device in jax.devices())
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    _console.facts(
        {
            "twinax": __version__,
            "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            "devices": devices,
            "threads": f"{threads} of {os.cpu_count()} processors",
            "memory": f"{available_memory() / GIGABYTE:.1f} GB free",
            "disk": f"{shutil.disk_usage('.').free / GIGABYTE:.1f} GB free here, runs/ {_writable(Path('runs'))}",
            "compilation cache": cache_state(),
        }
    )
    _console.table("needed", ("package", "version"), [(name, version(name) or "MISSING") for name in CORE], 2)
    rows = []
    for name, (extra, purpose) in EXTRAS.items():
        rows.append((name, version(name) or "not installed", purpose, f"pip install 'twinax[{extra}]'"))
    _console.table("extras", ("package", "version", "for", "to install"), rows, 4)
    if not found.quick:
        _console.table("product of two 1024 x 1024 float32 matrices", ("with", "GFLOP/s"), matrix_rates())
    if missing:
        print(f"missing: pip install {' '.join(missing)}")
    return 1 if missing else 0


def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    import importlib.metadata  # here, because it alone would cost the help a tenth of a second

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cache_state() -> str:
    """Where compiled programs are kept, and whether that works."""
    path = _cache.directory()
    if path is None:
        return f"off ({_cache.VARIABLE}=off)"
    files = [file for file in path.glob("*") if file.is_file()] if path.is_dir() else []
    size = sum(file.stat().st_size for file in files) / 1e6
    return f"{path} ({_writable(path)}, {len(files)} programs, {size:.1f} MB)"


def matrix_rates(size: int = 1024, repeats: int = 5) -> list[tuple[str, float]]:
    """GFLOP/s of each framework that is installed: the best of a few products."""
    import jax
    import jax.numpy as jnp

    product = jax.jit(jnp.matmul)
    ones = jnp.ones((size, size), jnp.float32)
    rates = [("jax", _rate(lambda: jax.block_until_ready(product(ones, ones)), size, repeats))]
    if importlib.util.find_spec("torch") is not None:
        import torch

        tensor = torch.ones(size, size)
        rates.append(("torch", _rate(lambda: tensor @ tensor, size, repeats)))
    return rates


def _rate(function: Any, size: int, repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times) / 1e9


def _writable(path: Path) -> str:
    while not path.exists() and path != path.parent:
        path = path.parent
    return "writable" if os.access(path, os.W_OK) else "NOT writable"
