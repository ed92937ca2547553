"""An offline agent and its data as a problem: one step is one update, first of pretraining, then of finetuning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.errors import TwinaxError
from twinax.networks import ema, frozen
from twinax.noise import Draw
from twinax.offline._agent import Agent, Nets, Sizes
from twinax.optimizer import Moments, Optimizer
from twinax.problem import Metrics, Problem, State

PHASES = ("pretrain", "finetune")


@tree.record
class Lesson:
    """What one update learns from."""

    rows: dict[str, Any]
    """A batch."""
    draws: dict[str, Any]
    """Random arrays of the losses."""
    targets: dict[str, Any]
    """Target networks."""
    phase: str = tree.static()
    full: bool = tree.static()
    """Whether gated losses take part."""


@dataclass(frozen=True, eq=False)
class Offline(Problem):
    """See `problem`, which fills in the defaults."""

    agent: Agent
    sizes_: Sizes
    optimizer: Optimizer
    pretrain_steps: int

    def init(self, seed: int) -> State:
        rng = np.random.default_rng(seed)
        networks = self.agent.networks(rng, self.sizes_)
        targets = {name: tree.map_leaves(np.copy, networks[name]) for name in self.agent.targets}
        return State(
            networks=networks,
            targets=targets,
            carry={"terms": {name: np.zeros((), np.float32) for name in self.term_names()}},
            optimizer=Moments.zeros(networks),
            step=np.zeros((), np.int32),
            seed=np.array(seed, np.uint32),
        )

    def loss(self, networks, batch: Lesson, size: int | None = None) -> tuple[Any, Metrics]:
        nets = Nets(networks, frozen(networks), frozen(batch.targets))
        total, terms = 0.0, {}
        for name, one in self.agent.losses(batch.phase).items():
            if batch.phase == "finetune" and not batch.full and name in self.agent.gated:
                continue
            value, found = one(nets, batch.rows, batch.draws)
            total = total + value
            terms |= {f"{name}.{key}": term for key, term in found.items()}
        return total, terms
