"""ReBRAC after behavioural cloning (Tarasov et al., 2023), and the two agents that build on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twinax import ops
from twinax.networks import MLP
from twinax.noise import Draw
from twinax.offline._agent import Agent, Link, Loss, Nets, Sizes, cloned, spread
from twinax.offline._encoders import make_encoder
from twinax.offline._losses import noisy_action, regression, scaled, squared_distance
from twinax.offline._sampling import BatchOptions, random_crop
from twinax.offline.networks import Actor, Value
from twinax.problem import Terms


@dataclass(frozen=True, eq=False)
class ReBRAC(Agent):
    """TD3 with penalties on the distance from the data's actions, in the actor and in the critic."""

    alpha_actor: float = 0.0
    """Weight of the actor's squared distance from the data's actions."""
    alpha_critic: float = 0.0
    """Weight of the next action's squared distance from the data's, in the critic's target."""
    policy_noise: float = 0.2
    """Standard deviation of the noise on the next action of a critic's target."""
    noise_clip: float = 0.5
    """Size at which the noise on the next action is cut off."""

    name: ClassVar[str] = "rebrac"
    valued_by: ClassVar[str] = "critic"
    needs: ClassVar[tuple[str, ...]] = ("next_actions",)
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": (), "finetune": ("critic", "actor")}
    follows_when_full: ClassVar[bool] = True
    trained: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("actor",), "finetune": ("critic", "actor")}

    def reset_targets(self) -> tuple[str, ...]:
        # As released, finetuning begins with the random first actor as its target, though the actor was cloned.
        return self.resets if self.faithful else (*self.resets, "actor")

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        return self.critic_and_actor(rng, sizes.observation, sizes.action)

    def critic_and_actor(self, rng, width: int, actions: int) -> dict[str, Any]:
        return {
            "critic": Value.init(rng, width + actions, self.hidden, members=2, norm=self.value_layer_norm),
            "actor": Actor.init(rng, width, self.hidden, actions, squashed=True, norm=self.actor_layer_norm),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"bc": self.cloning} if phase == "pretrain" else {"critic": self.critic, "actor": self.actor}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        return {"action": Draw((sizes.batch, sizes.action), "normal")} if phase == "finetune" else {}

    # What the networks see of a state: itself here, a representation in a subclass

    def seen(self, nets: Nets, states: Any) -> Any:
        return states

    def seen_by_target(self, nets: Nets, states: Any) -> Any:
        return states

    def cloning(self, nets: Nets, batch, draws):
        return cloned(nets.online["actor"](self.seen(nets, batch["observations"])), batch)

    def critic(self, nets: Nets, batch, draws):
        then = self.seen_by_target(nets, batch["next_observations"])
        action = noisy_action(nets.target["actor"](then).mode, draws["action"], self.policy_noise, self.noise_clip)
        following = ops.min(nets.target["critic"](then, action), 0)
        penalty = self.alpha_critic * squared_distance(action, batch["next_actions"])
        if not self.faithful:
            penalty = penalty * batch["next_action_masks"]
        y = ops.stop_gradient(batch["rewards"] + self.gamma * batch["masks"] * (following - penalty))
        q = nets.online["critic"](self.seen(nets, batch["observations"]), batch["actions"])
        loss = regression(q, y[None])
        return loss, Terms({"critic_loss": loss}, spread("q", q))

    def actor(self, nets: Nets, batch, draws):
        states = self.seen(nets, batch["observations"])
        action = nets.online["actor"](states).mode
        q = ops.min(nets.fixed["critic"](states, action), 0)
        away = ops.mean(squared_distance(action, batch["actions"]))
        follow = scaled(q, True)
        near = self.alpha_actor * away
        loss = follow + near
        return loss, Terms({"actor_loss": follow, "bc_loss": near}, {"total_loss": loss, "mse": away})

    def act(self, networks, observations, given, noise, temperature):
        mode = networks["actor"](observations).mode
        return mode if temperature == 0 else noisy_action(mode, noise, self.policy_noise * temperature, self.noise_clip)


