"""Engines: how a problem is run. Same interface, same state, same checkpoint."""

from __future__ import annotations

from typing import Any

from twinax.arguments import checked
from twinax.engines._draw_blocks import DrawBlocks
from twinax.engines._engine import QUICK_COMPILE, Engine, NonFinite
from twinax.engines._hosts import agreed, is_leader, join, num_processes, provide_devices
from twinax.engines._memory import check_memory
from twinax.engines._threads import one_torch_thread
from twinax.errors import require
from twinax.platforms import find_devices, jax_device
from twinax.problem import Problem
from twinax.train_options import ALIASES, MODES, TrainOptions, choose_options, mode_name

__all__ = [
    "ALIASES",
    "MODES",
    "QUICK_COMPILE",
    "DrawBlocks",
    "Engine",
    "NonFinite",
    "agreed",
    "check_memory",
    "is_leader",
    "join",
    "make_engine",
    "mode_name",
    "num_processes",
    "one_torch_thread",
    "provide_devices",
]


@checked
def make_engine(problem: Problem, options: TrainOptions | None = None, **changed: Any) -> Engine:
    """The engine that options ask for; `changed` are fields of `TrainOptions`.

    >>> make_engine(problem, mode="torch", dtype="float64")                 # doctest: +SKIP
    """
    chosen = choose_options(options, changed)
    problem.compile.check(chosen.mode, chosen.seeds, chosen.devices)
    if chosen.dtype == "float64":
        import jax

        jax.config.update("jax_enable_x64", True)
    find_devices()
    check_memory(problem, chosen)
    if chosen.mode == "jax":
        from twinax.engines._seed_threads import SeedThreads
        from twinax.engines.jax_engine import JaxEngine

        threads = chosen.seeds_as == "threads" or (chosen.seeds_as == "auto" and _on_cpu(chosen.device))
        return SeedThreads(problem, chosen) if chosen.seeds > 1 and threads else JaxEngine(problem, chosen)
    require("torch", "torch", f"trainer.mode={chosen.mode}")
    if chosen.mode == "hybrid":
        from twinax.engines._hybrid import HybridEngine

        return HybridEngine(problem, chosen)
    from twinax.engines.torch_engine import TorchEngine

    return TorchEngine(problem, chosen)


def _on_cpu(device: str) -> bool:
    return (jax_device(device) or find_devices()[0]).platform == "cpu"
