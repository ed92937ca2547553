"""How much better an action was than expected: four readings of one rollout, time first.

d is terminated, u is truncated, V(s') is the value of the true next observation, also where a world was restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinax import ops
from twinax.types import Array, Bool, Float

Both = tuple[Float[Array, "time world"], Float[Array, "time world"]]
"""Advantages, and what values are to become."""


def gae(
    reward: Float[Array, "time world"],
    value: Float[Array, "time world"],
    next_value: Float[Array, "time world"],
    terminated: Bool[Array, "time world"],
    truncated: Bool[Array, "time world"],
    gamma: float,
    trace: float,
) -> Both:
    """Generalised advantages that bootstrap through time limits.

    delta = r + gamma (1 - d) V(s') - V(s);  A = delta + gamma lambda (1 - d) (1 - u) A';  target = A + V(s)
    """
    goes_on = 1.0 - ops.cast(terminated, reward)
    delta = reward + gamma * goes_on * next_value - value
    advantage = _traced(delta, gamma * trace * goes_on * (1.0 - ops.cast(truncated, reward)))
    return advantage, advantage + value


def cleanrl(reward, value, next_value, terminated, truncated, gamma: float, trace: float) -> Both:
    """As CleanRL and PureJaxRL: a time limit is taken for an end."""
    return gae(reward, value, next_value, terminated | truncated, truncated, gamma, trace)


def brax(reward, value, next_value, terminated, truncated, gamma: float, trace: float) -> Both:
    """As Brax: truncated steps are left out, and the first hop of an advantage's trace has no lambda.

    delta as in `gae`, 0 where truncated; target - V = delta + gamma lambda (1 - d) (1 - u) (target' - V');
    A = delta + gamma (1 - d) (1 - u) (target' - V')
    """
    goes_on, kept = 1.0 - ops.cast(terminated, reward), 1.0 - ops.cast(truncated, reward)
    delta = (reward + gamma * goes_on * next_value - value) * kept
    summed = _traced(delta, gamma * trace * goes_on * kept)
    later = ops.concat([summed[1:], ops.zeros(summed[:1].shape, summed)])
    return delta + gamma * goes_on * kept * later, summed + value


def rsl_rl(reward, value, next_value, terminated, truncated, gamma: float, trace: float) -> Both:
    """As RSL-RL: a restart hides the next observation, so a time limit adds gamma times the value before it."""
    cut = ops.cast(truncated, reward)
    return gae(reward + gamma * cut * value, value, next_value, terminated | truncated, truncated, gamma, trace)


def _traced(delta: Any, decay: Any) -> Any:
    """A = delta + decay A', from the last step to the first."""

    def step(later, now):
        each, keep = now
        later = each + keep * later
        return later, later

    return ops.scan(step, ops.zeros(delta[0].shape, delta), (delta, decay), reverse=True)[1]


ADVANTAGES: dict[str, Callable[..., Any]] = {"gae": gae, "cleanrl": cleanrl, "brax": brax, "rsl_rl": rsl_rl}
