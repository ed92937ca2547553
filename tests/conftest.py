"""Settings of the whole test run, made before JAX is first imported."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parent / ".cache" / "jax"

# Programs compiled by an earlier run are read from disk; commands started by the tests inherit this.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Programs need not know which line each of their operations comes from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Two test workers on two cores: a thread pool in each would only compete with the other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell lets its background jobs ignore Ctrl-C, and what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The key by which this user's own runs are known must not go to the home of who runs the tests.
os.environ["XDG_STATE_HOME"] = str(_CACHE.parent / "state")
# Plots are written to files, never shown.
os.environ.setdefault("MPLBACKEND", "agg")

# Property tests try the same examples in every run, and a slow machine does not fail them.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")


QUICK = ("backend_optimization_level=0", "llvm_disable_expensive_passes=true", "cpu_use_fusion_emitters=false")


def pytest_configure(config: pytest.Config) -> None:
    """Programs of quick tests run for a moment: compiling them well would take longer than running them badly."""
    if "not slow" in (config.option.markexpr or ""):
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *(f"--xla_{flag}" for flag in QUICK)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `slow.txt` lists; a line that names nothing any more is said when all tests are collected."""
    whole = {"tests", "twinax"} <= {item.nodeid.partition("/")[0] for item in items}
    for line in (_HERE / "slow.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        begins, *stays = line.split(" !")
        listed = {item: item.nodeid.partition("[")[2].removesuffix("]") for item in items if _begins(item, begins)}
        if whole and (not listed or not set(stays) <= set(listed.values())):
            raise pytest.UsageError(f"tests/slow.txt names what there is not: {line}")
        for item, case in listed.items():
            if case not in stays:
                item.add_marker(pytest.mark.slow)


def _begins(item: pytest.Item, begins: str) -> bool:
    name = item.nodeid
    return name.startswith(begins) and ("[" in begins or name[len(begins) : len(begins) + 1] in ("", "["))


@pytest.fixture(autouse=True)
def _single_precision_afterwards():
    """A float64 engine switches JAX to 64 bits for the process; the next test starts from the default."""
    yield
    jax = sys.modules.get("jax")
    if jax is not None and jax.config.jax_enable_x64:
        jax.config.update("jax_enable_x64", False)


@pytest.fixture
def unchecked():
    """Annotations are not checked in this test: it passes a wrong type, as people who run no checker can."""
    import jaxtyping

    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture
def double_precision():
    """JAX in 64 bits for one test."""
    import jax

    jax.config.update("jax_enable_x64", True)


@pytest.fixture
def quick_compilation():
    """The programs here run for a moment only: compiling them well would take longer than running them badly."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
