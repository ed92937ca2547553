"""What an offline agent has to say: its networks, a list of losses for each phase, and what its targets do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.noise import Draw

Batch = Mapping[str, Any]
"""Rows of the data by name: observations, actions, next_observations, rewards, masks, and what `needs` adds."""
Terms = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Widths of what the data holds, and rows of a batch."""

    observation: int
    action: int
    batch: int = 256


@dataclass(frozen=True)
class Nets:
    """The networks that a loss sees, by name."""

    online: Mapping[str, Any]
    """Differentiated."""
    fixed: Mapping[str, Any]
    """The same with constant parameters: gradients pass to the inputs, not to the network."""
    target: Mapping[str, Any]
    """Slow copies; constant as well."""


Loss = Callable[[Nets, Batch, Mapping[str, Any]], tuple[Any, Terms]]
"""(networks, batch, draws) -> (scalar, terms)"""


@dataclass(frozen=True, eq=False)
class Agent(ABC):
    """Options that all agents have; those of an agent follow. Calls give the sum of its losses.

    In a step every loss of the phase is added up and differentiated once; those in `gated` only at every `actor_freq`-th
    step of finetuning. Targets follow before the step, `rate` of the way to the networks of before it.
    """

    hidden: tuple[int, ...] = (512, 512, 512, 512)
    """Widths of the hidden layers of every network."""
    discount: float = 0.99
    """Of a step."""
    target_rate: float = 0.005
    """How far targets move in a step."""
    actor_freq: int = 4
    """Finetuning steps between two of the gated losses."""
    actor_norm: bool = False
    """LayerNorm in the actor."""
    value_norm: bool = True
    """LayerNorm in values and critics."""
    faithful: bool = False
    """The released behaviour, its errors included."""

    name: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    """Fields of a batch beyond those that every batch has: next_actions, value_goals, actor_goals."""
    targets: ClassVar[tuple[str, ...]] = ()
    """Networks that have a target."""
    gated: ClassVar[tuple[str, ...]] = ("actor",)
    """Losses of finetuning that are left out between two full steps."""
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": (), "finetune": ()}
    """Targets that follow in each phase."""
    follows_when_full: ClassVar[bool] = False
    """Whether targets follow in full steps of finetuning only."""
    resets: ClassVar[tuple[str, ...]] = ()
    """Targets that become copies when finetuning begins."""

    def __post_init__(self):
        if not self.hidden or min(self.hidden) < 1:
            raise TwinaxError(f"hidden is {list(self.hidden)}; it needs widths of at least 1")
        for label in ("discount", "target_rate"):
            if not 0 <= getattr(self, label) <= 1:
                raise TwinaxError(f"{label} is {getattr(self, label)}; it must be between 0 and 1")
        if self.actor_freq < 1:
            raise TwinaxError(f"actor_freq is {self.actor_freq}; it must be at least 1")

    @abstractmethod
    def networks(self, rng: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
        """The networks with their first weights, by name."""

    @abstractmethod
    def losses(self, phase: str) -> dict[str, Loss]:
        """The losses of a phase (pretrain, finetune), by the name under which their terms are logged."""

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        """Random arrays that the losses of a phase need."""
        return {}

    def act(self, networks: Mapping[str, Any], observations: Any, latent: Any, noise: Any, temperature: float) -> Any:
        """Actions for rows of observations; temperature 0 is the mode."""
        distribution = networks["actor"](observations, latent)
        action = distribution.mode if temperature == 0 else distribution.sample(noise, temperature)
        return ops.clip(action, -1, 1)


def latent_of(batch: Batch) -> Any:
    """The latent of each row, where a phase has one."""
    return batch.get("latents")


def cloning_terms(distribution: Any, batch: Batch, loss: Any) -> Terms:
    """What is logged of behavioural cloning."""
    away = distribution.mode - batch["actions"]
    return {"bc_loss": loss, "bc_log_prob": -loss, "mse": ops.mean(away * away)}
