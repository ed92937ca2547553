"""What PPO keeps between iterations, and what an iteration hands on."""

from __future__ import annotations

from typing import Any

from twinax import tree
from twinax.optimizer import Moments as AdamMoments
from twinax.ppo._normaliser import RunningMoments
from twinax.ppo._rollout import Playing, Started
from twinax.problem import Metrics
from twinax.types import Array, Float


@tree.record
class Rows:
    """Transitions that an update learns from: rows, or (time, world) before they are."""

    observation: Float[Array, "*rows observation"]
    """Normalised."""
    critic: Any
    """What the critic sees, normalised; None where that is the observation."""
    point: Array
    log_prob: Float[Array, "*rows"]
    value: Float[Array, "*rows"]
    advantage: Float[Array, "*rows"]
    target: Float[Array, "*rows"]
    noise: Any
    """Normal numbers for the estimated entropy of a squashed policy; otherwise None."""


@tree.record
class Carry:
    """What lives on between iterations."""

    playing: Playing
    pool: Started | None
    """Starts that ended worlds go on from."""
    observation: RunningMoments | None
    critic: RunningMoments | None
    returned: RunningMoments | None
    """Of discounted returns, by whose deviation rewards are divided."""
    running: Any
    """Discounted return of each world so far."""
    score: Float[Array, ""]
    """Mean return of the episodes that ended last."""
    length: Float[Array, ""]
    hooks: Any
    """What hooks keep; None without hooks."""
    waiting: Rows | None = None
    """Of the iteration before, to be learned from in the next, where playing and learning go side by side."""


@tree.record
class Played:
    """What an iteration's playing gives."""

    carry: Carry
    rows: Rows
    recorded: Any
    """What hooks have taken down."""
    terms: Metrics


@tree.record
class Learned:
    """What an iteration's updates give."""

    networks: Any
    moments: AdamMoments
    terms: Metrics
