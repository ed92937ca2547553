"""How behaviour departs from the policy while collecting; losses see of it which heads learn, and intrinsic rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet._heads import heads_of
from twinax.types import Array, Bool, Float, Int

FORMS = ("trajectory", "edge")
LEAST = 1e-6
"""The smallest temperature: logits of a diverging policy that are divided by it still fit into a float32."""


@checked
@dataclass(frozen=True)
class Exploration:
    """Epsilon-uniform choices and a temperature, each going linearly from start to end; heads that take turns, and
    rewards for what is new.

    >>> Exploration(thompson_heads=8, intrinsic=0.1, intrinsic_steps=2000).thompson
    True
    """

    epsilon: float = 0.0
    """Probability that an action is uniformly random among the allowed ones, at the first training step."""
    epsilon_end: float = 0.0
    """Probability of a random action after `epsilon_steps` training steps; not used when `epsilon_steps` is 0."""
    epsilon_steps: int = 0
    """Training steps over which the probability of a random action goes from `epsilon` to `epsilon_end` in a
    straight line; 0 keeps `epsilon`."""
    per_trajectory: bool = False
    """Whether `epsilon` is the probability that all actions of a trajectory are random; otherwise that of each action
    on its own."""
    temperature: float = 1.0
    """Number by which logits are divided when acting, at the first training step; above 1 the policy is flatter."""
    temperature_end: float = 1.0
    """The number by which logits are divided after `temperature_steps` training steps; not used when
    `temperature_steps` is 0."""
    temperature_steps: int = 0
    """Training steps over which the temperature goes from `temperature` to `temperature_end` in a straight line; 0
    keeps `temperature`."""
    thompson_heads: int = 1
    """Forward heads of the policy. Where there are several, each fresh trajectory is drawn by one of them, and
    evaluations and samples use the mean of their logits."""
    bootstrap: float = 0.3
    """Probability that a head learns from a trajectory that another head is in charge of; not used with one head."""
    intrinsic: float = 0.0
    """Scale of the reward for what is new, at the first training step: how far a network is from foretelling what
    another one, which is never trained, makes of a state; 0 for none."""
    intrinsic_steps: int = 0
    """Training steps over which `intrinsic` goes to 0 in a straight line, because what is new has more than its share
    until then; 0 keeps `intrinsic`."""
    intrinsic_form: str = "trajectory"
    """What is rewarded for being new: trajectory (finished objects) or edge (every state that an action leads to, for
    objectives that learn a flow of states)."""
    intrinsic_widths: tuple[int, ...] = (256, 256, 128)
    """Widths of the layers of both networks that tell what is new; the last is that of what they make of a state."""

    def __post_init__(self):
        for name in ("epsilon", "epsilon_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise TwinaxError(f"exploration.{name} is {getattr(self, name)}; it must be between 0 and 1")
        for name in ("temperature", "temperature_end"):
            if not LEAST <= getattr(self, name) <= 1 / LEAST:
                raise TwinaxError(
                    f"exploration.{name} is {getattr(self, name)}; it must be between {LEAST:g}, which is greedy, and "
                    f"{1 / LEAST:g}, which is uniform"
                )
        for name in ("epsilon_steps", "temperature_steps", "intrinsic_steps", "intrinsic"):
            if not 0 <= getattr(self, name) < np.inf:
                raise TwinaxError(f"exploration.{name} is {getattr(self, name)}; it must be finite and not negative")
        if self.thompson_heads < 1:
            raise TwinaxError(
                f"exploration.thompson_heads is {self.thompson_heads}; it must be at least 1, which is a plain policy"
            )
        if not 0 < self.bootstrap <= 1:
            raise TwinaxError(f"exploration.bootstrap is {self.bootstrap}; it must be above 0 and at most 1")
        if self.intrinsic_form not in FORMS:
            raise UnknownName("form of intrinsic rewards", self.intrinsic_form, FORMS)
        if not self.intrinsic_widths or min(self.intrinsic_widths) < 1:
            raise TwinaxError(
                f"exploration.intrinsic_widths is {list(self.intrinsic_widths)}; there must be at least one width, and "
                "each must be at least 1"
            )

    @property
    def thompson(self) -> bool:
        """Whether there are several forward heads."""
        return self.thompson_heads > 1

    def heads(self, uniform: Float[Array, "batch numbers"]) -> tuple[Int[Array, " batch"], Bool[Array, "batch heads"]]:
        """The head in charge of each trajectory, and which heads learn from it."""
        return heads_of(uniform, self.bootstrap)

    def explore(self, uniform: Float[Array, "time batch"]) -> Float[Array, "time batch"]:
        """Of the numbers that decide where actions are random those that count."""
        return ops.broadcast(uniform[:1], uniform.shape) if self.per_trajectory else uniform

    def settings(self) -> dict[str, np.ndarray]:
        """The numbers as arrays, so that changing them compiles nothing anew."""
        pairs = {
            "epsilon": (self.epsilon, self.epsilon_end, self.epsilon_steps),
            "temperature": (self.temperature, self.temperature_end, self.temperature_steps),
        }
        if self.intrinsic:
            pairs["intrinsic"] = (self.intrinsic, 0.0, self.intrinsic_steps)
        return {name: np.array(values, np.float32) for name, values in pairs.items()}


def scheduled(values: Float[Array, " 3"], step: Any) -> Float[Array, ""]:
    """(start, end, steps) at a step: linear, then constant."""
    start, end, steps = values[0], values[1], values[2]
    done = ops.clip(ops.cast(step, values) / ops.where(steps > 0, steps, 1.0), 0.0, 1.0)
    return ops.where(steps > 0, start + (end - start) * done, start)


WIDE = 64
"""Spaces of more actions than this are drawn by levels: a number for each action would cost more than the policy."""


def action_draws(actions: int, shape: tuple[int, ...]) -> int:
    """How many uniform numbers choose one of so many actions, which are arranged in a shape."""
    return actions if actions <= WIDE else len(shape)


def sample_actions(
    logits: Float[Array, "batch actions"],
    mask: Bool[Array, "batch actions"],
    uniform: Float[Array, "batch numbers"],
    explore: Float[Array, " batch"],
    epsilon: Any,
    temperature: Any,
    shape: tuple[int, ...] = (),
) -> Int[Array, " batch"]:
    """Equal draws give equal actions in every framework: the arg-max of logits plus Gumbel draws where there is a
    number for each action, otherwise level by level of the shape, with one number for each."""
    logits = ops.where((explore < epsilon)[..., None], 0.0 * logits, logits / temperature)
    if action_draws(logits.shape[-1], shape) < logits.shape[-1]:
        return _by_levels(logits, mask, uniform, shape)
    gumbel = -ops.log(-ops.log(uniform))
    # Minus infinity, since logits divided by a small temperature may be below any finite number.
    return ops.argmax(ops.where(mask, logits + gumbel, -np.inf))


def _by_levels(logits: Array, mask: Array, uniform: Array, shape: tuple[int, ...]) -> Int[Array, " batch"]:
    """A place by the weight of its words, then one of its words; with one level just the word."""
    highest = ops.max(ops.where(mask, logits, -np.inf), -1)[..., None]
    # In a row in which nothing is allowed the highest is minus infinity, and every action as good as any.
    weights = ops.where(mask, ops.exp(ops.where(mask, logits - highest, 0.0)), 0.0)
    if len(shape) == 1:
        return _inverse(weights, uniform[..., 0])
    places, words = shape
    by_place = weights.reshape(-1, places, words)
    place = _inverse(ops.sum(by_place, -1), uniform[..., 0])
    row = ops.arange(by_place.shape[0], place) * places + place
    word = _inverse(ops.take(by_place.reshape(-1, words), ops.cast(row, "int32")), uniform[..., 1])
    return ops.cast(place * words + word, "int32")


def _inverse(weights: Float[Array, "batch choices"], uniform: Float[Array, " batch"]) -> Int[Array, " batch"]:
    """The first choice at which the running sum of weights passes a share of the whole; never one of weight 0."""
    running = ops.cumsum(weights, -1)
    passed = ops.sum(ops.cast(running <= uniform[..., None] * running[..., -1:], "int32"), -1)
    places = ops.arange(weights.shape[-1], passed)
    last = ops.max(ops.where(weights > 0, places, 0), -1)
    return ops.cast(ops.where(passed < last, passed, last), "int32")
