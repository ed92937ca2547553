"""What an offline agent has to say: its networks, a list of losses for each phase, and what its targets do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.offline._encoders import encoder, make_encoder, with_encoders
from twinax.offline._losses import behaviour_cloning
from twinax.problem import Terms
from twinax.ranges import check_range

Batch = Mapping[str, Any]
"""Rows of the data by name: observations, actions, next_observations, rewards, masks, and what `needs` adds."""
PHASES = ("pretrain", "finetune")
RANGES = {
    "between 0 and 1": ("gamma", "tau", "latent_mix_prob"),
    "at least 1": (
        "actor_freq",
        "latent_dim",
        "num_flow_goals",
        "flow_steps",
        "num_model_rollouts",
        "num_model_rollout_steps",
    ),
    "above 0": ("repr_temp", "target_repr_temp"),
    "between 0 and 1, neither of them": ("expectile",),
}
"""What options may be, for those agents that have them."""


@dataclass(frozen=True)
class Sizes:
    """Widths of what the networks see, and rows of a batch. `Agent.sizes` makes them for observations of any shape."""

    observation: int
    """Of an observation, or of what encoders make of it."""
    action: int
    batch: int = 256
    shape: tuple[int, ...] = ()
    """Of an observation, with its frames stacked; by default a vector."""

    def __post_init__(self):
        if not self.shape:
            object.__setattr__(self, "shape", (self.observation,))

    @property
    def images(self) -> bool:
        """Whether observations are images."""
        return len(self.shape) > 1


@dataclass(frozen=True)
class Nets:
    """The networks that a loss sees, by name."""

    online: Mapping[str, Any]
    """Differentiated."""
    fixed: Mapping[str, Any]
    """The same with constant parameters: gradients pass to the inputs, not to the network."""
    target: Mapping[str, Any]
    """Slow copies; constant as well."""


Loss = Callable[[Nets, Batch, Mapping[str, Any]], tuple[Any, Terms]]
"""(networks, batch, draws) -> (scalar, terms), the parts of which add up to the scalar"""


@dataclass(frozen=True, eq=False)
class Link:
    """A network of those by which an agent acts, for who runs it elsewhere: it reads what the one before gave."""

    name: str
    network: Any
    told: Any = None
    """What it is given besides, the same for every row."""
    sees: bool = False
    """Whether it reads the observation, and what the one before gave beside it."""
    on_sphere: float = 0.0
    """Where its answer is put on a sphere, the least squared length by which it is divided; 0: it is not."""


@dataclass(frozen=True, eq=False)
class Agent(ABC):
    """Options that all agents have; those of an agent follow.

    In a step the losses of the phase are added up and differentiated once; those in `gated` only at every
    `actor_freq`-th step of finetuning. Targets then go `tau` of the way to the networks of before the step.
    """

    _made_by = "such as tx.offline.agents.IQL()"

    hidden: tuple[int, ...] = (512, 512, 512, 512)
    """Widths of the hidden layers of every network, from the first to the last."""
    gamma: float = 0.99
    """Discount of a reward for each step that it lies ahead."""
    tau: float = 0.005
    """Share of the way to the networks that target networks go in each training step."""
    actor_freq: int = 4
    """Training steps of finetuning from one update of the actor to the next."""
    actor_layer_norm: bool = False
    """Whether the actor has a LayerNorm after each hidden layer."""
    value_layer_norm: bool = True
    """Whether values and critics have a LayerNorm after each hidden layer."""
    faithful: bool = False
    """Whether the agent does as the released code does, its errors included."""
    encoder: str = ""
    """Encoder of observations, one for each network: impala_small for images, package.module:Name for one of your
    own; empty for vectors as they are."""

    name: ClassVar[str] = ""
    least_rows: ClassVar[int] = 1
    """Of a batch: where rows are compared with each other, it takes two."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Fields of a batch beyond those that every batch has: next_actions, goals, range (of the observations)."""
    trained: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": (), "finetune": ()}
    """Networks that the losses of each phase reach."""
    targets: ClassVar[tuple[str, ...]] = ()
    """Networks that have a target."""
    gated: ClassVar[tuple[str, ...]] = ("actor",)
    """Losses of finetuning that are left out between two full steps."""
    followed: ClassVar[dict[str, tuple[str, ...]]] = {"pretrain": (), "finetune": ()}
    """Targets that follow in each phase."""
    follows_when_full: ClassVar[bool] = False
    """Whether targets follow in full steps of finetuning only."""
    resets: ClassVar[tuple[str, ...]] = ()
    """Targets that become copies when finetuning begins."""
    actor_sees: ClassVar[str] = ""
    """What the actor is given besides the state: nothing, a task's latent, or a goal."""
    reads_goals: ClassVar[tuple[str, ...]] = ()
    """Networks whose second argument is a goal; it has an encoder of its own."""
    reads_nothing: ClassVar[tuple[str, ...]] = ()
    """Networks that read no observation, so that no encoder is put in front of them."""
    encodes: ClassVar[bool] = True
    """Whether the agent can have encoders."""
    flax_names: ClassVar[dict[str, str]] = {}
    """What the published Flax code calls a network, where it has another name."""
    valued_by: ClassVar[str] = ""
    """The network that says how good a state is: of states and what the actor is given, or a critic of actions."""

    def __post_init__(self):
        if not self.hidden or min(self.hidden) < 1:
            raise TwinaxError(f"hidden is {list(self.hidden)}; it needs widths of at least 1")
        for words, labels in RANGES.items():
            check_range(self, words, *(label for label in labels if hasattr(self, label)))
        if self.encoder and not self.encodes:
            raise TwinaxError(f"{self.name} predicts observations, so it has no encoder and reads vectors only")
        if self.encoder:
            encoder(self.encoder)

    @classmethod
    def network_names(cls) -> tuple[str, ...]:
        """All networks: each is trained in one phase at least."""
        return tuple(dict.fromkeys(name for phase in PHASES for name in cls.trained[phase]))

    @classmethod
    def flax_modules(cls, target: bool = False) -> dict[str, str]:
        """Under which names a published checkpoint has these networks, or their targets: `modules` of
        `twinax.bridge.load_flax`."""
        names = cls.targets if target else cls.network_names()
        return {name: f"modules_{'target_' * target}{cls.flax_names.get(name, name)}" for name in names}

    def sizes(self, shape: tuple[int, ...], action: int, batch: int = 256) -> Sizes:
        """Sizes for observations of a shape, with their frames stacked."""
        if self.encoder:
            return Sizes(make_encoder(self.encoder, np.random.default_rng(0), shape).width, action, batch, shape)
        if len(shape) != 1:
            advice = "give it an encoder, such as impala_small" if self.encodes else "it predicts observations"
            raise TwinaxError(f"observations have shape {shape}, but {self.name} reads vectors; {advice}")
        return Sizes(shape[0], action, batch, shape)

    def build(self, rng: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
        """The networks with their first weights, by name, each with an encoder of its own if there are encoders."""
        networks = self.networks(rng, sizes)
        if not self.encoder:
            return networks

        def make() -> Any:
            return make_encoder(self.encoder, rng, sizes.shape)

        return {
            name: net if name in self.reads_nothing else with_encoders(net, make, name in self.reads_goals)
            for name, net in networks.items()
        }

    @abstractmethod
    def networks(self, rng: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
        """The networks for observations, or what encoders make of them, of width `sizes.observation`."""

    @abstractmethod
    def losses(self, phase: str) -> dict[str, Loss]:
        """The losses of a phase (pretrain, finetune), by the name under which their terms are logged."""

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        """Random arrays that the losses of a phase need."""
        return {}

    def prepared(self, nets: Nets, batch: Batch, draws: Mapping[str, Any], phase: str) -> Batch:
        """A batch with what several losses of the phase need of it."""
        return batch

    def reset_targets(self) -> tuple[str, ...]:
        """`resets`, or what is reset by these options."""
        return self.resets

    def first_targets(self, networks: dict[str, Any], rng: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
        """Targets at the start: the networks themselves."""
        return {name: networks[name] for name in self.targets}

    def act(self, networks: Mapping[str, Any], observations: Any, given: Any, noise: Any, temperature: float) -> Any:
        """Actions for rows of observations; temperature 0 is the mode. `given` is what `actor_sees`, row by row."""
        distribution = networks["actor"](observations, given)
        action = distribution.mode if temperature == 0 else distribution.sample(noise, temperature)
        return ops.clip(action, -1, 1)

    def chain(self, networks: Mapping[str, Any], given: Any) -> list[Link]:
        """What `act` does without noise, for who runs it elsewhere; the first link reads the observation."""
        return [Link("actor", networks["actor"], given)]

    def values(self, networks: Mapping[str, Any], observations: Any, given: Any, noise: Any) -> Any:
        """How good states are by `valued_by`; a critic judges what the actor would do there."""
        network = networks[self.valued_by]
        if self.valued_by == "critic":
            return ops.min(network(observations, self.act(networks, observations, given, noise, 0.0)), 0)
        values = network(observations, given)
        return ops.mean(values, 0) if values.ndim == 2 else values

    # A latent that stands for a task

    def infer(self, networks: Mapping[str, Any], batch: Batch) -> Any:
        """The latent of the task that gave these rewards; agents without one have none."""
        raise TwinaxError(f"{self.name} has no latent to infer")

    # Imagined rows

    def memory(self, sizes: Sizes) -> dict[str, np.ndarray]:
        """Rows that the agent makes up in finetuning and keeps; none for most."""
        return {}

    def imagine(self, networks: Mapping[str, Any], memory: Any, batch: Batch, draws: Mapping[str, Any]) -> Any:
        """The memory with new rows."""
        return memory

    def recalled(self, memory: Any, batch: Batch, draws: Mapping[str, Any]) -> Batch:
        """A batch with rows of the memory."""
        return batch


def acted(distribution: Any, draws: Mapping[str, Any], name: str) -> Any:
    """What an actor does in a loss: its mode, or, where its standard deviation is learned, a sample by the draw."""
    return ops.clip(distribution.sample(draws[name]) if name in draws else distribution.mode, -1, 1)


def sampled_actions(std: str, sizes: Sizes, *names: str) -> dict[str, Draw]:
    """Draws of actions by name; none where the standard deviation is one, as then the mode is taken."""
    return {name: Draw((sizes.batch, sizes.action), "normal") for name in names if std != "one"}


def latent_of(batch: Batch) -> Any:
    """The latent of each row, where a phase has one."""
    return batch.get("latents")


def spread(name: str, values: Any) -> dict[str, Any]:
    """The mean, the largest and the smallest of a term's values, for the log."""
    values = ops.stop_gradient(values)
    return {f"{name}_mean": ops.mean(values), f"{name}_max": ops.max(values), f"{name}_min": ops.min(values)}


def cloning_terms(distribution: Any, batch: Batch, loss: Any) -> dict[str, Any]:
    """What is shown of behavioural cloning, whose loss without a weight this is."""
    away = ops.stop_gradient(distribution.mode) - batch["actions"]
    return {"bc_log_prob": -loss, "mse": ops.mean(away * away)}


def cloned(distribution: Any, batch: Batch) -> tuple[Any, Terms]:
    """The loss of behavioural cloning."""
    loss = behaviour_cloning(distribution, batch["actions"])
    return loss, Terms({"bc_loss": loss}, cloning_terms(distribution, batch, loss))


def guided(q: Any, q_loss: Any, distribution: Any, batch: Batch, alpha: float) -> tuple[Any, Terms]:
    """The loss of an actor that follows a critic and stays near the data: q_loss - alpha E log pi(a | s)."""
    cloned = -ops.mean(distribution.log_prob(batch["actions"]))
    bc_loss = alpha * cloned
    loss = q_loss + bc_loss
    shown = {"actor_loss": loss, "q_mean": ops.mean(q), "q_abs_mean": ops.mean(ops.abs(q))}
    parts = {"q_loss": q_loss, "bc_loss": bc_loss}
    return loss, Terms(parts, {**shown, **cloning_terms(distribution, batch, cloned)})
