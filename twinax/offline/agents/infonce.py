"""Contrastive successor measures with importance sampling: CRL (Eysenbach et al., 2022) and TD InfoNCE (Zheng et al.,
2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops
from twinax.noise import Draw
from twinax.offline._agent import Agent, Loss, Nets, Sizes, acted, guided, sampled_actions
from twinax.offline._losses import aggregate, density_ratio, info_nce, off_diagonal, row_entropy, scaled
from twinax.offline.agents.iql import cloning
from twinax.offline.agents.reward import reward
from twinax.offline.networks import STDS, Actor, Bilinear, Value
from twinax.problem import Terms
from twinax.ranges import check_known


@dataclass(frozen=True, eq=False)
class Contrastive(Agent):
    """What both share: a bilinear critic of which goals follow, a reward model, and an actor that maximises the reward
    of goals weighted by how much likelier they are after its action."""

    alpha: float = 0.1
    """Weight of cloning the data's actions in the actor's loss."""
    latent_dim: int = 512
    """Width of the two representations whose product is the critic."""
    normalise: bool = True
    """Whether the actor's objective is divided by the mean size of Q."""
    std: str = "one"
    """Standard deviation of the actor: one (always 1), free (a learned vector) or state (a layer of its own)."""

    least_rows: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("goals",)
    trained: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("critic", "actor"),
        "finetune": ("critic", "reward", "actor"),
    }

    def __post_init__(self):
        super().__post_init__()
        check_known(self, std=STDS)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a = sizes.observation, sizes.action
        return {
            "critic": Bilinear.init(rng, d + a, d, self.hidden, self.latent_dim, norm=self.value_layer_norm),
            "reward": Value.init(rng, d, self.hidden),
            "actor": Actor.init(rng, d, self.hidden, a, std=self.std, norm=self.actor_layer_norm),
        }

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        return sampled_actions(self.std, sizes, "action") if phase == "finetune" else {}

    def member_logits(self, logits: Any) -> Any:
        """One matrix of an ensemble's logits, for the actor."""
        raise NotImplementedError

    def actor(self, nets: Nets, batch, draws):
        s, goals = batch["observations"], batch["actor_goals"]
        distribution = nets.online["actor"](s)
        action = acted(distribution, draws, "action")
        logits = self.member_logits(nets.fixed["critic"](goals, s, action))
        q = density_ratio(logits) * nets.fixed["reward"](goals)
        return guided(q, scaled(q, self.normalise), distribution, batch, self.alpha)


@dataclass(frozen=True, eq=False)
class CRL(Contrastive):
    """Goals are later states of the same trajectory; the others of the batch are the contrast."""

    symmetric: bool = False
    """Whether the contrastive loss goes over rows and columns, in place of rows with a penalty on their log
    partition."""

    name: ClassVar[str] = "crl_infonce"

    def losses(self, phase: str) -> dict[str, Loss]:
        if phase == "pretrain":
            return {"critic": self.contrast, "bc": cloning}
        return {"reward": reward, "critic": self.contrast, "actor": self.actor}

    def contrast(self, nets: Nets, batch, draws):
        logits = nets.online["critic"](batch["value_goals"], batch["observations"], batch["actions"])
        loss = info_nce(logits, self.symmetric)
        return loss, Terms({"contrastive_loss": loss}, accuracy(logits))

    def member_logits(self, logits):
        # Below log 1e-6 a logit has no gradient, as where exp is floored before the logarithm.
        low = math.log(1e-6)
        return ops.min(ops.where(logits < low, low, logits), 0)


@dataclass(frozen=True, eq=False)
class TDInfoNCE(Contrastive):
    """The contrast is bootstrapped: the next state now, or what the target says follows the next state and action."""

    aggregation: str = "mean"
    """How the logits of the two critics become one: mean or min."""

    name: ClassVar[str] = "td_infonce"
    needs: ClassVar[tuple[str, ...]] = ("next_actions", "goals")
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("critic",), "finetune": ("critic",)}
    resets: ClassVar[tuple[str, ...]] = ("critic",)

    def __post_init__(self):
        super().__post_init__()
        check_known(self, aggregation=("mean", "min"))

    def losses(self, phase: str) -> dict[str, Loss]:
        if phase == "pretrain":
            return {"critic": self.contrast_of_data, "bc": cloning}
        return {"reward": reward, "critic": self.contrast_of_actor, "actor": self.actor}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        following = sampled_actions(self.std, sizes, "next_action") if phase == "finetune" else {}
        return {**super().draws(phase, sizes), **following}

    def contrast_of_data(self, nets: Nets, batch, draws):
        return self.contrast(nets, batch, batch["next_actions"])

    def contrast_of_actor(self, nets: Nets, batch, draws):
        return self.contrast(nets, batch, acted(nets.fixed["actor"](batch["next_observations"]), draws, "next_action"))

    def contrast(self, nets: Nets, batch, next_actions):
        s, a, then, goals = (batch[k] for k in ("observations", "actions", "next_observations", "value_goals"))
        critic = nets.online["critic"]
        phi = critic.phi(s, a)
        soon, later = critic.pairs(phi, then), critic.pairs(phi, goals)
        mixed = soon - off_diagonal(soon) + off_diagonal(later)
        following = nets.target["critic"](goals, then, ops.stop_gradient(next_actions))
        weights = ops.stop_gradient(ops.softmax(aggregate(following, self.aggregation)))
        ahead = -ops.sum(weights[None] * ops.log_softmax(later), -1)
        loss = ops.mean((1 - self.gamma) * row_entropy(mixed) + self.gamma * ahead)
        return loss, Terms({"contrastive_loss": loss}, accuracy(mixed))

    def member_logits(self, logits):
        return aggregate(logits, self.aggregation)


def accuracy(logits: Any) -> dict[str, Any]:
    """How often a row's own goal has the largest logit (up to rounding: a goal may be drawn twice), and the logits of
    own and other goals."""
    mean = ops.stop_gradient(ops.mean(logits, 0))
    n = mean.shape[0]
    own = ops.einsum("ii->i", mean)
    right = ops.max(mean, -1) - own <= 1e-6
    return {
        "categorical_accuracy": ops.mean(ops.cast(right, mean)),
        "logits_pos": ops.mean(own),
        "logits_neg": ops.sum(off_diagonal(mean)) / (n * (n - 1)),
    }
