"""A trained policy alone: from an observation to the action that it likes best."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import tree
from twinax.envs import Control, Discrete
from twinax.errors import TwinaxError
from twinax.ppo._networks import ActorCritic, to_world
from twinax.ppo._normaliser import RunningMoments, Scaling
from twinax.ppo._problem import PPO
from twinax.problem import State


@dataclass(frozen=True, eq=False)
class Policy:
    """The actor, the statistics of observations and the bounds of actions: NumPy arrays in float32.

    >>> policy = Policy.of(problem, run.state)                              # doctest: +SKIP
    >>> policy.act(observation)                                             # doctest: +SKIP
    """

    agent: ActorCritic
    moments: RunningMoments | None
    world: Control
    scaling: Scaling = Scaling()
    """How observations are normalised by the moments."""

    @classmethod
    def of(cls, problem: PPO, state: State) -> Policy:
        """The policy of a state of one seed, from any engine."""
        if not isinstance(problem, PPO):
            raise TwinaxError(f"a policy is that of a PPO problem, not of a {type(problem).__name__}")
        agent, moments = tree.map_leaves(_single, (state.networks["agent"], state.carry.observation))
        bad = [name for name, leaf in tree.named_leaves((agent, moments)).items() if not np.isfinite(leaf).all()]
        if bad:
            raise TwinaxError(f"the policy is not finite: {len(bad)} of its arrays hold NaN or infinity")
        return cls(agent, moments, problem.world, problem.scaling)

    @property
    def discrete(self) -> bool:
        """Whether an action is an index."""
        return isinstance(self.world.actions, Discrete)

    @property
    def inputs(self) -> int:
        """Numbers of an observation."""
        return self.world.observation_size

    @property
    def outputs(self) -> int:
        """Choices, or entries of an action."""
        actions = self.world.actions
        return actions.n if isinstance(actions, Discrete) else actions.size

    def points(self, observation: np.ndarray) -> np.ndarray:
        """What the actor says, before it becomes an action: logits or means, by the library's own networks."""
        policy = self.policy(observation)
        return policy.logits if self.discrete else policy.mean

    def policy(self, observation: np.ndarray) -> Any:
        """The distribution of actions, by the library's own networks."""
        return self.agent.policy(
            observation if self.moments is None else self.moments.scaled(observation, self.scaling)
        )

    def act(self, observation: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions for rows of observations: the likeliest, or by random numbers as `policy_draw` asks for them."""
        point = self.policy(observation).point(noise)
        return point if self.discrete else to_world(self.world.actions, point, self.agent.kind == "tanh")

    def in_double(self) -> Policy:
        """The same numbers in float64: what an exported policy is measured against."""
        agent, moments = tree.map_leaves(lambda x: x.astype(np.float64), (self.agent, self.moments))
        return dataclasses.replace(self, agent=agent, moments=moments)


def _single(x: Any) -> np.ndarray:
    x = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
    return x.astype(np.float32)
