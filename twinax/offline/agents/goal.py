"""Goal-conditioned agents: states of the data are goals, rewards are -1 until they are reached.

They learn without a task's rewards, so both phases are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twinax import ops
from twinax.networks import MLP
from twinax.noise import Draw
from twinax.offline._agent import Agent, Link, Loss, Nets, Sizes, cloned, guided, spread
from twinax.offline._losses import advantage_weights, goal_value_loss, regression, scaled
from twinax.offline.agents.iql import IQL
from twinax.offline.networks import Actor, LogParameter, Metric, Value
from twinax.problem import Terms

Trained = ClassVar[dict[str, tuple[str, ...]]]
LEAST_SQUARE = 1e-12
"""Below this the square of a length is taken for it."""


def both(*names: str) -> dict[str, tuple[str, ...]]:
    """The same in both phases."""
    return {"pretrain": names, "finetune": names}


@dataclass(frozen=True, eq=False)
class GCBC(Agent):
    """Cloning of what the data did on its way to a goal (Ghosh et al., 2021)."""

    name: ClassVar[str] = "gcbc"
    needs: ClassVar[tuple[str, ...]] = ("goals",)
    trained: Trained = both("actor")
    gated: ClassVar[tuple[str, ...]] = ()
    actor_sees: ClassVar[str] = "goal"
    reads_goals: ClassVar[tuple[str, ...]] = ("actor",)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        return {
            "actor": Actor.init(rng, 2 * sizes.observation, self.hidden, sizes.action, norm=self.actor_layer_norm),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"bc": self.cloning}

    def cloning(self, nets: Nets, batch, draws):
        return cloned(nets.online["actor"](batch["observations"], batch["actor_goals"]), batch)


@dataclass(frozen=True, eq=False)
class GCIVL(GCBC):
    """Values of goals without actions, by an expectile over what followed (Park et al., 2023)."""

    expectile: float = 0.9
    """Expectile of the values of what followed that V approaches; above 0.5 it leans to the best."""
    alpha: float = 10.0
    """Power of the advantage in the weights with which the actor clones actions."""

    name: ClassVar[str] = "gcivl"
    valued_by: ClassVar[str] = "value"
    trained: Trained = both("value", "actor")
    targets: ClassVar[tuple[str, ...]] = ("value",)
    followed: ClassVar[dict[str, tuple[str, ...]]] = both("value")
    reads_goals: ClassVar[tuple[str, ...]] = ("value", "actor")

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        return {
            "value": Value.init(rng, 2 * sizes.observation, self.hidden, members=2, norm=self.value_layer_norm),
            **super().networks(rng, sizes),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"value": self.value, "actor": self.actor}

    def value(self, nets: Nets, batch, draws):
        s, then, goals = batch["observations"], batch["next_observations"], batch["value_goals"]
        v, target = nets.online["value"](s, goals), nets.target["value"]
        rewards, masks = batch["relabeled_rewards"], batch["relabeled_masks"]
        loss = goal_value_loss(v, target(s, goals), target(then, goals), rewards, masks, self.gamma, self.expectile)
        return loss, Terms({"value_loss": loss}, spread("v", ops.mean(v, 0)))

    def weighted(self, nets: Nets, distribution: Any, wanted: Any, now: tuple, later: tuple, alpha: float):
        """Cloning weighted by how much the value rises from one (state, goal) to another."""
        advantage = ops.mean(nets.fixed["value"](*later), 0) - ops.mean(nets.fixed["value"](*now), 0)
        log_prob = distribution.log_prob(wanted)
        loss = -ops.mean(advantage_weights(advantage, alpha) * log_prob)
        return loss, Terms({"actor_loss": loss}, {"adv": ops.mean(advantage), "bc_log_prob": ops.mean(log_prob)})

    def actor(self, nets: Nets, batch, draws):
        s, then, goals = batch["observations"], batch["next_observations"], batch["actor_goals"]
        distribution = nets.online["actor"](s, goals)
        return self.weighted(nets, distribution, batch["actions"], (s, goals), (then, goals), self.alpha)


@dataclass(frozen=True, eq=False)
class GCIQL(IQL):
    """Implicit Q-learning with a goal beside the state."""

    alpha: float = 0.3
    extraction: str = "ddpgbc"

    name: ClassVar[str] = "gciql"
    needs: ClassVar[tuple[str, ...]] = ("goals",)
    trained: Trained = both("value", "critic", "actor")
    gated: ClassVar[tuple[str, ...]] = ()
    followed: ClassVar[dict[str, tuple[str, ...]]] = both("critic")
    actor_sees: ClassVar[str] = "goal"
    reads_goals: ClassVar[tuple[str, ...]] = ("value", "critic", "actor")

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        return super().networks(rng, Sizes(2 * sizes.observation, sizes.action, sizes.batch))

    def losses(self, phase: str) -> dict[str, Loss]:
        return super().losses("finetune")

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        return super().draws("finetune", sizes)

    def prepared(self, nets: Nets, batch, draws, phase):
        rewards, masks = batch["relabeled_rewards"], batch["relabeled_masks"]
        return {**batch, "latents": batch["value_goals"], "rewards": rewards, "masks": masks}

    def actor(self, nets: Nets, batch, draws):
        return super().actor(nets, {**batch, "latents": batch["actor_goals"]}, draws)


@dataclass(frozen=True, eq=False)
class HIQL(GCIVL):
    """A high level names a subgoal, a low level goes there; one value serves both (Park et al., 2023)."""

    expectile: float = 0.7
    alpha: float = 3.0
    """Power of the advantage in the weights of the low level's cloning."""
    high_alpha: float = 3.0
    """Power of the advantage in the weights of the high level's cloning of subgoals."""
    latent_dim: int = 10
    """Width of a subgoal's representation, a point on a sphere."""

    name: ClassVar[str] = "hiql"
    trained: Trained = both("value", "subgoal", "actor", "high_actor")
    targets: ClassVar[tuple[str, ...]] = ("value", "subgoal")
    followed: ClassVar[dict[str, tuple[str, ...]]] = both("value", "subgoal")
    reads_goals: ClassVar[tuple[str, ...]] = ("subgoal", "high_actor")

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, width = sizes.observation, self.latent_dim
        return {
            "value": Value.init(rng, d + width, self.hidden, members=2, norm=self.value_layer_norm),
            "subgoal": MLP.xavier(rng, 2 * d, self.hidden, width, norm=self.value_layer_norm),
            "actor": Actor.init(rng, d + width, self.hidden, sizes.action, norm=self.actor_layer_norm),
            "high_actor": Actor.init(rng, 2 * d, self.hidden, width, norm=self.actor_layer_norm),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"value": self.value, "low_actor": self.low, "high_actor": self.high}

    def point(self, networks, states: Any, goals: Any) -> Any:
        """A goal as seen from a state, on a sphere."""
        return _on_sphere(networks["subgoal"](states, goals))

    def value(self, nets: Nets, batch, draws):
        s, then, goals = batch["observations"], batch["next_observations"], batch["value_goals"]

        def valued(networks, states):
            return networks["value"](states, self.point(networks, states, goals))

        v, rewards, masks = valued(nets.online, s), batch["relabeled_rewards"], batch["relabeled_masks"]
        now, following = valued(nets.target, s), valued(nets.target, then)
        loss = goal_value_loss(v, now, following, rewards, masks, self.gamma, self.expectile)
        return loss, Terms({"value_loss": loss}, spread("v", ops.mean(v, 0)))

    def low(self, nets: Nets, batch, draws):
        s, then, goals = batch["observations"], batch["next_observations"], batch["low_actor_goals"]
        here, there = self.point(nets.fixed, s, goals), self.point(nets.fixed, then, goals)
        distribution = nets.online["actor"](s, here)
        return self.weighted(nets, distribution, batch["actions"], (s, here), (then, there), self.alpha)

    def high(self, nets: Nets, batch, draws):
        s, goals, ahead = batch["observations"], batch["high_actor_goals"], batch["high_actor_targets"]
        here, there = self.point(nets.fixed, s, goals), self.point(nets.fixed, ahead, goals)
        distribution = nets.online["high_actor"](s, goals)
        wanted = ops.stop_gradient(self.point(nets.fixed, s, ahead))
        return self.weighted(nets, distribution, wanted, (s, here), (ahead, there), self.high_alpha)

    def act(self, networks, observations, given, noise, temperature):
        subgoal = _on_sphere(networks["high_actor"](observations, given).mode)
        return super().act(networks, observations, subgoal, noise, temperature)

    def chain(self, networks, given):
        high = Link("high_actor", networks["high_actor"], given, on_sphere=LEAST_SQUARE)
        return [high, Link("actor", networks["actor"], sees=True)]

    def values(self, networks, observations, given, noise):
        return super().values(networks, observations, self.point(networks, observations, given), noise)


