"""Adversarial motion priors: a discriminator tells recorded steps from reference ones, and its opinion is a reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, ring, tree
from twinax.arguments import checked
from twinax.envs import Reference
from twinax.errors import TwinaxError
from twinax.networks import MLP, input_gradient
from twinax.noise import Draw
from twinax.ppo._hooks import Hooks
from twinax.ppo._networks import make_mlp
from twinax.problem import Loss, Terms
from twinax.ranges import check_known, check_range
from twinax.types import Array, Float

NETWORK = "discriminator"


@dataclass(frozen=True)
class Labels:
    """What a discriminator is to say of a reference step and of a recorded one, and the reward that belongs to it."""

    real: float
    fake: float
    reward: Callable[[Any], Any]


LABELS = {
    # max(0, 1 - (D - 1)^2 / 4): 1 for what looks real, 0 for what looks recorded
    "signed": Labels(1.0, -1.0, lambda d: ops.relu(1.0 - 0.25 * ops.square(d - 1.0))),
    "binary": Labels(1.0, 0.0, lambda d: ops.clip(d, 0.0, 1.0)),
}


@checked
@dataclass(frozen=True)
class AmpOptions:
    """How style is learned."""

    style: float = 0.5
    """Weight of the reward for style, which is between 0 and 1 times the seconds of a step."""
    task: float = 1.0
    """Weight of the world's own reward."""
    labels: str = "signed"
    """What the discriminator is to say of reference and recorded steps: signed (1 and -1) or binary (1 and 0); the
    reward for style goes by it."""
    penalty: float = 10.0
    """Weight of half the squared gradient of the discriminator at reference steps (R1); 0 means none."""
    hidden: tuple[int, ...] = (256, 128)
    """Widths of the discriminator's hidden layers."""
    batch: int = 512
    """Reference steps, and as many recorded ones, in an update of the discriminator."""
    updates: int = 4
    """Updates of the discriminator after each iteration of PPO."""
    memory: int = 20_000
    """Recorded steps that are remembered for the discriminator; old ones are dropped first."""
    remembered: float = 0.2
    """Share of an update's recorded steps that is from memory, between 0 and 1; the others are from the last
    iteration."""
    kept: int = 1024
    """Recorded steps of an iteration that go into the discriminator's memory."""

    def __post_init__(self):
        check_known(self, labels=LABELS)
        check_range(self, "at least 1", "batch", "updates", "memory", "kept")
        if any(width < 1 for width in self.hidden):
            raise TwinaxError(f"hidden is {list(self.hidden)}; every width must be at least 1")
        check_range(self, "at least 0 and below 1", "remembered")


@tree.record
class Memory:
    """Recorded steps of earlier iterations, in a ring for each group of worlds."""

    rows: Float[Array, "group place features"]
    written: Any
    """The count of each ring."""

    @property
    def held(self) -> Any:
        """Rows in use, for each group."""
        return ring.held(self.written, self.rows.shape[1])


@tree.record
class Pairs:
    """What one update of the discriminator learns from; standardised."""

    real: Float[Array, "rows features"]
    fake: Float[Array, "rows features"]


def discriminator_loss(
    net: MLP, real: Float[Array, "rows features"], fake: Float[Array, "rows features"], labels: Labels, penalty: float
) -> tuple[Any, Terms]:
    """((D(real) - r)^2 + (D(fake) - f)^2) / 2 + penalty / 2 |grad D(real)|^2, means over rows."""
    of_real, of_fake = net(real)[..., 0], net(fake)[..., 0]
    squares = 0.5 * (ops.mean(ops.square(of_real - labels.real)) + ops.mean(ops.square(of_fake - labels.fake)))
    slope = ops.mean(ops.sum(ops.square(input_gradient(net, real)), -1))
    middle = 0.5 * (labels.real + labels.fake)
    right = 0.5 * (ops.mean(ops.cast(of_real > middle, of_real)) + ops.mean(ops.cast(of_fake < middle, of_fake)))
    held = 0.5 * penalty * slope
    parts = {"style_loss": squares, "style_penalty_loss": held}
    return squares + held, Terms(parts, {"style_penalty": slope, "style_accuracy": right})


