"""Distributions of actions: samples from given random numbers, log-densities and entropies.

`mode`, `sample` and `log_prob` speak of actions. A learner that comes back to what it did keeps points, from before an
action is squashed: nothing is lost there by rounding. `point` and `log_prob_at` speak of these.
"""

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
    """One of several actions.

    >>> import numpy as np
    >>> policy = Categorical(np.log([[0.1, 0.6, 0.3]]))
    >>> policy.mode.tolist(), policy.log_prob(np.array([1])).round(3).tolist()
    ([1], [-0.511])
    """

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

    def point(self, uniform: Any = None) -> Int[Array, "*rows"]:
        """A sample, or without random numbers the mode: an action is its own point."""
        return self.mode if uniform is None else self.sample(uniform)

    def log_prob_at(self, point: Any) -> Float[Array, "*rows"]:
        """The same as `log_prob`."""
        return self.log_prob(point)

    def entropy(self, noise: Any = None) -> Float[Array, "*rows"]:
        """Exactly; no noise is needed."""
        logs = ops.log_softmax(self.logits)
        return -ops.sum(ops.exp(logs) * logs, -1)


@tree.record
class Normal:
    """Independent normal variables; if squashed, the action is their tanh.

    >>> import numpy as np
    >>> policy = Normal(np.array([[0.5]]), None, squashed=True)
    >>> policy.mode.round(3).tolist(), policy.point().tolist()
    ([[0.462]], [[0.5]])
    """

    mean: Float[Array, "*rows actions"]
    """Before squashing."""
    log_std: Float[Array, "*rows actions"] | None
    """Before squashing; None is a standard deviation of 1."""
    squashed: bool = tree.static(default=False)

    @property
    def mode(self) -> Float[Array, "*rows actions"]:
        """The action at the mean."""
        return self._action(self.mean)

    def sample(self, normal: Any, temperature: float = 1.0) -> Float[Array, "*rows actions"]:
        """An action for each row of normal numbers; gradients flow through it."""
        return self._action(self.point(normal, temperature))

    def log_prob(self, action: Any) -> Float[Array, "*rows"]:
        """The logarithm of an action's density; of a squashed one inside (-1, 1)."""
        return self.log_prob_at(0.5 * (ops.log(1 + action) - ops.log(1 - action)) if self.squashed else action)

    def point(self, normal: Any = None, temperature: float = 1.0) -> Float[Array, "*rows actions"]:
        """What becomes an action by squashing, for each row of normal numbers; without them the mean."""
        if normal is None:
            return self.mean
        if self.log_std is None:
            return self.mean + temperature * normal
        scale = ops.exp(self.log_std)
        return self.mean + (scale if temperature == 1 else scale * temperature) * normal

    def log_prob_at(self, point: Any) -> Float[Array, "*rows"]:
        """The logarithm of the density of the action that comes from a point."""
        logs = log_normal(point, self.mean, self.log_std)
        return ops.sum(logs - log_tanh_slope(point) if self.squashed else logs, -1)

    def entropy(self, normal: Any = None) -> Float[Array, "*rows"]:
        """Exactly; of a squashed one estimated at one point, which the given normal numbers pick."""
        exact = 0.5 * (math.log(2 * math.pi) + 1) + (0.0 * self.mean if self.log_std is None else self.log_std)
        return ops.sum(exact + log_tanh_slope(self.point(normal)) if self.squashed else exact, -1)

    def _action(self, point: Any) -> Any:
        return ops.tanh(point) if self.squashed else point