@dataclass(frozen=True, eq=False)
class QRL(GCBC):
    """Distances as large as they can be while no single step is longer than 1 (Wang et al., 2023)."""

    latent_dim: int = 64
    """Width of the representation in which distances are measured."""
    alpha: float = 0.003
    """Weight of cloning the data's actions in the actor's loss."""
    slack: float = 0.05
    """Mean squared excess of a step's distance over 1 that is allowed."""

    name: ClassVar[str] = "qrl"
    valued_by: ClassVar[str] = "metric"
    trained: Trained = both("metric", "multiplier", "dynamics", "actor")
    encodes: ClassVar[bool] = False

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a = sizes.observation, sizes.action
        return {
            "metric": Metric.init(rng, d, self.hidden, self.latent_dim, members=1, norm=self.value_layer_norm),
            "multiplier": LogParameter(np.zeros((), np.float32)),
            "dynamics": Value.init(rng, d + a, self.hidden, d, norm=self.value_layer_norm),
            **super().networks(rng, sizes),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"value": self.value, "dynamics": self.dynamics, "actor": self.actor}

    def value(self, nets: Nets, batch, draws):
        s, then = batch["observations"], batch["next_observations"]
        far = -nets.online["metric"](s, batch["value_goals"])
        step = -nets.online["metric"](s, then)
        spread_out = ops.mean(100 * ops.softplus(5 - far / 100))
        excess = ops.mean(ops.square(ops.relu(step - 1)))
        near = nets.fixed["multiplier"]() * excess
        held = spread_out + near
        multiplier = nets.online["multiplier"]() * (self.slack - ops.stop_gradient(excess))
        parts = {"far_loss": spread_out, "step_loss": near, "multiplier_loss": multiplier}
        shown = {"value_loss": held, "step_excess": excess, "multiplier": nets.fixed["multiplier"]()}
        return held + multiplier, Terms(parts, {**shown, **spread("d", far)})

    def dynamics(self, nets: Nets, batch, draws):
        s, then = batch["observations"], batch["next_observations"]
        loss = regression(nets.online["dynamics"](s, batch["actions"]), then - s)
        return loss, Terms({"dynamics_loss": loss})

    def actor(self, nets: Nets, batch, draws):
        s, goals = batch["observations"], batch["actor_goals"]
        distribution = nets.online["actor"](s, goals)
        then = s + nets.fixed["dynamics"](s, ops.clip(distribution.mode, -1, 1))
        q = nets.fixed["metric"](then, goals)[0]
        return guided(q, scaled(q, True), distribution, batch, self.alpha)


def _on_sphere(x: Any) -> Any:
    # As in on_sphere, but a zero vector stays where it is.
    size = ops.sqrt(ops.maximum(ops.sum(x * x, -1), ops.full((), LEAST_SQUARE, x)))
    return math.sqrt(x.shape[-1]) * x / size[..., None]
