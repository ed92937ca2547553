"""Engines: how a problem is run. Same interface, same state, same checkpoint."""

from __future__ import annotations

from twinax.engines._engine import QUICK_COMPILE, Engine, NonFinite
from twinax.engines._threads import one_torch_thread
from twinax.errors import TwinaxError, UnknownName, require
from twinax.platforms import find_devices
from twinax.problem import Problem

MODES = ("torch", "hybrid", "jax")
ALIASES = {"legacy": "torch"}
SEEDS_AS = ("auto", "threads", "program")

__all__ = ["ALIASES", "MODES", "QUICK_COMPILE", "Engine", "NonFinite", "make_engine", "mode_name", "one_torch_thread"]


def mode_name(mode: str) -> str:
    """The mode behind a name or alias; unknown names list the known ones."""
    name = ALIASES.get(mode, mode) if isinstance(mode, str) else None
    if name not in MODES:
        raise UnknownName("trainer.mode", mode, (*MODES, *ALIASES))
    return name


def check_engine(
    mode: str, problem: Problem, *, dtype: str, chunk: int, seeds: int, noise: str, devices: int = 1
) -> str:
    """Refuse what `make_engine` would, and make nothing; the mode's own name."""
    name = mode_name(mode)
    if dtype not in ("float32", "float64"):
        raise UnknownName("dtype", dtype, ("float32", "float64"))
    if noise not in ("shared", "native"):
        raise UnknownName("noise", noise, ("shared", "native"))
    if chunk < 1:
        raise TwinaxError(f"the chunk is {chunk} steps; it must be at least 1")
    if seeds < 1:
        raise TwinaxError(f"seeds is {seeds}; it must be at least 1")
    if seeds > 1 and name != "jax":
        raise TwinaxError(f"seeds={seeds} needs trainer.mode=jax; mode {name} trains one seed at a time")
    if devices < 1:
        raise TwinaxError(f"devices is {devices}; it must be at least 1")
    if devices > 1 and (name != "jax" or seeds > 1):
        raise TwinaxError(f"devices={devices} needs trainer.mode=jax and seeds=1, not mode {name} with {seeds} seeds")
    if noise == "native" and name != "torch":
        raise TwinaxError(f"noise=native is PyTorch's own stream and needs trainer.mode=torch, not {name}")
    problem.check_mode(name, seeds, devices)
    return name


def make_engine(
    mode: str,
    problem: Problem,
    *,
    dtype: str = "float32",
    chunk: int = 100,
    seeds: int = 1,
    noise: str = "shared",
    devices: int = 1,
    seeds_as: str = "auto",
) -> Engine:
    """The engine for a mode.

    `chunk` is the most steps run between two looks of the host; `seeds` trains several seeds at once (jax
    mode); `noise` is "shared" (the same draws in every mode) or "native" (PyTorch's own stream, torch mode);
    `devices` share out the worlds of a problem that allows it (jax mode). `seeds_as` is how seeds are trained at
    once: "program" is one program for all of them, "threads" a thread for each, "auto" threads on a CPU.
    """
    if seeds_as not in SEEDS_AS:
        raise UnknownName("seeds_as", seeds_as, SEEDS_AS)
    name = check_engine(mode, problem, dtype=dtype, chunk=chunk, seeds=seeds, noise=noise, devices=devices)
    if dtype == "float64":
        import jax

        jax.config.update("jax_enable_x64", True)
    find_devices()
    if name == "jax":
        from twinax.engines._jax import JaxEngine
        from twinax.engines._seed_threads import SeedThreads

        if seeds > 1 and (seeds_as == "threads" or (seeds_as == "auto" and _on_cpu())):
            return SeedThreads(problem, dtype=dtype, chunk=chunk, seeds=seeds)
        return JaxEngine(problem, dtype=dtype, chunk=chunk, seeds=seeds, devices=devices)
    require("torch", "torch", f"trainer.mode={name}")
    if name == "hybrid":
        from twinax.engines._hybrid import HybridEngine

        return HybridEngine(problem, dtype=dtype, chunk=chunk)
    from twinax.engines._torch import TorchEngine

    return TorchEngine(problem, dtype=dtype, chunk=chunk, noise=noise)


def _on_cpu() -> bool:
    import jax

    return jax.default_backend() == "cpu"
