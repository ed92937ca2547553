"""Implicit Q-learning after behavioural cloning (Kostrikov et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops
from twinax.noise import Draw
from twinax.offline._agent import (
    Agent,
    Loss,
    Nets,
    Sizes,
    acted,
    cloned,
    cloning_terms,
    guided,
    latent_of,
    sampled_actions,
    spread,
)
from twinax.offline._losses import advantage_weights, scaled, td_loss, value_loss
from twinax.offline.networks import STDS, Actor, Value
from twinax.problem import Terms
from twinax.ranges import check_known

EXTRACTIONS = ("awr", "ddpgbc")


@dataclass(frozen=True, eq=False)
class IQL(Agent):
    """Values by an expectile of Q over the data's actions; the actor clones what was better than expected."""

    expectile: float = 0.9
    """Expectile of Q that V approaches; above 0.5 it leans to the best actions in the data."""
    alpha: float = 10.0
    """Power of the advantage in the weights of cloning (extraction=awr), or the weight of cloning (ddpgbc)."""
    extraction: str = "awr"
    """How the actor follows the critic: awr (weighted cloning) or ddpgbc (gradient of Q, and cloning)."""
    std: str = "one"
    """Standard deviation of the actor: one (always 1), free (a learned vector) or state (a layer of its own)."""

    name: ClassVar[str] = "iql"
    valued_by: ClassVar[str] = "value"
    trained: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("actor",), "finetune": ("value", "critic", "actor")}
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": (), "finetune": ("critic",)}

    def __post_init__(self):
        super().__post_init__()
        check_known(self, extraction=EXTRACTIONS, std=STDS)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a = sizes.observation, sizes.action
        return {
            "value": Value.init(rng, d, self.hidden, norm=self.value_layer_norm),
            "critic": Value.init(rng, d + a, self.hidden, members=2, norm=self.value_layer_norm),
            "actor": Actor.init(rng, d, self.hidden, a, std=self.std, norm=self.actor_layer_norm),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        if phase == "pretrain":
            return {"bc": cloning}
        return {"value": self.value, "critic": self.critic, "actor": self.actor}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        follows = phase == "finetune" and self.extraction == "ddpgbc"
        return sampled_actions(self.std, sizes, "actor") if follows else {}

    def value(self, nets: Nets, batch, draws):
        s, a, z = batch["observations"], batch["actions"], latent_of(batch)
        v = nets.online["value"](s, z)
        loss = value_loss(nets.target["critic"](s, z, a), v, self.expectile)
        return loss, Terms({"value_loss": loss}, spread("v", v))

    def critic(self, nets: Nets, batch, draws):
        s, a, z = batch["observations"], batch["actions"], latent_of(batch)
        following = nets.fixed["value"](batch["next_observations"], z)
        y = ops.stop_gradient(batch["rewards"] + self.gamma * batch["masks"] * following)
        loss = td_loss(nets.online["critic"](s, z, a), y)
        return loss, Terms({"critic_loss": loss}, spread("q", y))

    def actor(self, nets: Nets, batch, draws):
        s, a, z = batch["observations"], batch["actions"], latent_of(batch)
        distribution = nets.online["actor"](s, z)
        if self.extraction == "awr":
            log_prob = distribution.log_prob(a)
            q, v = nets.fixed["critic"](s, z, a), nets.fixed["value"](s, z)
            loss = -ops.mean(advantage_weights(ops.min(q, 0) - v, self.alpha) * log_prob)
            shown = {"adv": ops.mean(ops.min(q, 0) - v), **cloning_terms(distribution, batch, -ops.mean(log_prob))}
            return loss, Terms({"actor_loss": loss}, shown)
        q = ops.min(nets.fixed["critic"](s, z, acted(distribution, draws, "actor")), 0)
        return guided(q, scaled(q, True), distribution, batch, self.alpha)


def cloning(nets: Nets, batch, draws):
    """Behavioural cloning of the data's actions."""
    return cloned(nets.online["actor"](batch["observations"], latent_of(batch)), batch)
