"""Goals for goal-conditioned agents: other rows of the dataset, drawn by a mixture of three rules.

A trajectory goal is a later row of the same trajectory, a random goal any row, a current goal the row itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.noise import Draw
from twinax.offline._sampling import (
    Arrays,
    BatchOptions,
    batch_draws,
    crop_draws,
    cropped,
    drawn_rows,
    sample_batch,
    stacked_frames,
)
from twinax.ranges import check_range
from twinax.types import Array, Float, Int

SLACK = 1e-6
"""In the denominator of the share of trajectory goals, as in the released code, which has a few fewer of them."""


@checked
@dataclass(frozen=True)
class GoalMixture:
    """How goals of one kind are drawn; the three probabilities add up to 1."""

    current: float = 0.0
    """Probability of the row itself."""
    trajectory: float = 1.0
    """Probability of a later row of the same trajectory."""
    random: float = 0.0
    """Probability of any row."""
    geometric: bool = False
    """Later rows at a geometric distance, held at the end of the trajectory; otherwise evenly."""
    start: int = 1
    """Smallest geometric distance. 0 allows the row itself; the released code has the option, but always uses 1."""

    def __post_init__(self):
        parts = (self.current, self.trajectory, self.random)
        if not all(0 <= p <= 1 for p in parts) or abs(sum(parts) - 1) > 1e-6:
            raise TwinaxError(
                f"current, trajectory and random are {self.current}, {self.trajectory} and {self.random}; "
                "they must be probabilities that add up to 1"
            )
        check_range(self, "at least 0", "start")


LATER = GoalMixture()
"""Evenly from the rest of the trajectory."""


@checked
@dataclass(frozen=True)
class GoalOptions:
    """Goals of a batch, for values and for the actor."""

    value: GoalMixture = GoalMixture(geometric=True)
    """Goals of the values."""
    actor: GoalMixture = LATER
    """Goals of the actor."""
    gamma: float = 0.99
    """The geometric distance has mean start + gamma / (1 - gamma)."""
    negative: bool = True
    """Relabelled rewards are 0 at the goal and -1 elsewhere; otherwise 1 and 0."""
    relabel: bool = False
    """Whether relabelled rewards and masks also stand in for those of the dataset."""
    subgoal_steps: int = 0
    """Steps to a subgoal of a hierarchical agent; 0 for none."""

    def __post_init__(self):
        check_range(self, "between 0 and 1, neither of them", "gamma")
        check_range(self, "at least 0", "subgoal_steps")


_CONTRASTIVE = GoalOptions()
_OGBENCH_VALUES = GoalMixture(0.2, 0.5, 0.3, geometric=True)

GOAL_PRESETS: dict[str, GoalOptions] = {
    "crl_infonce": _CONTRASTIVE,
    "td_infonce": _CONTRASTIVE,
    "hilp": GoalOptions(value=GoalMixture(0.0, 0.625, 0.375, geometric=True)),
    "gcivl": GoalOptions(value=_OGBENCH_VALUES, relabel=True),
    "gciql": GoalOptions(value=_OGBENCH_VALUES, relabel=True),
    "hiql": GoalOptions(value=_OGBENCH_VALUES, relabel=True, subgoal_steps=25),
    "crl": GoalOptions(relabel=True),
    "qrl": GoalOptions(value=GoalMixture(0.0, 0.0, 1.0), relabel=True),
    "gcbc": GoalOptions(value=LATER, relabel=True),
}
"""The options of each goal-conditioned agent."""


def goal_preset(name: str) -> GoalOptions:
    """The options of an agent.

    >>> goal_preset("hilp").value.random
    0.375
    """
    if name not in GOAL_PRESETS:
        raise UnknownName("preset of goals", name, GOAL_PRESETS)
    return GOAL_PRESETS[name]


# Which rows are goals


def goal_draws(name: str, batch_size: int, size: int) -> dict[str, Draw]:
    """What `goal_rows` needs, under names that begin with `name`."""
    return {
        f"{name}_random": Draw((batch_size,), "integers", size),
        f"{name}_future": Draw((batch_size,)),
        f"{name}_choice": Draw((batch_size,)),
        f"{name}_current": Draw((batch_size,)),
    }


def geometric_future(
    rows: Int[Array, " batch"], ends: Int[Array, " batch"], uniform: Float[Array, " batch"], gamma: float, start: int
) -> Int[Array, " batch"]:
    """min(i + G, T) with P(G = start + k) = (1 - gamma) gamma^k; what lies beyond the end counts for the end."""
    # P(floor(log u / log gamma) >= k) = P(u <= gamma^k) = gamma^k
    distance = ops.cast(ops.log(uniform) * (1 / math.log(gamma)), "int32") + start
    return ops.minimum(rows + distance, ends)


def uniform_future(
    rows: Int[Array, " batch"], ends: Int[Array, " batch"], uniform: Float[Array, " batch"]
) -> Int[Array, " batch"]:
    """round(u min(i + 1, T) + (1 - u) T), halves to even: the first and the last row have half the weight of others."""
    first = ops.minimum(rows + 1, ends)
    # Rounded relative to the first row: a row number of many digits would leave none for the fraction.
    place = (1 - uniform) * ops.cast(ends - first, uniform)
    whole = ops.cast(place, "int32")
    rest = place - ops.cast(whole, uniform)
    odd = (first + whole) % 2 == 1
    return first + whole + ops.cast((rest > 0.5) | ((rest == 0.5) & odd), "int32")


def future_rows(
    arrays: Arrays, rows: Int[Array, " batch"], mixture: GoalMixture, gamma: float, uniform: Float[Array, " batch"]
) -> Int[Array, " batch"]:
    """A later row of the same trajectory."""
    ends = ops.take(arrays["ends"], rows)
    if mixture.geometric:
        return geometric_future(rows, ends, uniform, gamma, mixture.start)
    return uniform_future(rows, ends, uniform)


def goal_rows(
    arrays: Arrays,
    rows: Int[Array, " batch"],
    mixture: GoalMixture,
    gamma: float,
    draws: Mapping[str, Any],
    name: str,
) -> Int[Array, " batch"]:
    """A goal for each row: a trajectory goal or a random one, and then some of them replaced by the row itself."""
    later = future_rows(arrays, rows, mixture, gamma, draws[f"{name}_future"])
    anywhere = drawn_rows(arrays, draws[f"{name}_random"])
    share = mixture.trajectory / (1 - mixture.current + SLACK)
    goals = ops.where(draws[f"{name}_choice"] < share, later, anywhere)
    return ops.where(draws[f"{name}_current"] < mixture.current, rows, goals)


# Batches with goals


def goal_batch_draws(batch: BatchOptions, goals: GoalOptions, size: int) -> dict[str, Draw]:
    """What `sample_goal_batch` needs for a dataset of which `size` rows may be drawn."""
    draws = {**batch_draws(batch, size), **crop_draws(batch, "goal_augment")}
    for name in ("value", "actor", "high") if goals.subgoal_steps else ("value", "actor"):
        draws.update(goal_draws(name, batch.batch_size, size))
    if goals.subgoal_steps:
        del draws["high_current"]  # a high-level goal is a trajectory goal or a random one
    return draws


def sample_goal_batch(
    arrays: Arrays, batch_options: BatchOptions, goals: GoalOptions, draws: Mapping[str, Any]
) -> dict[str, Any]:
    """`sample_batch` with `value_goals` and `actor_goals`, relabelled rewards and masks, and subgoals if asked for.

    Call `Dataset.require_goals` first: every trajectory must have an end.
    """
    batch = sample_batch(arrays, batch_options, draws)
    rows, frames = batch["rows"], batch_options.frame_stack
    value_rows = goal_rows(arrays, rows, goals.value, goals.gamma, draws, "value")
    actor_rows = goal_rows(arrays, rows, goals.actor, goals.gamma, draws, "actor")
    batch["value_goals"] = stacked_frames(arrays, value_rows, frames)
    batch["actor_goals"] = stacked_frames(arrays, actor_rows, frames)
    reached = ops.cast(value_rows == rows, batch["masks"])
    batch["relabeled_rewards"] = reached - 1 if goals.negative else reached
    batch["relabeled_masks"] = 1 - reached
    if goals.relabel:
        batch["rewards"], batch["masks"] = batch["relabeled_rewards"], batch["relabeled_masks"]
    images = ["value_goals", "actor_goals"]
    if goals.subgoal_steps:
        for name, index in subgoal_rows(arrays, rows, goals, draws).items():
            batch[name] = stacked_frames(arrays, index, frames)
            images.append(name)
    return cropped(batch, tuple(images), batch_options, draws, "goal_augment")


def subgoal_rows(
    arrays: Arrays, rows: Int[Array, " batch"], goals: GoalOptions, draws: Mapping[str, Any]
) -> dict[str, Int[Array, " batch"]]:
    """Rows of the goals of a hierarchical agent (HIQL), k = subgoal_steps.

    The low level goes k steps ahead, or to the end. The high level has a goal of the actor's rule, or a random one; its
    target is k steps ahead, but not beyond a goal in the same trajectory.
    """
    ends = ops.take(arrays["ends"], rows)
    later = future_rows(arrays, rows, goals.actor, goals.gamma, draws["high_future"])
    anywhere = drawn_rows(arrays, draws["high_random"])
    ahead = ops.minimum(rows + goals.subgoal_steps, ends)
    other = draws["high_choice"] < goals.actor.random
    return {
        "low_actor_goals": ahead,
        "high_actor_goals": ops.where(other, anywhere, later),
        "high_actor_targets": ops.where(other, ahead, ops.minimum(ahead, later)),
    }
