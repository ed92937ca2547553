"""Networks of the offline agents: concatenate the inputs, a perceptron (`MLP.xavier`), a head.

Critics are ensembles; encoders stand outside of them. `None` among the inputs is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from twinax import ops, tree
from twinax.networks import MLP, Encoded, Ensemble, Linear, Normal, join_inputs
from twinax.types import Array, Float

LOG_STD = (-5.0, 2.0)
"""Limits of an actor's learned log standard deviations."""
STDS = ("one", "free", "state")
"""An actor's standard deviation: 1, a learned vector, or a layer."""
HEAD_SCALE = 0.01
"""Scale of the variance of an actor's last weights: its first actions are near zero."""


class Value(eqx.Module):
    """A number, or a vector, for each row of its inputs; an ensemble gives one for each member: (members, rows).

    >>> rng = np.random.default_rng(0)
    >>> Value.init(rng, 3, (8,))(np.zeros((5, 3))).shape, Value.init(rng, 3, (8,), outputs=1)(np.zeros((5, 3))).shape
    ((5,), (5, 1))
    """

    body: Any
    scalar: bool = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | None = None,
        members: int = 1,
        norm: bool = True,
    ) -> Value:
        """Vectors of width `outputs`, also where that is 1; without it, numbers."""

        def make(rng):
            return MLP.xavier(rng, inputs, hidden, 1 if outputs is None else outputs, norm)

        return cls(make(rng) if members == 1 else Ensemble.init(rng, members, make), outputs is None)

    def __call__(self, *parts: Any) -> Array:
        y = self.body(join_inputs(*parts))
        return y[..., 0] if self.scalar else y


class Actor(eqx.Module):
    """Inputs to a distribution of actions."""

    trunk: MLP
    mean: Linear
    log_std: Any
    """None (a standard deviation of 1), a vector, or a layer."""
    squashed: bool = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        hidden: Sequence[int],
        actions: int,
        std: str = "one",
        squashed: bool = False,
        norm: bool = False,
    ) -> Actor:
        """`std` is one, free (a vector) or state (a layer)."""
        trunk = MLP.xavier(rng, inputs, hidden, norm=norm)
        mean = Linear.xavier(rng, hidden[-1], actions, HEAD_SCALE)
        heads: dict[str, Any] = {"one": None, "free": np.zeros(actions, np.float32)}
        log_std = Linear.xavier(rng, hidden[-1], actions, HEAD_SCALE) if std == "state" else heads[std]
        return cls(trunk, mean, log_std, squashed)

    def __call__(self, *parts: Any) -> Normal:
        h = self.trunk(join_inputs(*parts))
        mean = self.mean(h)
        if self.log_std is None:
            return Normal(mean, None, self.squashed)
        log_std = self.log_std(h) if isinstance(self.log_std, Linear) else self.log_std + 0.0 * mean
        return Normal(mean, ops.clip(log_std, *LOG_STD), self.squashed)


class Bilinear(eqx.Module):
    """How likely each goal follows each state and action: phi(s, a) . psi(g) / sqrt(width), all pairs.

    Gives (members, rows, goals).
    """

    phi: Any
    """Of a state and an action: an ensemble, perhaps behind an encoder."""
    psi: Any
    """Of a goal."""
    SIDES: ClassVar = {"phi": "state", "psi": "goal"}
    """What each side places, and its encoder reads: how Flax's files of parameters are read."""

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        goals: int,
        hidden: Sequence[int],
        width: int,
        members: int = 2,
        norm: bool = True,
    ) -> Bilinear:
        def ensemble(size: int) -> Ensemble:
            return Ensemble.init(rng, members, lambda rng: MLP.xavier(rng, size, hidden, width, norm))

        return cls(ensemble(inputs), ensemble(goals))

    def __call__(self, goals: Any, *parts: Any) -> Float[Array, "members rows goals"]:
        return self.pairs(self.phi(*parts), goals)

    def pairs(self, phi: Any, goals: Any) -> Float[Array, "members rows goals"]:
        """The same for states and actions that were placed before."""
        return ops.einsum("eik,ejk->eij", phi, self.psi(goals)) / math.sqrt(phi.shape[-1])


class Metric(eqx.Module):
    """The value of a goal as a distance: -|phi(s) - phi(g)|, (members, rows)."""

    phi: Any
    """Of a state or a goal: an ensemble, perhaps behind an encoder."""
    SIDES: ClassVar = {"phi": "state"}

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        hidden: Sequence[int],
        width: int,
        members: int = 2,
        norm: bool = True,
    ) -> Metric:
        return cls(Ensemble.init(rng, members, lambda rng: MLP.xavier(rng, inputs, hidden, width, norm)))

    def __call__(self, states: Any, goals: Any) -> Float[Array, "members rows"]:
        return self.between(self.phi(states), self.phi(goals))

    def between(self, a: Any, b: Any) -> Float[Array, "members rows"]:
        """The same for states that were placed before."""
        square = ops.sum((a - b) * (a - b), -1)
        return -ops.sqrt(ops.maximum(square, ops.full((), 1e-12, square)))

    def first(self, states: Any) -> Float[Array, "rows width"]:
        """Where the first member places states."""
        phi = self.phi
        if isinstance(phi, Encoded):
            phi, states = phi.net, phi.encoder(states)
        return tree.map_leaves(lambda x: x[0], phi.members)(states)


class Intention(eqx.Module):
    """A normal distribution of latents from a state and an action."""

    trunk: MLP
    mean: Linear
    log_std: Linear

    @classmethod
    def init(
        cls, rng: np.random.Generator, inputs: int, hidden: Sequence[int], width: int, norm: bool = True
    ) -> Intention:
        trunk = MLP.xavier(rng, inputs, hidden, norm=norm)
        return cls(trunk, Linear.xavier(rng, hidden[-1], width), Linear.xavier(rng, hidden[-1], width))

    def __call__(self, *parts: Any) -> Normal:
        h = self.trunk(join_inputs(*parts))
        return Normal(self.mean(h), self.log_std(h), False)


class LogParameter(eqx.Module):
    """A positive number, learned as its logarithm."""

    log: Array

    def __call__(self) -> Array:
        return ops.exp(self.log)
