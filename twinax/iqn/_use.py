"""Trained agents of a world, one at a time: from the frames that one has seen to its action."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinax import ops
from twinax.envs.world import World
from twinax.errors import TwinaxError
from twinax.exportable import Exportable
from twinax.iqn._exportable import exportable
from twinax.iqn._learner import Learners
from twinax.noise import Draw, numpy_draws
from twinax.problem import State

if TYPE_CHECKING:
    from twinax.iqn._problem import Agents


@dataclass(frozen=True, eq=False)
class Using:
    """The functions of the agents' `Use`."""

    problem: Agents

    @property
    def shape(self) -> tuple[int, int]:
        """Frames and cells of what an agent sees: codes, the newest frame last; of the first group that learns."""
        group = next(iter(self.problem.learners.values()))
        return group.replay.frame_stack, self.problem.world.view_cells

    def find(self, agent: int) -> tuple[Learners, str]:
        """The group of a learning agent, and its name among the members; agents are counted as they take turns."""
        seats = self.problem.seats
        if not 0 <= agent < len(seats):
            raise TwinaxError(
                f"agent is {agent}, but there are {len(seats)}; it must be between 0 and {len(seats) - 1}"
            )
        name, place = seats[agent]
        group = self.problem.groups[name]
        if not isinstance(group, Learners):
            learn = [k for k, (other, _) in enumerate(seats) if other in self.problem.learners]
            raise TwinaxError(f"agent {agent} is one of the group '{name}', which follows a rule; {learn} learn")
        return group, f"{name}_{place}"

    def values(self, networks: Any, views: Any, taus: Any, agent: int) -> Any:
        """Expected returns of the actions."""
        group, name = self.find(agent)
        network = self.problem.members(networks)[name].acting()
        codebook = np.asarray(self.problem.world.codebook, network.hidden.weight.dtype)
        return group.values(network, views, codebook, taus)

    def act(self, state: State, views: Any, seed: int | None, agent: int = 0) -> Any:
        """Actions without exploring, by quantiles that a seed draws, or by evenly spaced ones."""
        group, _ = self.find(agent)
        return ops.argmax(self.values(state.networks, views, self.fractions(group, len(views), seed), agent))

    def export(self, state: State, agent: int = 0) -> Exportable:
        """One agent without exploring, by evenly spaced quantiles."""
        return exportable(self, state, agent)

    def play(self, state: State, seed: int) -> tuple[World, Callable[..., Any]]:
        """One epoch in one world, greedy, which a person may take part in."""
        problem = self.problem
        history = {
            name: np.zeros((group.count, 1, group.replay.gap, problem.world.view_cells), np.uint8)
            for name, group in problem.learners.items()
        }
        greedy = {name: np.float32(0.0) for name in problem.learners}
        draws = numpy_draws(problem.play_draws(1), seed, 0)
        return problem.world, functools.partial(problem.play, state.networks, history, draws, greedy)

    @staticmethod
    def fractions(group: Learners, rows: int, seed: int | None) -> Any:
        """Quantile fractions at which returns are compared; None where a network has its own."""
        if group.variant != "iqn":
            return None
        shape = (rows, group.num_act_quantiles)
        if seed is not None:
            return numpy_draws({"taus": Draw(shape)}, seed, 0, stream=1)["taus"]
        return np.broadcast_to(((np.arange(shape[1]) + 0.5) / shape[1]).astype(np.float32), shape)
