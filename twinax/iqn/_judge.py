"""How agents are judged: the scores of greedy, nearly greedy and random ones in worlds of their own, and a film."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinax import ops
from twinax.noise import Draw
from twinax.parts import Title
from twinax.problem import Metrics, State

if TYPE_CHECKING:
    from twinax.iqn._problem import Agents

TITLES = {
    "score": Title("Score", "Reward of all agents in an epoch of training."),
    "score_greedy": Title("Score, greedy", "Reward of all agents in an epoch without exploration.", tile=True),
    "score_epsilon": Title("Score with some exploration", "The same with a small probability of random actions."),
    "score_random": Title("Score, random", "Reward of all agents in an epoch of random actions: the measure to beat."),
    "value": Title("Value", "Mean return that the networks expect, over the batch."),
    "trained": Title("Trained", "1 if the replay had enough to train on."),
}
"""What reports call its numbers."""


@dataclass(frozen=True, eq=False)
class Judging:
    """The functions of the agents' `Judge`."""

    problem: Agents

    def draws(self) -> Mapping[str, Draw]:
        return self.problem.play_draws(self.problem.evaluation_num_envs)

    def measure(self, state: State, draws, tables) -> Metrics:
        some = next(iter(draws.values()))
        measured = {}
        ways = {"greedy": 0.0, "epsilon": self.problem.evaluation_epsilon, "random": 1.0}
        for way, chance in ways.items():
            history = {}
            for name, group in self.problem.learners.items():
                shape = (group.count, self.problem.evaluation_num_envs, group.replay.gap, self.problem.world.view_cells)
                history[name] = ops.zeros(shape, some, "uint8")
            epsilon = {name: ops.full((), chance, some) for name in self.problem.learners}
            epoch = self.problem.play(
                state.networks, history, draws, epsilon, pictures=self.problem.film and way == "greedy"
            )
            measured[way] = ops.sum(epoch.rewards, 0)
            if epoch.pictures is not None:
                measured["pictures"] = epoch.pictures
        return measured

    def summarise(self, measured: Mapping[str, Any]) -> Metrics:
        metrics, world = {}, self.problem.world
        for way in ("greedy", "epsilon", "random"):
            metrics[f"score_{way}"] = float(np.mean(np.sum(measured[way], 0)))
        for agent, rewards in enumerate(measured["greedy"]):
            metrics[f"score_agent_{agent}"] = float(np.mean(rewards))
        if "pictures" in measured:
            from twinax.envs.sprites import render

            cells, places = measured["pictures"]
            where = np.stack(np.divmod(places, world.stride), -1) - world.margin
            # Agents in their own colours, but not where the map shows something else, such as one that is down.
            shown = np.take_along_axis(cells.reshape(len(cells), -1), where[..., 0] * world.width + where[..., 1], 1)
            plain = np.isin(shown, [code for code, name in enumerate(world.names) if name == "agent"])
            metrics["film/greedy"] = render(cells, world.names, np.where(plain[..., None], where, -1))
        return metrics
