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
from twinax.parts import Title
from twinax.ppo._episodes import episode_draws, play_episodes, record_episodes
from twinax.ppo._networks import to_world
from twinax.ppo._options import Options
from twinax.problem import Metrics, State

SHOWN = 150
"""Steps that are recorded for hooks in an evaluation."""

TITLES = {
    "episode_return": Title("Return", "Mean over evaluated episodes of the policy's likeliest actions.", tile=True),
    "train_return": Title("Return while learning", "Mean over the episodes that ended last, exploration included."),
    "episode_length": Title("Episode length", "Mean number of steps in evaluated episodes."),
    "episode_survived": Title(
        "Survived", "Share of evaluated episodes in which time ran out before they ended.", tile=True
    ),
    "episode_return_ci": Title("Return, 95 % interval", "Half of its width, over evaluated episodes."),
    "gait_distance": Title(
        "Distance of the gait", "Of the robot's steps from the reference, in its deviations.", tile=True
    ),
    "style_reward": Title("Reward for style", "Mean over steps; 1 for what the discriminator takes for the reference."),
    "style_accuracy": Title("Discriminator's accuracy", "Share of steps that it tells right; 0.5 is none."),
    "approx_kl": Title("Divergence", "Estimated KL of the policy before an update from that after it."),
    "clip_fraction": Title("Clipped", "Share of transitions whose ratio of probabilities left the clip range."),
    "explained_variance": Title("Explained variance", "Of the returns by the critic; 1 is perfect."),
    "truncated": Title("Truncated", "Share of steps at which a time limit cut an episode off."),
}
"""What reports call its numbers."""


@dataclass(frozen=True, eq=False)
class Judging:
    """The functions of PPO's `Judge`."""

    ppo: Options

    def draws(self) -> Mapping[str, Draw]:
        draws = episode_draws(self.ppo.world, self.ppo.episodes, self.ppo.longest)
        if self.ppo.hooks is not None:
            draws |= {
                f"walk/{name}": draw for name, draw in episode_draws(self.ppo.world, self.ppo.episodes, SHOWN).items()
            }
        return draws

    def measure(self, state: State, draws, tables) -> Metrics:
        agent, moments = frozen(state.networks["agent"]).acting(), state.carry.observation

        def act(observation):
            point = agent.policy(self.ppo.normalised(moments, observation)).point()
            return to_world(self.ppo.world.actions, point, self.ppo.squashed)

        world = self.ppo.world.apart() if isinstance(self.ppo.world, Restarting) else self.ppo.world
        measured = play_episodes(world, act, draws, self.ppo.longest)
        if self.ppo.hooks is not None:
            measured["recorded"] = record_episodes(world, act, below(draws, "walk"), SHOWN, self.ppo.hooks.record)
        return measured

    def summarise(self, measured: Mapping[str, Any]) -> Metrics:
        if isinstance(self.ppo.world, Restarting):
            self.ppo.world.apart().watch({})
        returns, lengths = np.asarray(measured["returns"], float), np.asarray(measured["lengths"], float)
        metrics = {"episode_return": returns.mean(), "episode_length": lengths.mean()}
        if len(returns) > 1:
            metrics["episode_return_ci"] = half_width(returns)
        metrics["episode_survived"] = np.mean(measured["survived"])
        metrics |= {f"episode_{name}": np.mean(value) for name, value in measured["terms"].items()}
        if self.ppo.hooks is not None:
            metrics |= self.ppo.hooks.evaluate(measured["recorded"])
        return {name: float(value) for name, value in metrics.items()}
