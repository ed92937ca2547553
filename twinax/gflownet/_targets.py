"""Networks that follow the trained ones: targets that a loss bootstraps from, and means for evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.networks import ema


@checked
@dataclass(frozen=True)
class TargetOptions:
    """How slower networks follow the trained ones."""

    every: int = 0
    """Training steps between two copies of the trained networks to the target networks, from which losses read the
    flow of the next state; 0 makes no such copies."""
    rate: float = 0.0
    """Share by which target networks move towards the trained ones in each training step; 0 for not at all."""
    ema: float = 0.0
    """Share of the past that evaluations and samples keep in each training step, such as 0.999: they then use a running
    mean of the networks. 0 uses the networks themselves."""

    def __post_init__(self):
        if self.every < 0:
            raise TwinaxError(f"targets.every is {self.every}; it must be a number of steps, or 0")
        for name, most in (("rate", 1.0), ("ema", 1.0)):
            if not (0 <= getattr(self, name) <= most and math.isfinite(getattr(self, name))):
                raise TwinaxError(f"targets.{name} is {getattr(self, name)}; it must be between 0 and {most:g}")
        if self.ema == 1:
            raise TwinaxError("targets.ema is 1, which would keep the first networks for ever; it must be below 1")
        if self.every and self.rate:
            raise TwinaxError(
                f"targets.every is {self.every} and targets.rate is {self.rate}; target networks are either copied or "
                "moved: set one of the two to 0"
            )

    def kinds(self, fixed: bool) -> tuple[str, ...]:
        """Which networks there are beside the trained ones; `fixed` ones stay what the trained ones began as."""
        named = {"target": bool(self.every or self.rate), "ema": self.ema > 0, "prior": fixed}
        return tuple(name for name, wanted in named.items() if wanted)

    def init(self, networks: Any, fixed: bool) -> dict[str, Any] | None:
        """Copies of fresh networks by their kind; None if there are none."""
        kinds = self.kinds(fixed)
        return {name: jtu.tree_map(np.copy, networks) for name in kinds} if kinds else None

    def moved(self, targets: dict[str, Any] | None, networks: Any, step: Any) -> dict[str, Any] | None:
        """After the update of a step."""
        if targets is None:
            return None
        moved = dict(targets)
        if "target" in targets:
            # A rate that is 1 in some steps and 0 in all others is a copy now and then.
            now = ops.cast((step + 1) % self.every == 0, jtu.tree_leaves(networks)[0]) if self.every else self.rate
            moved["target"] = ema(targets["target"], networks, now)
        if "ema" in targets:
            moved["ema"] = ema(targets["ema"], networks, 1 - self.ema)
        return moved
