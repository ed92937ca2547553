"""Objects of a trained GFlowNet: fresh ones, and the best of those that training found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np

from twinax.envs import Environment
from twinax.envs.state_rows import size_of
from twinax.errors import TwinaxError
from twinax.gflownet._metrics import best_distinct, stored
from twinax.gflownet._reading import Reader
from twinax.gflownet._trajectories import forward_rollout, rollout_draws
from twinax.noise import numpy_draws
from twinax.objects import Objects
from twinax.parts import Drawn, Picture, Table
from twinax.problem import State

if TYPE_CHECKING:
    from twinax.gflownet._problem import GFlowNet

AT_ONCE = 1024
"""Trajectories that are rolled out side by side: their draws have to fit into memory."""


LISTED = 10
"""Best objects in a report."""
DRAWN = 8
"""Those of them that are drawn."""


@dataclass(frozen=True, eq=False)
class Using:
    """The functions of a GFlowNet's `Use`."""

    problem: GFlowNet

    def sample(self, state: State, number: int, seed: int) -> Objects:
        """The trained policy as it is: without exploration, by the draws of evaluations at steps 0, 1, 2, ..."""
        env, policy = self._world(state), self.problem.judged(state).policy
        parts = []
        for k, first in enumerate(range(0, number, AT_ONCE)):
            rows = min(AT_ONCE, number - first)
            draws = numpy_draws(rollout_draws(env, rows), seed, k, stream=1)
            fresh = forward_rollout(env, Reader.of(env, policy), draws["action"], draws["explore"])
            parts.append(fresh.last)
        states = jtu.tree_map(lambda *each: np.concatenate(each), *parts)
        return self.shown(states, np.asarray(env.log_reward(states), np.float64))

    def top_k(self, state: State, number: int) -> Objects:
        """Of the store of finished objects, which holds the latest of training."""
        objects = stored(state.carry)
        if not size_of(objects):
            raise TwinaxError("this run has finished no object yet, so there is no best one; train it first")
        return self.shown(*best_distinct(self._world(state), objects, number))

    def _world(self, state: State) -> Environment:
        """The world with what its reward has learned."""
        return self.problem.world(self.problem.judged(state).energy or {})

    def tables(self, state: State) -> dict[str, Table]:
        """The best objects, for a report."""
        if not size_of(stored(state.carry)):
            return {}
        best = self.top_k(state, LISTED)
        rows = [(text, log_reward, float(np.exp(log_reward))) for text, log_reward in best]
        return {"Best objects": Table(("object", "log reward", "reward"), rows)}

    def drawings(self, state: State) -> dict[str, Drawn]:
        """The best objects as the world draws them."""
        if not size_of(stored(state.carry)):
            return {}
        env = self.problem.env
        best = self.top_k(state, DRAWN)
        objects = env.objects(best.states)
        images = {str(k): image for k in range(len(best)) if (image := env.draw(objects, k)) is not None}
        labels = {name: f"log R {best.log_rewards[int(name)]:.4g}" for name in images}
        if not images:
            return {}
        return {"best": Drawn(Picture("The best objects", "images", labels), images)}

    def shown(self, states: Any, log_rewards: np.ndarray) -> Objects:
        """States in human form."""
        objects = self.problem.env.objects(states)
        return Objects(states, log_rewards, [self.problem.env.text(objects, k) for k in range(size_of(states))])
