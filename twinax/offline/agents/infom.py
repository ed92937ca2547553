"""Intention-conditioned flow occupancy models (Zheng et al., 2025): a flow generates the states that follow, a latent
says what the data's policy had in mind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks import Encoded
from twinax.noise import Draw
from twinax.offline._agent import Agent, Loss, Nets, Sizes, acted, guided, sampled_actions, spread
from twinax.offline._encoders import make_encoder
from twinax.offline._losses import aggregate, euler, expectile, scaled, standard_normal_kl
from twinax.offline.agents.iql import cloning
from twinax.offline.agents.reward import reward
from twinax.offline.networks import STDS, Actor, Intention, Value
from twinax.problem import Terms
from twinax.ranges import check_known


@dataclass(frozen=True, eq=False)
class InFOM(Agent):
    """The critic is the mean reward of states that the flow generates.

    With an encoder the flow has one of its own, and it generates encoded states; the reward is a function of those.
    """

    value_layer_norm: bool = False
    latent_dim: int = 512
    """Width of the latents that stand for intentions."""
    expectile: float = 0.9
    """Expectile of the returns over latents that Q approaches; above 0.5 it leans to the best."""
    kl_weight: float = 0.01
    """Weight of the latents' divergence from a standard normal distribution."""
    alpha: float = 10.0
    """Weight of cloning the data's actions in the actor's loss."""
    num_flow_goals: int = 16
    """Future states that the flow generates for a critic's target."""
    flow_steps: int = 10
    """Steps in which the flow is integrated."""
    clip_flow_goals: bool = True
    """Whether generated states are cut off at the data's range; encoded states have none."""
    aggregation: str = "min"
    """How the two critics become one Q in the actor's loss: min or mean."""
    normalise: bool = False
    """Whether the actor's objective is divided by the mean size of Q."""
    critic_latent_type: str = "prior"
    """Where the latents of a critic's target are from: prior, or encoding (of the next state and action)."""
    std: str = "one"
    """Standard deviation of the actor: one (always 1), free (a learned vector) or state (a layer of its own)."""

    name: ClassVar[str] = "infom"
    flax_names: ClassVar[dict[str, str]] = {"field": "critic_vf", "intention": "intention_encoder"}
    valued_by: ClassVar[str] = "critic"
    reads_nothing: ClassVar[tuple[str, ...]] = ("field", "reward")
    needs: ClassVar[tuple[str, ...]] = ("next_actions", "range")
    targets: ClassVar[tuple[str, ...]] = ("field",)
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("field",), "finetune": ("field",)}
    resets: ClassVar[tuple[str, ...]] = ("field",)
    trained: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("field", "intention", "actor"),
        "finetune": ("field", "intention", "reward", "critic", "actor"),
    }

    def __post_init__(self):
        super().__post_init__()
        check_known(self, aggregation=("min", "mean"), critic_latent_type=("prior", "encoding"), std=STDS)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a = sizes.observation, sizes.action
        critic = Value.init(rng, d + a, self.hidden, members=2, norm=self.value_layer_norm)
        field = Value.init(rng, 2 * d + 1 + a + self.latent_dim, self.hidden, d, norm=self.value_layer_norm)
        return {
            "critic": critic,
            "field": Encoded(make_encoder(self.encoder, rng, sizes.shape), field, 0) if self.encoder else field,
            "intention": Intention.init(rng, d + a, self.hidden, self.latent_dim),
            "actor": Actor.init(rng, d, self.hidden, a, std=self.std, norm=self.actor_layer_norm),
            "reward": Value.init(rng, d, self.hidden),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        if phase == "pretrain":
            return {"flow_occupancy": self.occupancy, "bc": cloning}
        if self.gamma == 1:
            raise TwinaxError("gamma is 1, but infom's critic divides by 1 - gamma; it must be less")
        return {"flow_occupancy": self.occupancy, "reward": reward, "critic": self.critic, "actor": self.actor}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        rows, d = sizes.batch, sizes.observation
        found = {
            "latent": Draw((rows, self.latent_dim), "normal"),
            "time": Draw((rows,)),
            "current": Draw((rows, d), "normal"),
            "future": Draw((rows, d), "normal"),
        }
        if phase == "finetune":
            found["goals"] = Draw((self.num_flow_goals, rows, d), "normal")
            found["prior"] = Draw((rows, self.latent_dim), "normal")
            found |= sampled_actions(self.std, sizes, "action")
        return found

    def flow(self, field: Any, noise: Any, batch, states: Any, actions: Any, z: Any) -> Any:
        """States that follow, from noise."""
        given = [ops.broadcast(part, (*noise.shape[:-1], part.shape[-1])) for part in (states, actions, z)]

        def velocity(x, t):
            return field(x, ops.full((*x.shape[:-1], 1), t, x), *given)

        low, high = None, None
        if self.clip_flow_goals and not self.encoder:
            low, high = batch["observation_min"] + 1e-5, batch["observation_max"] - 1e-5
        return ops.stop_gradient(euler(velocity, noise, self.flow_steps, low, high))

    def prepared(self, nets: Nets, batch, draws, phase):
        """States as the flow has them: with an encoder, encoded once for all losses."""
        if not self.encoder:
            return batch
        encoder, slow = nets.online["field"].encoder, nets.target["field"].encoder
        s, then = encoder(batch["observations"]), slow(batch["next_observations"])
        rewarded = encoder(batch["reward_observations"]) if "reward_observations" in batch else s
        return {**batch, "flow_states": (s, then), "reward_observations": ops.stop_gradient(rewarded)}

    def occupancy(self, nets: Nets, batch, draws):
        a, next_action = batch["actions"], batch["next_actions"]
        s, then = flow_states(batch)
        intention = nets.online["intention"](batch["next_observations"], next_action)
        z = intention.sample(draws["latent"])
        kl = standard_normal_kl(intention.mean, intention.log_std)
        t = draws["time"][:, None]
        now, ahead = draws["current"], draws["future"]
        # An encoder learns by the noisy state only: otherwise it would make the flow's task easy.
        fixed = ops.stop_gradient(s)
        away = (fixed - now) - nets.online["field"](t * s + (1 - t) * now, t, fixed, a, z)
        current = ops.mean(away * away, -1)
        z = ops.stop_gradient(z)
        later = self.flow(nets.target["field"], ahead, batch, then, next_action, z)
        between = t * later + (1 - t) * ahead
        wanted = ops.stop_gradient(nets.target["field"](between, t, then, next_action, z))
        away = wanted - nets.online["field"](between, t, fixed, a, z)
        future = ops.mean(away * away, -1)
        matching = ops.mean((1 - self.gamma) * current + self.gamma * future)
        parts = {"flow_matching_loss": matching, "weighted_kl_loss": self.kl_weight * kl}
        loss = matching + parts["weighted_kl_loss"]
        shown = {"neg_elbo_loss": loss, "kl_loss": kl}
        shown |= {"current_flow_matching_loss": ops.mean(current), "future_flow_matching_loss": ops.mean(future)}
        shown |= {"flow_future_obs_max": ops.max(later), "flow_future_obs_min": ops.min(later)}
        return loss, Terms(parts, shown)

    def critic(self, nets: Nets, batch, draws):
        s, a = batch["observations"], batch["actions"]
        z = draws["prior"]
        if self.critic_latent_type == "encoding":
            z = nets.fixed["intention"](batch["next_observations"], batch["next_actions"]).sample(z)
        now = ops.stop_gradient(flow_states(batch)[0])
        goals = self.flow(nets.fixed["field"], draws["goals"], batch, now, a, z)
        y = ops.stop_gradient(ops.mean(nets.fixed["reward"](goals), 0) / (1 - self.gamma))
        q = nets.online["critic"](s, a)
        loss = ops.mean(expectile(y[None] - q, self.expectile))
        value = aggregate(q, self.aggregation)
        return loss, Terms({"critic_loss": loss}, spread("q", value))

    def actor(self, nets: Nets, batch, draws):
        s = batch["observations"]
        distribution = nets.online["actor"](s)
        q = aggregate(nets.fixed["critic"](s, acted(distribution, draws, "action")), self.aggregation)
        return guided(q, scaled(q, self.normalise), distribution, batch, self.alpha)


def flow_states(batch) -> tuple[Any, Any]:
    """States and next states as the flow has them: themselves, or encoded."""
    return batch.get("flow_states", (batch["observations"], batch["next_observations"]))
