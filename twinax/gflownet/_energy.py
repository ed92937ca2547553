"""A reward that is learned from data while the policy learns to sample it, by contrast with fakes that it makes.

The gradient of the log-likelihood of data under R / Z is the mean of d log R over the data minus its mean under R / Z.
For the second mean the policy makes fakes: from each datum it walks some steps back and forward again, and what it
arrives at is accepted by a rule that leaves R / Z as it is, whatever the policy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs import Environment
from twinax.errors import UnknownName
from twinax.gflownet._local_search import LocalSearchOptions, search_draws, walk
from twinax.gflownet._policy import Networks
from twinax.gflownet._proposals import RULES
from twinax.gflownet._trajectories import Given, Trajectories, undo_draws
from twinax.gflownet._undoing import undo
from twinax.noise import Draw, below
from twinax.ranges import check_counts, check_range
from twinax.types import Array, Float


@checked
@dataclass(frozen=True)
class EnergyOptions:
    """How a reward is learned from data, where the world has one that can be, such as couplings of spins.

    >>> EnergyOptions(steps=4).accept
    'metropolis'
    """

    batch_size: int = 256
    """Data that are drawn for each update; every one has a fake."""
    steps: int = 0
    """Actions that are undone for a fake; 0 undoes all of them, so that what is proposed does not depend on the datum.
    Where trajectories have several lengths, the number is drawn evenly from 1 to this, or to the longest for 0."""
    rounds: int = 1
    """Proposals that are made one after the other from each datum, each from the last that was accepted."""
    accept: str = "metropolis"
    """How a proposal is accepted: metropolis or barker. Both leave the law of the reward as it is."""
    l1: float = 0.0
    """Weight in the loss of the sum of the absolute values of what is learned; above 0 it keeps small ones at 0."""
    retrace: bool = False
    """Whether the policy also learns from trajectories to the data, which its backward policy draws."""

    def __post_init__(self):
        check_counts(self, ("batch_size", "rounds"))
        check_counts(self, ("steps",), least=0)
        check_range(self, "finite and not negative", "l1")
        if self.accept not in RULES:
            raise UnknownName("way to accept", self.accept, RULES)

    def search(self, env: Environment) -> LocalSearchOptions:
        """The walk from a datum to its fake."""
        return LocalSearchOptions(rounds=self.rounds, steps=self.steps or env.max_steps, accept=self.accept)


@tree.record
class Contrast:
    """What a reward is learned from in one update."""

    data: Any
    """Finished states."""
    fakes: Any
    """As many, from the law of the reward if the data are."""
    acceptance: Float[Array, ""]
    """Share of the proposals that were accepted."""


def held_energy(networks: Networks) -> dict[str, Any]:
    """What the reward has learned, held still, by the names of the world's constants; nothing for one that is given."""
    return {name: ops.stop_gradient(value) for name, value in (networks.energy or {}).items()}


def energy_draws(env: Environment, options: EnergyOptions) -> dict[str, Draw]:
    """What `contrast` needs."""
    draws = {"energy/choose": Draw((options.batch_size,))}
    if options.retrace:
        draws["energy/retrace"] = undo_draws(env, options.batch_size)
    return {**draws, **search_draws(env, options.search(env), options.batch_size, "energy/walk")}


def contrast(
    env: Environment,
    networks: Networks,
    backward: str,
    options: EnergyOptions,
    observed: Any,
    draws: Mapping[str, Any],
    given: Given,
) -> tuple[Contrast, Trajectories | None]:
    """Data with their fakes, and trajectories to the data where the policy is to learn from them."""
    number = observed.done.shape[0]
    chosen = ops.clip(ops.cast(draws["choose"] * number, "int32"), 0, number - 1)
    data = tree.map_leaves(lambda x: ops.take(x, chosen), observed)
    fakes, _, accepted = walk(env, networks, backward, options.search(env), data, below(draws, "walk"), given)
    traced = None
    if options.retrace:
        traced = undo(env.given(given.constants), networks, backward, data, draws["retrace"])
    return Contrast(data, fakes, ops.mean(ops.cast(accepted, draws["choose"]))), traced


def energy_losses(
    env: Environment, energy: Mapping[str, Any], given: Given, options: EnergyOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of the loss that a reward learns by, and what is worth seeing beside them.

    Minus the gradient of the contrast, mean over fakes of log R - mean over data of log R, is that of the data's mean
    log-likelihood: for log R = x^T J x it is the mean of x x^T over the data minus that over the fakes.
    """
    world, seen = env.given({**given.constants, **energy}), given.contrast
    losses = {"contrast_loss": ops.mean(world.log_reward(seen.fakes)) - ops.mean(world.log_reward(seen.data))}
    if options.l1:
        sizes = [ops.sum(ops.abs(value)) for value in energy.values()]
        losses["l1_loss"] = options.l1 * functools.reduce(lambda a, b: a + b, sizes)
    return losses, {"acceptance": seen.acceptance}