@dataclass(frozen=True, eq=False)
class DinoReBRAC(ReBRAC):
    """ReBRAC on a representation that a teacher and a student agree on (after Caron et al., 2021).

    It is what the encoder makes of an observation; without a name that is a perceptron of as many layers as `hidden`
    has, the last one linear and of `width`.
    """

    repr_noise: float = 0.5
    """Standard deviation of the noise that makes two views of a state; those of an image are random crops."""
    repr_noise_clip: float = 1.0
    """Size at which the noise of a view is cut off."""
    repr_temp: float = 0.1
    """Temperature of the student's softmax over its representation."""
    target_repr_temp: float = 0.04
    """Temperature of the teacher's softmax over its representation."""
    latent_dim: int = 512
    """Width of the representation, unless an encoder is named."""

    name: ClassVar[str] = "dino_rebrac"
    reads_nothing: ClassVar[tuple[str, ...]] = ("encoder", "critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("encoder", "critic", "actor")
    followed: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("encoder",),
        "finetune": ("encoder", "critic", "actor"),
    }
    trained: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": ("encoder", "actor"), "finetune": ("critic", "actor")}
    resets: ClassVar[tuple[str, ...]] = ("encoder",)

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        if self.encoder:
            encoder, width = make_encoder(self.encoder, rng, sizes.shape), sizes.observation
        else:
            encoder, width = MLP.xavier(rng, sizes.observation, self.hidden[:-1], self.latent_dim), self.latent_dim
        return {"encoder": encoder, **self.critic_and_actor(rng, width, sizes.action)}

    def losses(self, phase: str) -> dict[str, Loss]:
        return {"repr": self.representation, **super().losses(phase)} if phase == "pretrain" else super().losses(phase)

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        if phase == "pretrain" and sizes.images:
            return {"views": Draw((2, sizes.batch, 2), "integers", 2 * BatchOptions.pad + 1)}
        if phase == "pretrain":
            return {"views": Draw((2, sizes.batch, *sizes.shape), "normal")}
        return super().draws(phase, sizes)

    def seen(self, nets: Nets, states: Any) -> Any:
        return nets.fixed["encoder"](states)

    def seen_by_target(self, nets: Nets, states: Any) -> Any:
        return nets.target["encoder"](states)

    def views(self, states: Any, draws: Any) -> list[Any]:
        """Two views of states: with noise, or of images two crops."""
        if states.ndim == 4:
            return [random_crop(states, draws[i], BatchOptions.pad) for i in range(2)]
        noise = ops.clip(self.repr_noise * draws, -self.repr_noise_clip, self.repr_noise_clip)
        return [states + noise[i] for i in range(2)]

    def representation(self, nets: Nets, batch, draws):
        """The student's distribution towards the teacher's, over two views; each sees the other's, and the teacher is
        centred by its mean over the batch. As released, both see the same view and nothing is centred."""
        views = self.views(batch["observations"], draws["views"])
        students = [nets.online["encoder"](view) for view in views]
        teachers = [ops.stop_gradient(nets.target["encoder"](view)) for view in views]
        if not self.faithful:
            centre = 0.5 * (ops.mean(teachers[0], 0) + ops.mean(teachers[1], 0))
            teachers = [teachers[1] - centre, teachers[0] - centre]
        loss = 0.0
        for student, teacher in zip(students, teachers, strict=True):
            wanted = ops.softmax(teacher / self.target_repr_temp)
            loss = loss - 0.5 * ops.mean(ops.sum(wanted * ops.log_softmax(student / self.repr_temp), -1))
        return loss, Terms({"repr_loss": loss})

    def act(self, networks, observations, given, noise, temperature):
        return super().act(networks, networks["encoder"](observations), given, noise, temperature)

    def chain(self, networks, given):
        return [Link("encoder", networks["encoder"]), *super().chain(networks, given)]

    def values(self, networks, observations, given, noise):
        action = self.act(networks, observations, given, noise, 0.0)
        return ops.min(networks["critic"](networks["encoder"](observations), action), 0)
