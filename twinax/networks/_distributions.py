"""Distributions of actions: points from given random numbers, log-densities and entropies."""

from __future__ import annotations

import math
from typing import Any

from twinax import ops, tree
from twinax.types import Array, Float, Int


def log_normal(x: Any, mean: Any, log_std: Any) -> Array:
    """The logarithm of each normal density; without a `log_std` the standard deviation is 1."""
    z = x - mean
    constant = -0.5 * math.log(2 * math.pi)
    if log_std is None:
        return constant - 0.5 * z * z
    z = z * ops.exp(-log_std)
    return constant - 0.5 * z * z - log_std


def log_tanh_slope(x: Any) -> Array:
    """log of 1 - tanh(x)^2, without cancellation."""
    return 2 * (math.log(2) - x - ops.softplus(-2 * x))


def gumbel(uniform: Any) -> Array:
    """Gumbel noise from uniform numbers."""
    return -ops.log(-ops.log(uniform))


@tree.record
class Categorical:
    """One of several actions."""

    logits: Float[Array, "*rows actions"]

    @property
    def mode(self) -> Int[Array, "*rows"]:
        """The likeliest action."""
        return ops.argmax(self.logits)

    def sample(self, uniform: Any) -> Int[Array, "*rows"]:
        """An action for each row of uniform numbers, one number for each action."""
        return ops.argmax(self.logits + gumbel(uniform))

    def log_prob(self, action: Any) -> Float[Array, "*rows"]:
        """The logarithm of an action's probability."""
        return ops.take_along(ops.log_softmax(self.logits), action)

    def entropy(self, noise: Any = None) -> Float[Array, "*rows"]:
        """Exactly; no noise is needed."""
        logs = ops.log_softmax(self.logits)
        return -ops.sum(ops.exp(logs) * logs, -1)


@tree.record
class Normal:
    """Independent normal variables; if squashed, the action is their tanh, and points are kept from before it."""

    mean: Float[Array, "*rows actions"]
    log_std: Float[Array, "*rows actions"]
    squashed: bool = tree.static(default=False)

    @property
    def mode(self) -> Float[Array, "*rows actions"]:
        """The mean, before squashing."""
        return self.mean

    def sample(self, normal: Any) -> Float[Array, "*rows actions"]:
        """A point, before squashing, for each row of normal numbers."""
        return self.mean + ops.exp(self.log_std) * normal

    def log_prob(self, point: Any) -> Float[Array, "*rows"]:
        """The logarithm of the density of the action that comes from a point."""
        logs = log_normal(point, self.mean, self.log_std)
        return ops.sum(logs - log_tanh_slope(point) if self.squashed else logs, -1)

    def entropy(self, normal: Any = None) -> Float[Array, "*rows"]:
        """Exactly; of a squashed one estimated at one point, which the given normal numbers pick."""
        exact = self.log_std + 0.5 * (math.log(2 * math.pi) + 1)
        return ops.sum(exact + log_tanh_slope(self.sample(normal)) if self.squashed else exact, -1)
