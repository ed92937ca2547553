"""How a policy is judged: episodes of its most likely actions, in worlds of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax.envs import Restarting
from twinax.interval import half_width
from twinax.networks import frozen
from twinax.noise import Draw, below
from twinax.ppo._episodes import episode_draws, play_episodes, record_episodes
from twinax.ppo._networks import to_world
from twinax.ppo._options import Options
from twinax.problem import Metrics, State

SHOWN = 150
"""Steps that are recorded for hooks in an evaluation."""


@dataclass(frozen=True, eq=False)
class Judging:
    """The functions of PPO's `Judge`."""

    ppo: Options

    def draws(self) -> Mapping[str, Draw]:
        found = episode_draws(self.ppo.world, self.ppo.episodes, self.ppo.longest)
        if self.ppo.hooks is not None:
            found |= {
                f"walk/{name}": draw for name, draw in episode_draws(self.ppo.world, self.ppo.episodes, SHOWN).items()
            }
        return found

    def measure(self, state: State, draws, tables) -> Metrics:
        agent, moments = frozen(state.networks["agent"]).acting(), state.carry.observation

        def act(observation):
            point = agent.policy(self.ppo.normalised(moments, observation)).point()
            return to_world(self.ppo.world.actions, point, self.ppo.squashed)

        world = self.ppo.world.apart() if isinstance(self.ppo.world, Restarting) else self.ppo.world
        found = play_episodes(world, act, draws, self.ppo.longest)
        if self.ppo.hooks is not None:
            found["recorded"] = record_episodes(world, act, below(draws, "walk"), SHOWN, self.ppo.hooks.record)
        return found

    def summarise(self, measured: Mapping[str, Any]) -> Metrics:
        if isinstance(self.ppo.world, Restarting):
            self.ppo.world.apart().watch({})
        returns, lengths = np.asarray(measured["returns"], float), np.asarray(measured["lengths"], float)
        found = {"episode_return": returns.mean(), "episode_length": lengths.mean()}
        if len(returns) > 1:
            found["episode_return_ci"] = half_width(returns)
        found["episode_survived"] = np.mean(measured["survived"])
        found |= {f"episode_{name}": np.mean(value) for name, value in measured["terms"].items()}
        if self.ppo.hooks is not None:
            found |= self.ppo.hooks.evaluate(measured["recorded"])
        return {name: float(value) for name, value in found.items()}