def amp(
    reference: Reference, features: Callable[[Any], Any], seconds: float, options: AmpOptions | None = None
) -> Hooks:
    """Hooks by which PPO learns a style from reference motion.

    `features` gives the named features of a world's state, in the reference's layout; `seconds` is the length of a
    step. Check the reference against the robot first (`Reference.check`).
    """
    own = options or AmpOptions()
    labels = LABELS[own.labels]
    width = 2 * reference.frames.shape[-1]
    mean, deviation = (np.tile(x, 2) for x in reference.statistics())
    steps = reference.steps()

    def scaled(rows: Any) -> Any:
        """Standardised by the reference, whoever's rows they are."""
        return (rows - _like(mean, rows)) / _like(deviation, rows)

    def networks(rng: np.random.Generator) -> dict[str, Any]:
        return {NETWORK: make_mlp(rng, width, own.hidden, 1, "elu", 0.1)}

    def carry(groups: int) -> Memory:
        place = -(-own.memory // groups)
        return Memory(np.zeros((groups, place, width), np.float32), np.zeros(groups, np.int32))

    def draws(groups: int) -> Mapping[str, Draw]:
        each = -(-own.batch // groups)
        picks = {name: Draw((own.updates, groups, each)) for name in ("real", "fake", "old", "from_memory")}
        return {**picks, "keep": Draw((1, groups, -(-own.kept // groups)))}

    def record(before: Any, after: Any) -> Any:
        # One call for both: a walk through a robot's links is many small operations, whatever the number of rows.
        rows = features(jtu.tree_map(lambda a, b: ops.concat([a, b], 0), before, after))
        half = rows.shape[0] // 2
        return ops.concat([rows[:half], rows[half:]], -1)

    def reward(nets: Any, recorded: Any, given: Any) -> tuple[Any, dict[str, Any]]:
        style = labels.reward(nets[NETWORK](scaled(recorded))[..., 0]) * seconds
        return own.task * given + own.style * style, {"style_reward": style / seconds}

    def loss(nets: Any, batch: Pairs, size: int | None = None) -> tuple[Any, Terms]:
        return discriminator_loss(nets[NETWORK], batch.real, batch.fake, labels, own.penalty)

    def batches(memory: Memory, rows: Any) -> Callable[[Mapping[str, Any]], Pairs]:
        """What an update with some draws learns from."""
        mine = rows.reshape(memory.rows.shape[0], -1, width)
        table = scaled(_like(steps, rows))

        def batch(now: Mapping[str, Any]) -> Pairs:
            fresh = _picked(mine, now["fake"])
            # Memory that is still empty has nothing to offer.
            old = _picked(memory.rows, now["old"], memory.held)
            use = (now["from_memory"] < own.remembered) & (memory.written > 0)[:, None]
            fake = ops.where(use[..., None], old, fresh).reshape(-1, width)
            real = ops.take(table, _place(now["real"], len(steps))).reshape(-1, width)
            return Pairs(real, scaled(fake))

        return batch

    def losses(memory: Memory, rows: Any, given: Mapping[str, Any]) -> dict[str, tuple[Loss, Any]]:
        first = {name: value[0] for name, value in given.items()}
        return {NETWORK: (loss, batches(memory, rows)(first))}

    def update(state: Any, memory: Memory, rows: Any, given: Mapping[str, Any], primitive: Any):
        mine = rows.reshape(memory.rows.shape[0], -1, width)
        batch = batches(memory, rows)
        others = tuple(name for name in state.networks if name != NETWORK)

        def learn(known, now):
            networks_now, moments = known
            before = dataclasses.replace(state, networks=networks_now, optimizer=moments)
            after, terms = primitive(before, loss, batch(now), still=others)
            return (after.networks, after.optimizer), {name: terms[name] for name in SHOWN}

        picks = {name: value for name, value in given.items() if name != "keep"}
        (nets, moments), terms = ops.scan(learn, (state.networks, state.optimizer), picks)
        terms = {name: ops.mean(value) for name, value in terms.items()}
        return (
            dataclasses.replace(state, networks=nets, optimizer=moments),
            _kept(memory, mine, given["keep"][0]),
            terms,
        )

    return Hooks((NETWORK,), networks, record, reward, update, carry, draws, reference.distance, losses)


SHOWN = ("style_loss", "style_penalty_loss", "style_penalty", "style_accuracy")


def _like(x: np.ndarray, reference: Any) -> Any:
    return ops.cast(ops.like(x, reference), reference)


def _place(uniform: Any, number: Any) -> Any:
    """Uniform places below a number."""
    last = ops.cast(number - 1, uniform) if hasattr(number, "dtype") else ops.full((), float(number - 1), uniform)
    size = last + 1
    return ops.cast(ops.minimum(uniform * size, last), "int32")


def _picked(rows: Any, uniform: Any, filled: Any = None) -> Any:
    """Rows of each group at uniform places, of those in use."""
    groups, number = rows.shape[0], rows.shape[1]
    if filled is None:
        place = _place(uniform, number)
    else:
        count = ops.maximum(ops.cast(filled, uniform), ops.full((), 1.0, uniform))[:, None]
        place = ops.cast(ops.minimum(uniform * count, count - 1.0), "int32")
    flat = place + ops.arange(groups, uniform)[:, None] * number
    return ops.take(rows.reshape(groups * number, -1), flat)


def _kept(memory: Memory, rows: Any, uniform: Any) -> Memory:
    """The memory with some of these rows in it."""
    groups, place = memory.rows.shape[:2]
    chosen = ops.stop_gradient(_picked(rows, uniform))
    number = chosen.shape[1]
    where = ring.places(memory.written[:, None], number, place)
    flat = where + ops.arange(groups, uniform)[:, None] * place
    width = memory.rows.shape[-1]
    stored = ops.set_at(memory.rows.reshape(groups * place, width), flat.reshape(-1), chosen.reshape(-1, width))
    return Memory(stored.reshape(groups, place, width), ring.counted(memory.written, number, place))


__all__ = ["LABELS", "AmpOptions", "Labels", "amp", "discriminator_loss"]
