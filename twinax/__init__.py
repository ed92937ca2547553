"""twinax: one definition of a learning problem, on PyTorch and on JAX, with proof that they agree.

>>> import twinax as tx
>>> problem = tx.gflownet.problem(tx.envs.Hypergrid(dim=4, side=20))  # doctest: +SKIP
>>> run = tx.train(problem, mode="jax", steps=20_000, seed=0)  # doctest: +SKIP

Every name is imported when it is first used, so `import twinax` loads neither JAX nor PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinax import (
        agents,
        batches,
        bridge,
        deploy,
        engines,
        envs,
        errors,
        gflownet,
        iqn,
        networks,
        noise,
        offline,
        ops,
        parity,
        port,
        ppo,
        runs,
    )
    from twinax.deploy import load
    from twinax.networks import as_torch_module, ema, frozen
    from twinax.optimizer import Optimizer
    from twinax.problem import Problem, State, Terms
    from twinax.runs import Run, resume, train

__version__ = "0.1.0"

__all__ = [
    "Optimizer",
    "Problem",
    "Run",
    "State",
    "Terms",
    "__version__",
    "agents",
    "as_torch_module",
    "batches",
    "bridge",
    "deploy",
    "ema",
    "engines",
    "envs",
    "errors",
    "frozen",
    "gflownet",
    "iqn",
    "load",
    "networks",
    "noise",
    "offline",
    "ops",
    "parity",
    "port",
    "ppo",
    "resume",
    "runs",
    "train",
]

_HOMES = {
    "Optimizer": "twinax.optimizer",
    "Problem": "twinax.problem",
    "Run": "twinax.runs",
    "State": "twinax.problem",
    "Terms": "twinax.problem",
    "as_torch_module": "twinax.networks",
    "ema": "twinax.networks",
    "frozen": "twinax.networks",
    "load": "twinax.deploy",
    "resume": "twinax.runs",
    "train": "twinax.runs",
}
_MODULES = frozenset(__all__) - {*_HOMES, "__version__"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"twinax.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'twinax' has no attribute '{name}'; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
