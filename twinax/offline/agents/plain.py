"""Agents that are a few lines over the others: cloning, TD3+BC, and Q-learning with a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops
from twinax.noise import Draw
from twinax.offline._agent import Agent, Loss, Nets, Sizes, spread
from twinax.offline._losses import aggregate, euler, regression, scaled
from twinax.offline.agents.iql import cloning
from twinax.offline.agents.rebrac import ReBRAC
from twinax.offline.networks import STDS, Actor, Value
from twinax.problem import Terms
from twinax.ranges import check_known


@dataclass(frozen=True, eq=False)
class BC(Agent):
    """Behavioural cloning, in both phases."""

    std: str = "one"
    """Standard deviation of the actor: one (always 1), free (a learned vector) or state (a layer of its own)."""

    name: ClassVar[str] = "bc"
    trained: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("actor",), "finetune": ("actor",)}
    gated: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        super().__post_init__()
        check_known(self, std=STDS)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        return {
            "actor": Actor.init(
                rng, sizes.observation, self.hidden, sizes.action, std=self.std, norm=self.actor_layer_norm
            )
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"bc": cloning}


@dataclass(frozen=True, eq=False)
class TD3BC(ReBRAC):
    """TD3 with cloning in the actor (Fujimoto and Gu, 2021): ReBRAC without its other changes."""

    value_layer_norm: bool = False
    actor_freq: int = 2
    alpha_actor: float = 0.4
    """Weight of the actor's distance from the data's actions: 1 / 2.5 of the paper."""

    name: ClassVar[str] = "td3bc"


@dataclass(frozen=True, eq=False)
class FQL(Agent):
    """A flow clones the data; an actor of one step follows both the flow and Q (Park et al., 2025)."""

    alpha: float = 10.0
    """Weight of cloning by the flow in the actor's loss."""
    flow_steps: int = 10
    """Steps in which the flow is integrated."""
    aggregation: str = "mean"
    """How the two target critics become one Q: mean or min."""
    normalise: bool = False
    """Whether the actor's objective is divided by the mean size of Q."""
    actor_freq: int = 1

    name: ClassVar[str] = "fql"
    valued_by: ClassVar[str] = "critic"
    trained: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("field", "actor"),
        "finetune": ("field", "critic", "actor"),
    }
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": (), "finetune": ("critic",)}

    def __post_init__(self):
        super().__post_init__()
        check_known(self, aggregation=("mean", "min"))

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a = sizes.observation, sizes.action
        return {
            "critic": Value.init(rng, d + a, self.hidden, members=2, norm=self.value_layer_norm),
            "field": Value.init(rng, d + a + 1, self.hidden, a, norm=self.actor_layer_norm),
            "actor": Value.init(rng, d + a, self.hidden, a, norm=self.actor_layer_norm),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        flows: dict[str, Loss] = {"flow": self.flow, "distil": self.distil}
        return flows if phase == "pretrain" else {**flows, "critic": self.critic, "actor": self.actor}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        noise = Draw((sizes.batch, sizes.action), "normal")
        found = {"start": noise, "time": Draw((sizes.batch,)), "action": noise}
        return {**found, "following": noise} if phase == "finetune" else found

    def flow(self, nets: Nets, batch, draws):
        s, a, start, t = batch["observations"], batch["actions"], draws["start"], draws["time"][:, None]
        velocity = nets.online["field"](s, (1 - t) * start + t * a, t)
        loss = regression(velocity, a - start)
        return loss, Terms({"flow_loss": loss})

    def distil(self, nets: Nets, batch, draws):
        s = batch["observations"]

        def velocity(x, t):
            return nets.fixed["field"](s, x, ops.full((*x.shape[:-1], 1), t, x))

        wanted = ops.stop_gradient(ops.clip(euler(velocity, draws["action"], self.flow_steps), -1, 1))
        loss = regression(nets.online["actor"](s, draws["action"]), wanted)
        weighted = self.alpha * loss
        return weighted, Terms({"weighted_distil_loss": weighted}, {"distil_loss": loss})

    def critic(self, nets: Nets, batch, draws):
        s, a, then = batch["observations"], batch["actions"], batch["next_observations"]
        action = ops.clip(nets.fixed["actor"](then, draws["following"]), -1, 1)
        following = aggregate(nets.target["critic"](then, action), self.aggregation)
        y = ops.stop_gradient(batch["rewards"] + self.gamma * batch["masks"] * following)
        q = nets.online["critic"](s, a)
        loss = regression(q, y[None])
        return loss, Terms({"critic_loss": loss}, spread("q", q))

    def actor(self, nets: Nets, batch, draws):
        s = batch["observations"]
        action = ops.clip(nets.online["actor"](s, draws["action"]), -1, 1)
        q = ops.mean(nets.fixed["critic"](s, action), 0)
        loss = scaled(q, self.normalise)
        return loss, Terms({"actor_loss": loss}, {"q_mean": ops.mean(q)})

    def act(self, networks, observations, given, noise, temperature):
        # One actor for all noise: at temperature 0 it is given none.
        return ops.clip(networks["actor"](observations, noise * temperature), -1, 1)
