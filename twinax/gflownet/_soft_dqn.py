"""Soft Q-learning as an objective: the value of an action is the log of the flow through its edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.gflownet._scores import Scores
from twinax.gflownet.objectives import Objective, mean_by_end
from twinax.problem import Terms
from twinax.types import Array, Float

DEEPEST = -25.0
"""The log-probability of an action counts as no less, which an action of probability 0 needs."""


@checked
@dataclass(frozen=True)
class SoftDQN(Objective):
    """Q(s, a) = log P_B(s | s') + V(s'), with V(s') = log of the summed exp Q(s', .), and V(x) = log R(x) at the end.

    The right side is that of the target networks, and of the trained ones without their gradient where there are none.
    An end by a rule of the world has a P_B like any other action. Edges are averaged; the last one of a trajectory has
    a weight of its own.
    """

    dueling: bool = False
    """Whether the network gives V(s) as a head of its own, and Q(s, a) = V(s) + log P_F(a | s); otherwise Q(s, a) are
    the logits."""
    munchausen: float = 0.0
    """Share alpha of the log-probability of the action taken that is added to its reward, with an entropy weight of
    1 / (1 - alpha), so that the policy that solves it stays the same; 0 adds nothing."""
    terminal_weight: float = 5.0
    """Weight of a trajectory's last transition, at which the reward is; every other has 1."""
    residual_loss: str = field(default="huber", kw_only=True)
    """What is made of each residual: squared, half (of the square), huber, shifted_cosh or linex."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.munchausen < 1:
            raise TwinaxError(f"munchausen is {self.munchausen}; it must be at least 0 and below 1")
        if not self.terminal_weight > 0:
            raise TwinaxError(f"terminal_weight is {self.terminal_weight}; it must be above 0")

    reads_target = True

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"log_flow"} if self.dueling else {"logit", "log_outflow"})

    @property
    def entropy(self) -> float:
        """Weight of the entropy."""
        return 1 / (1 - self.munchausen)

    def value(self, s: Scores) -> Float[Array, "time batch"]:
        """V of each state."""
        return s.log_flow if self.dueling else self.entropy * s.log_outflow

    def __call__(self, s: Scores) -> tuple[Array, Terms]:
        taken = s.log_flow + self.entropy * s.log_pf if self.dueling else self.entropy * s.logit
        slow: Any = s.target or s
        value = self.value(slow)
        following = ops.where(s.terminal, s.log_reward[None], ops.concat([value[1:], value[:1]]))
        bonus = self.munchausen * ops.clip(self.entropy * slow.log_pf, DEEPEST, 1.0)
        # A learned backward policy learns from its residuals as in detailed balance; values do not chase each other.
        wanted = s.log_pb + ops.stop_gradient(following + bonus)
        losses = self.of_residual(ops.where(s.valid, taken - wanted, 0.0))
        return mean_by_end(losses, s, self.terminal_weight)

    def log_z(self, s: Scores) -> Float[Array, ""]:
        return self.value(s)[0, 0]
