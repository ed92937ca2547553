"""Agents with a latent that stands for a task: Hilbert representations (Park et al., 2024) and forward-backward
representations (Touati and Ollivier, 2021), each with implicit Q-learning on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops
from twinax.noise import Draw
from twinax.offline._agent import Loss, Nets, Sizes, acted, guided, sampled_actions, spread
from twinax.offline._losses import aggregate, goal_value_loss, off_diagonal, on_sphere, scaled
from twinax.offline.agents.iql import IQL
from twinax.offline.networks import Metric, Value
from twinax.problem import Terms
from twinax.ranges import check_known


@dataclass(frozen=True, eq=False)
class LatentIQL(IQL):
    """Implicit Q-learning with a latent beside the state. In finetuning it is the one inferred from rewards."""

    latent_dim: int = 512
    """Width of latents and representations."""

    actor_sees: ClassVar[str] = "latent"

    def critics_and_actor(self, rng, sizes: Sizes) -> dict[str, Any]:
        """Value, critic and actor of implicit Q-learning, with a latent."""
        return super().networks(rng, Sizes(sizes.observation + self.latent_dim, sizes.action, sizes.batch))


@dataclass(frozen=True, eq=False)
class HILP(LatentIQL):
    """States are placed so that distance is time to reach; a latent is a direction, and its reward the way along it."""

    name: ClassVar[str] = "hilp"
    flax_names: ClassVar[dict[str, str]] = {
        "metric": "value",
        "value": "skill_value",
        "critic": "skill_critic",
        "actor": "skill_actor",
    }
    needs: ClassVar[tuple[str, ...]] = ("goals",)
    trained: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("metric", "value", "critic", "actor"),
        "finetune": ("value", "critic", "actor"),
    }
    targets: ClassVar[tuple[str, ...]] = ("metric", "critic")
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("metric", "critic"), "finetune": ("critic",)}
    resets: ClassVar[tuple[str, ...]] = ("critic",)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        metric = Metric.init(rng, sizes.observation, self.hidden, self.latent_dim, norm=self.value_layer_norm)
        return {"metric": metric, **self.critics_and_actor(rng, sizes)}

    def losses(self, phase: str) -> dict[str, Loss]:
        skills = super().losses("finetune")
        return skills if phase == "finetune" else {"metric": self.metric, **skills}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        # Skills are learned in both phases, so both draw what implicit Q-learning draws.
        found = super().draws("finetune", sizes)
        return {**found, "latent": Draw((sizes.batch, self.latent_dim), "normal")} if phase == "pretrain" else found

    def prepared(self, nets: Nets, batch, draws, phase):
        """Random directions as latents, and the way along them as rewards."""
        if phase == "finetune":
            return batch
        z = on_sphere(draws["latent"])
        placed = nets.online["metric"].phi(batch["observations"])
        way = self.features(nets.fixed, batch["next_observations"]) - placed[0]
        return {**batch, "placed": placed, "latents": z, "rewards": ops.stop_gradient(ops.sum(way * z, -1))}

    def features(self, networks, states: Any) -> Any:
        """Where the first member places states."""
        return some_at_once(networks["metric"].first, states)

    def metric(self, nets: Nets, batch, draws):
        s, then, goals = batch["observations"], batch["next_observations"], batch["value_goals"]
        online, target = nets.online["metric"], nets.target["metric"]
        v = online.between(batch["placed"], online.phi(goals))
        ends = target.phi(goals)
        now, following = target.between(target.phi(s), ends), target.between(target.phi(then), ends)
        rewards, masks = batch["relabeled_rewards"], batch["relabeled_masks"]
        loss = goal_value_loss(v, now, following, rewards, masks, self.gamma, self.expectile)
        return loss, Terms({"value_loss": loss}, spread("v", ops.mean(v, 0)))

    def task_features(self, networks, batch) -> Any:
        """What a task's reward is linear in: rewards are regressed on it to infer the latent."""
        return self.features(networks, batch["next_observations"]) - self.features(networks, batch["observations"])

    def infer(self, networks, batch) -> Any:
        """The latent of the task that gave these rewards: least squares, put on the sphere."""
        solved = ops.least_squares(self.task_features(networks, batch), batch["rewards"])
        return on_sphere(solved[None])[0]


