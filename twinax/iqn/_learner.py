"""What a group of learning agents is told, and its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs.world import World, decode
from twinax.errors import TwinaxError
from twinax.iqn._losses import (
    REDUCTIONS,
    categorical_cross_entropy,
    double_q_target,
    of_actions,
    priorities,
    project_categorical,
    quantile_huber,
)
from twinax.iqn._network import VARIANTS, check_support, expected_return
from twinax.iqn._replay import Batch, ReplayOptions
from twinax.networks import NetworkFactory, NetworkSpec, frozen, make_own
from twinax.noise import Draw
from twinax.ranges import check_counts, check_finite, check_known, check_range
from twinax.types import Array, Float


@checked
@dataclass(frozen=True)
class Learners:
    """Agents that learn alike, each with a network of its own."""

    count: int = 5
    """How many agents."""
    variant: str = "iqn"
    """How the distribution of returns is described: iqn, qr (fixed quantiles) or c51 (atoms)."""
    width: int = 250
    """Width of each hidden layer of the networks."""
    num_quantiles: int = 12
    """Quantile fractions that are drawn for a transition in the loss (iqn), or fixed quantiles (qr)."""
    num_act_quantiles: int = 12
    """Quantile fractions that are drawn for an acting agent, which compares the means over them (iqn)."""
    num_cosines: int = 64
    """Cosines that describe a quantile fraction to the network (iqn)."""
    num_atoms: int = 51
    """Atoms of the distribution of returns (c51)."""
    v_min: float = -10.0
    """Lowest return that has an atom (c51)."""
    v_max: float = 100.0
    """Highest return that has an atom (c51)."""
    dueling: bool = True
    """Whether networks have a state value and advantages, or else action values at once."""
    noisy: bool = True
    """Whether the last layers have learned noise while training."""
    kappa: float = 1.0
    """Size of an error at which the quantile Huber loss becomes linear."""
    reduction: str = "mean"
    """How the loss is taken over predicted quantiles: mean as in Sorrel, or sum as in the paper."""
    batch_size: int = 256
    """Transitions of each agent in a train step."""
    learning_rate: float = 2.5e-4
    """Step size of the networks."""
    tau: float = 1e-3
    """Share of the way to the networks that target networks go after each train step; 0 means that they stay."""
    target_network_frequency: int = 200
    """Epochs between two copies of the networks into the target networks; 0 means never."""
    epsilon: float = 1.0
    """Probability of a random action in the first epoch."""
    epsilon_decay: float = 0.001
    """Share of the probability of a random action that is lost with each epoch, between 0 and 1."""
    epsilon_min: float = 0.0
    """Probability of a random action below which it does not fall."""
    network: NetworkFactory | None = None
    """What makes the features of a view, `(rng, spec) -> module` with `width` columns; None: one linear layer."""
    replay: ReplayOptions = field(default_factory=ReplayOptions)
    """What is remembered, and how it is drawn."""

    def __post_init__(self):
        check_known(self, variant=VARIANTS, reduction=REDUCTIONS)
        check_counts(
            self, ("count", "width", "num_quantiles", "num_act_quantiles", "num_cosines", "batch_size", "num_atoms")
        )
        check_counts(self, ("target_network_frequency",), least=0)
        check_range(self, "between 0 and 1", "epsilon", "epsilon_decay", "epsilon_min", "tau")
        check_finite(self, ("learning_rate", "kappa", "v_min", "v_max"))
        check_range(self, "above 0", "kappa")
        if not isinstance(self.replay, ReplayOptions):
            raise TwinaxError(f"replay is {self.replay!r}; give twinax.iqn.ReplayOptions")
        if self.variant == "c51":
            check_support(self.num_atoms, self.v_min, self.v_max)

    @property
    def work(self) -> int:
        """Numbers in the largest array of a train step."""
        rows = self.num_quantiles if self.variant == "iqn" else 1
        return self.batch_size * rows * self.width

    def check(self, world: World, worlds: int) -> None:
        """Refuse a memory that cannot hold an epoch or a return, or cannot give a batch."""
        replay = self.replay
        if replay.buffer_size < world.turns + replay.gap:
            raise TwinaxError(
                f"buffer_size is {replay.buffer_size}, but an epoch fills {world.turns + replay.gap} slots; "
                "make it larger"
            )
        if replay.reach > replay.buffer_size:
            raise TwinaxError(
                f"n_step is {replay.n_step}, but buffer_size is {replay.buffer_size}; make n_step at most the "
                f"{world.turns} turns of an epoch"
            )
        most = worlds * replay.available(world.turns, epochs=replay.buffer_size)
        if self.batch_size > most:
            raise TwinaxError(
                f"a batch of {self.batch_size} is larger than the {most} steps that a replay with buffer_size="
                f"{replay.buffer_size} can give; make buffer_size larger or the batch smaller"
            )

    def waiting(self, world: World, worlds: int) -> int:
        """Epochs that are played before the first that ends with a train step."""
        epochs = 0
        while worlds * self.replay.available(world.turns, epochs + 1) < self.batch_size:
            epochs += 1
        return epochs

    def init(self, rng: np.random.Generator, world: World) -> Any:
        """One network."""
        inputs = self.replay.frame_stack * world.observation_size
        options: dict[str, Any] = {"dueling": self.dueling, "noisy": self.noisy}
        if self.variant == "iqn":
            options["cosines"] = self.num_cosines
        elif self.variant == "qr":
            options["quantiles"] = self.num_quantiles
        else:
            options |= {"atoms": self.num_atoms, "low": self.v_min, "high": self.v_max}
        made = VARIANTS[self.variant].init(rng, inputs, self.width, world.num_actions, **options)
        if self.network is None:
            return made
        spec = NetworkSpec("features", np.zeros((1, inputs), np.float32), {"features": self.width})
        feature, _ = make_own(self.network, rng, spec)
        return dataclasses.replace(made, feature=feature)

    def act_draws(self, world: World, worlds: int) -> dict[str, Draw]:
        """Random arrays for acting in one epoch."""
        shape = (world.turns, self.count, worlds)
        draws = {"explore": Draw(shape), "random": Draw(shape)}
        if self.variant == "iqn":
            draws["taus"] = Draw((*shape, self.num_act_quantiles))
        return draws

    def train_draws(self, network: Any, worlds: int, steps: int) -> dict[str, Draw]:
        """Random arrays for the train steps after one epoch."""
        lead, batch = (steps, self.count), self.batch_size
        draws = {"pick": Draw((*lead, batch if self.replay.alpha else worlds * self.replay.buffer_size))}
        if self.variant == "iqn":
            draws["taus"] = Draw((*lead, 3, batch, self.num_quantiles))
        if network.noise_size:
            draws["noise"] = Draw((*lead, 3, network.noise_size), "normal")
        return draws

    def values(self, network: Any, views: Any, codebook: Any, taus: Any) -> Float[Array, "rows actions"]:
        """Expected returns of the actions, without noise: what an agent acts on."""
        return expected_return(network, network(decode(views, codebook), taus))

    def loss(
        self, network: Any, target: Any, batch: Batch, codebook: Any, draws: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """One agent's loss, its mean value, and the error of each transition.

        The online network chooses the next action and the target network values it; draws 0, 1 and 2 belong to the
        online network, to its choice, and to the target.
        """
        taus, noise = (
            [draws[name][i] for i in range(3)] if name in draws else [None] * 3 for name in ("taus", "noise")
        )
        seen, then = decode(batch.views, codebook), decode(batch.next_views, codebook)
        predicted = of_actions(network(seen, taus[0], noise[0]), batch.actions)
        choice, valued = frozen(network)(then, taus[1], noise[1]), frozen(target)(then, taus[2], noise[2])
        if self.variant == "c51":
            best = ops.argmax(expected_return(network, choice))
            goal = project_categorical(
                ops.exp(of_actions(valued, best)), batch.returns, batch.discounts, network.support()
            )
            each = categorical_cross_entropy(predicted, ops.stop_gradient(goal))
            errors, value = ops.stop_gradient(each), ops.mean(ops.sum(ops.exp(predicted) * network.support(), -1))
        else:
            goal = double_q_target(choice, valued, batch.returns, batch.discounts)
            fractions = taus[0] if self.variant == "iqn" else network.taus(predicted.shape[0])
            each = quantile_huber(predicted, goal, fractions, self.kappa, self.reduction)
            errors, value = priorities(predicted, goal), ops.mean(predicted)
        # What is only looked at has no gradient.
        return ops.mean(each * batch.weights), {"value": ops.stop_gradient(value), "errors": ops.stop_gradient(errors)}
