"""Look at this machine: versions, devices, threads, extras, matrix speed, caches and memory.

With a file, such as a robot's MJCF, look at that instead: parts, pairs that can touch, solver, speed, and what slows it
down."""

from __future__ import annotations

import os
import platform
import shutil
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinax import __version__, console
from twinax.cli import _cache
from twinax.commands import EXAMINERS
from twinax.errors import TwinaxError
from twinax.platforms import CUDA_FOR_JAX, CUDA_FOR_TORCH, explain, find_devices, torch_build, torch_devices

HELP = "versions, devices and speed of this machine, or what slows down a robot's MJCF"

CORE = ("jax", "jaxlib", "equinox", "optax", "numpy", "safetensors", "hydra-core", "omegaconf", "rich", "jaxtyping")
EXTRAS = {
    "torch": ("torch", "the torch and hybrid modes"),
    "matplotlib": ("plots", "pictures in reports"),
    "tensorboard": ("tensorboard", "logger=tensorboard"),
    "wandb": ("wandb", "logger=wandb"),
    "mlflow-skinny": ("mlflow", "logger=mlflow"),
    "trackio": ("trackio", "logger=trackio"),
    "gymnasium": ("gymnasium", "env=gymnasium"),
    "gymnax": ("gymnax", "env=gymnax"),
    "brax": ("brax", "env=brax"),
    "flax": ("flax", "bridge.convert"),
    "ViennaRNA": ("rna", "env=rna"),
    "mujoco": ("mujoco", "walking robots"),
    "mujoco-mjx": ("mujoco", "robots on accelerators"),
    "rdkit": ("molecules", "env=molecules"),
    "onnx": ("export", "policies as ONNX"),
    "onnxruntime": ("export", "policies as ONNX"),
}
"""Package to the extra that installs it and what it is for."""
JAX_PLUGINS = ("jax-cuda", "jax-rocm", "jax-metal", "libtpu", "jax_cuda", "jax_rocm")
"""How packages begin that bring JAX another kind of device."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="ROBOT.xml", help="an MJCF to look at instead of the machine")
    parser.add_argument("--quick", action="store_true", help="leave out the speed measurement")


def run(arguments: Namespace) -> int:
    if arguments.file is not None:
        return examine(Path(arguments.file), 0.0 if arguments.quick else 0.5)
    from twinax.memory import GIGABYTE, available_memory

    missing = [name for name in CORE if version(name) is None]
    # What is wrong with one part must not hide the others.
    wrong = [sentence for sentence in (wrong_flags(), old_jax()) if sentence]
    builds = {name: _build(name, facts, wrong) for name, facts in BUILDS.items()}
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    console.facts(
        {
            "twinax": __version__,
            "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            **builds,
            "threads": f"{threads} of {os.cpu_count()} processors",
            "memory": f"{available_memory() / GIGABYTE:.1f} GB free",
            "disk": f"{shutil.disk_usage('.').free / GIGABYTE:.1f} GB free here, runs/ {_writable(Path('runs'))}",
            "compilation cache": cache_state(),
        }
    )
    console.table("needed", ("package", "version"), [(name, version(name) or "MISSING") for name in CORE], 2)
    rows = []
    for name, (extra, purpose) in EXTRAS.items():
        rows.append((name, version(name) or "not installed", purpose, f"pip install 'twinax[{extra}]'"))
    console.table("extras", ("package", "version", "for", "to install"), rows, 4)
    if not arguments.quick:
        rates = [(name, _measured(rate, name, wrong)) for name, rate in RATES.items() if version(name) is not None]
        console.table("product of two 1024 x 1024 float32 matrices", ("with", "GFLOP/s"), rates)
    if missing:
        wrong.append(f"missing: pip install {' '.join(missing)}")
    for sentence in dict.fromkeys(wrong):
        print(sentence)
    return 1 if wrong else 0


def examine(path: Path, seconds: float) -> int:
    """Look at a file, with what knows its kind."""
    if not path.exists():
        raise TwinaxError(f"there is no file {path}")
    kind, known = path.suffix.removeprefix("."), EXAMINERS
    if kind not in {*known, *known.aliases, *known.installed}:
        ends = ", ".join(f".{end}" for end in (*known, *known.aliases, *known.installed))
        raise TwinaxError(f"doctor cannot look at '{path}': it knows files that end in {ends}")
    return known.find(kind)(path, seconds)


def jax_facts() -> tuple[str, str, str]:
    """What JAX is built for, what it sees, and how to install another build."""
    import importlib.metadata

    names = sorted({str(distribution.name) for distribution in importlib.metadata.distributions() if distribution.name})
    plugins = [f"{name} {version(name)}" for name in names if name.startswith(JAX_PLUGINS)]
    seen = ", ".join(f"{device.platform} ({device.device_kind})" for device in find_devices())
    return ", ".join(["CPU", *plugins]), seen, CUDA_FOR_JAX


def torch_facts() -> tuple[str, str, str]:
    """The same of PyTorch."""
    return torch_build(), ", ".join(torch_devices()), CUDA_FOR_TORCH


BUILDS = {"jax": jax_facts, "torch": torch_facts}


def _build(name: str, facts: Callable[[], tuple[str, str, str]], wrong: list[str]) -> str:
    """Which build is installed and what it sees; a package that does not work gets a sentence of its own."""
    if (installed := version(name)) is None:
        return "not installed"
    try:
        built, seen, other = facts()
    except (TwinaxError, *_BROKEN) as error:
        wrong.append(str(error) if isinstance(error, TwinaxError) else f"{name} cannot be imported: {_line(error)}")
        return f"{installed}, sees no device that it can use"
    return f"{installed}, built for {built}, sees {seen}; {other}"


def wrong_flags() -> str | None:
    """What XLA says of XLA_FLAGS that it does not know; it would end this process, so another one asks it."""
    import subprocess
    import sys

    flags = os.environ.get("XLA_FLAGS")
    if not flags:
        return None
    asked = [sys.executable, "-c", "import jax; jax.devices('cpu')"]
    done = subprocess.run(
        asked, capture_output=True, text=True, check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    said = next((line for line in done.stderr.splitlines() if "XLA_FLAGS" in line), None)
    if done.returncode == 0 or said is None:
        return None
    del os.environ["XLA_FLAGS"]
    reason = said.partition("] ")[2]
    return f"XLA_FLAGS={flags} ends every process that uses JAX ({reason}); unset or correct it"


def old_jax(least: tuple[int, int] = (0, 8)) -> str | None:
    """A sentence where JAX is older than what this library is written for."""
    installed = version("jax")
    numbers = tuple(int(part) for part in (installed or "").split(".")[:2] if part.isdigit())
    if len(numbers) < 2 or numbers >= least:
        return None
    wanted = ".".join(map(str, least))
    return f"jax {installed} is too old, {wanted} or newer is needed: pip install --upgrade 'jax>={wanted}'"


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


def jax_rate(size: int = 1024, repeats: int = 5) -> float:
    """GFLOP/s of JAX: the best of a few products."""
    import jax
    import jax.numpy as jnp

    product = jax.jit(jnp.matmul)
    ones = jnp.ones((size, size), jnp.float32)
    return _rate(lambda: jax.block_until_ready(product(ones, ones)), size, repeats)


def torch_rate(size: int = 1024, repeats: int = 5) -> float:
    """The same of PyTorch."""
    import torch

    tensor = torch.ones(size, size, device="cpu")
    return _rate(lambda: tensor @ tensor, size, repeats)


RATES = {"jax": jax_rate, "torch": torch_rate}
_BROKEN = (ImportError, OSError, RuntimeError, AttributeError, AssertionError)
"""What a library raises that is installed and does not work: parts that are missing, or do not fit each other."""


def _measured(rate: Any, name: str, wrong: list[str]) -> float | None:
    """The rate, or none and a sentence."""
    try:
        return rate()
    except _BROKEN as error:
        wrong.append(explain(error) or f"{name} is installed and does not work: {_line(error)}")
        return None


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