@dataclass(frozen=True, eq=False)
class ForwardBackward(LatentIQL):
    """Successor measures as products F(s, a, z) . B(s'); a reward's latent is its mean over B."""

    alpha_repr: float = 10.0
    """Weight of cloning the data's actions while the representations are learned."""
    orthonorm_coeff: float = 1.0
    """Weight of the loss that keeps the backward representation orthonormal."""
    latent_mix_prob: float = 0.5
    """Share of the latents that are random, between 0 and 1; the others are backward representations of states in
    the batch."""
    aggregation: str = "mean"
    """How the two target measures become one: mean or min."""
    normalise: bool = False
    """Whether the actor's objective is divided by the mean size of Q while the representations are learned."""

    name: ClassVar[str] = "fb_repr"
    least_rows: ClassVar[int] = 2
    flax_names: ClassVar[dict[str, str]] = {"forward": "forward_repr", "backward": "backward_repr"}
    trained: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("forward", "backward", "actor"),
        "finetune": ("value", "critic", "actor"),
    }
    targets: ClassVar[tuple[str, ...]] = ("forward", "backward", "critic")
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("forward", "backward"), "finetune": ("critic",)}

    def __post_init__(self):
        super().__post_init__()
        check_known(self, aggregation=("mean", "min"))

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a, width = sizes.observation, sizes.action, self.latent_dim
        return {
            "forward": Value.init(rng, d + width + a, self.hidden, width, members=2, norm=self.value_layer_norm),
            "backward": Value.init(rng, d, self.hidden, width, norm=self.value_layer_norm),
            **self.critics_and_actor(rng, sizes),
        }

    def first_targets(self, networks, rng, sizes: Sizes) -> dict[str, Any]:
        found = super().first_targets(networks, rng, sizes)
        # As released, the target of the critic is a random network of its own.
        return {**found, "critic": self.build(rng, sizes)["critic"]} if self.faithful else found

    def losses(self, phase: str) -> dict[str, Loss]:
        return super().losses(phase) if phase == "finetune" else {"fb_repr": self.measure, "fb_actor": self.follow}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        if phase == "finetune":
            return super().draws(phase, sizes)
        rows = (sizes.batch,)
        found = {"latent": Draw((*rows, self.latent_dim), "normal"), "mix": Draw(rows), "order": Draw(rows)}
        return {**found, **sampled_actions(self.std, sizes, "next_action", "action")}

    def prepared(self, nets: Nets, batch, draws, phase):
        """Random points of the sphere as latents, or where states of the batch lie, in another order."""
        if phase == "finetune":
            return batch
        order = ops.smallest(draws["order"], draws["order"].shape[0])
        of_states = on_sphere(nets.fixed["backward"](ops.take(batch["observations"], order)))
        random = on_sphere(draws["latent"])
        mixed = ops.where((draws["mix"] < self.latent_mix_prob)[:, None], random, of_states)
        return {**batch, "latents": ops.stop_gradient(mixed)}

    def measure(self, nets: Nets, batch, draws):
        s, a, then = batch["observations"], batch["actions"], batch["next_observations"]
        z, n = batch["latents"], s.shape[0]
        action = acted(nets.fixed["actor"](then, z), draws, "next_action")
        ahead = nets.target["forward"](then, z, action)
        following = ops.einsum("eik,jk->eij", ahead, on_sphere(nets.target["backward"](then)))
        following = ops.stop_gradient(aggregate(following, self.aggregation))
        b = on_sphere(nets.online["backward"](then))
        now = ops.einsum("eik,jk->eij", nets.online["forward"](s, z, a), b)
        own = ops.mean(ops.einsum("eii->ei", now))
        away = off_diagonal(now - self.gamma * following[None])
        others = ops.mean(ops.sum(away * away, -1)) / (n - 1)
        cross = ops.einsum("ik,jk->ij", b, b)
        apart = off_diagonal(cross)
        orthonormal = -2 * ops.mean(ops.einsum("ii->i", cross)) + ops.mean(ops.sum(apart * apart, -1)) / (n - 1)
        parts = {"repr_loss": -own + 0.5 * others, "ortho_loss": self.orthonorm_coeff * orthonormal}
        shown = {"repr_diag_loss": -own, "repr_others": 0.5 * others, **spread("occ_measure", now)}
        return parts["repr_loss"] + parts["ortho_loss"], Terms(parts, shown)

    def follow(self, nets: Nets, batch, draws):
        s, z = batch["observations"], batch["latents"]
        distribution = nets.online["actor"](s, z)
        action = acted(distribution, draws, "action")
        q = ops.min(ops.sum(nets.fixed["forward"](s, z, action) * z[None], -1), 0)
        return guided(q, scaled(q, self.normalise), distribution, batch, self.alpha_repr)

    def infer(self, networks, batch) -> Any:
        """The latent of the task that gave these rewards: their mean over B, put on the sphere."""
        b = on_sphere(some_at_once(networks["backward"], batch.get("reward_observations", batch["observations"])))
        return on_sphere(ops.mean(batch["rewards"][:, None] * b, 0)[None])[0]


def some_at_once(network: Any, states: Any) -> Any:
    """`network(states)`; of many images some at a time, as their layers need much memory."""
    return network(states) if states.ndim == 2 or states.shape[0] <= 512 else ops.map_rows(network, states, 512)
