"""The contract between a family of algorithms and the engines that run it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinax import ops
from twinax.episode import Episode
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.optimizer import Moments, Optimizer
from twinax.tree import record

Metrics = dict[str, Any]
RESERVED = ("loss", "grad_norm")
"""Names that an update logs itself."""


@record
class Terms:
    """What a loss is made of, and what is worth seeing beside it, by name.

    >>> terms = Terms({"policy_loss": 1.0, "entropy_loss": -0.25}, {"entropy": 25.0})
    >>> sum(terms.parts.values())
    0.75
    """

    parts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Scalars that add up to the loss, their weights included, each of which can be differentiated on its own. A loss
    of one piece needs none."""
    shown: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Scalars to look at. Nobody differentiates them."""
    arrays: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What `Problem.step` takes out of an update's terms again, such as the error of each row."""

    def __post_init__(self):
        names = [*RESERVED, *self.parts, *self.shown, *self.arrays]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TwinaxError(f"two terms of a loss are called '{twice}'; each needs a name of its own")

    def log(self) -> Metrics:
        """All of them by name, without gradients."""
        named = {**self.parts, **self.shown, **self.arrays}
        return {name: ops.stop_gradient(value) for name, value in named.items()}


Loss = Callable[..., tuple[Any, Terms]]
"""(networks, batch, size=None) -> (scalar, terms)"""
Update = Callable[..., tuple["State", Metrics]]
"""(state, loss, batch, still=()) -> (state, log of the terms). `still` names networks at the top of the tree that the
loss does not reach and that never had a gradient: an optimizer would leave them as they are, so they are left out of
its step."""


def logging(loss: Loss) -> Callable[..., tuple[Any, Metrics]]:
    """A loss with its terms as one log: what engines differentiate, and the place where terms lose their gradients."""

    def logged(*given: Any, **options: Any) -> tuple[Any, Metrics]:
        value, terms = two_results(loss(*given, **options))
        return value, terms.log()

    return logged


def two_results(result: Any) -> tuple[Any, Terms]:
    """What a loss returned, refused in a sentence unless it is a scalar and its terms."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Terms):
        return result
    kinds = [type(one).__name__ for one in (result if isinstance(result, tuple) else (result,))]
    given = f"({', '.join(kinds)})" if isinstance(result, tuple) else kinds[0]
    raise TwinaxError(
        f"a loss returned {given}; return (scalar, twinax.Terms(parts, shown)), where the parts add up to the scalar"
    )


@record
class State:
    """Everything that training needs to go on, and all that a checkpoint holds.

    Leaves are NumPy arrays at rest, and arrays of the engine's framework while it runs. With
    several seeds every leaf has a leading seed axis.
    """

    networks: Any
    """Trainable parameters."""
    targets: Any
    """Trees that follow the networks (EMA, periodic copies); None when a family has none."""
    carry: Any
    """Environment, replay and sample-statistics arrays that live on between steps."""
    optimizer: Moments
    step: Any
    """Steps done, int32. With `seed` it fixes every later draw, so no generator state is kept."""
    seed: Any
    """Root of the noise, uint32."""


class Problem(ABC):
    """A learning problem: environment, networks and one family's mathematics.

    Families implement `init`, `draws`, `collect` and `loss`; a family with inner updates (PPO's
    epochs, delayed actors) overrides `step` and calls the engine's `update` as often as it needs.
    Everything here is written over `ops`, so it runs on the arrays that it is given.
    """

    _made_by = "such as tx.gflownet.problem(tx.envs.Hypergrid()) or tx.ppo.problem(tx.envs.CartPole())"
    optimizer: Optimizer
    sizes: tuple[int, ...] = ()
    """Static sizes for the ragged part of a batch, ascending; empty when nothing is ragged."""
    warm_up: int = 0
    """Steps before the first that learns, such as those that fill a replay."""
    updates: int = 1
    """Updates of one step."""
    parity_steps: int = 20
    """Steps over which parity follows whole runs: as long as rounding cannot decide what happens in the world."""
    film: bool = False
    """Whether a run ends with a film and figures of one episode; see `show`."""
    best: tuple[str, ...] = ()
    """Metrics of an evaluation whose largest value so far, and its step, are part of a run's summary."""
    not_saved: str = ""
    """What a checkpoint cannot hold and how a run goes on without it, as a sentence for who resumes it."""

    def check_mode(self, mode: str, seeds: int = 1, devices: int = 1) -> None:
        """Refuse, in a sentence, what cannot carry this problem."""
        return None

    def check(self, mode: str) -> None:
        """Refuse, in a sentence, what cannot be trained; called before every training, so it is done at once."""
        return None

    @abstractmethod
    def init(self, seed: int) -> State:
        """A fresh state with NumPy leaves in float32."""

    @abstractmethod
    def draws(self) -> Mapping[str, Draw]:
        """The random arrays that one step needs."""

    def settings(self) -> dict[str, np.ndarray]:
        """Numbers that may change between chunks without a new compilation (exploration, ...)."""
        return {}

    def data(self) -> dict[str, Any]:
        """Constant NumPy arrays that steps read, such as a dataset, by names that no setting has.

        `step` and `collect` find them among the settings, converted once and never compiled in.
        """
        return {}

    @abstractmethod
    def collect(self, state: State, draws: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, Any]:
        """Act in the world: `(carry, batch)`. Runs without gradients."""

    @abstractmethod
    def loss(self, networks, batch, size: int | None = None) -> tuple[Any, Terms]:
        """The scalar that is differentiated, and its terms; `size` is one of `sizes`, at least `count(batch)`."""

    def other_losses(self, state: State, draws, settings) -> dict[str, tuple[Loss, Any]]:
        """Losses of a step besides `loss`, each with a batch that it learns from; parity proves these as well."""
        return {}

    def prepare(self, batch):
        """What a loss needs of a batch and no parameter enters; worked out once, outside of differentiation."""
        return batch

    def alternatives(self, batch) -> tuple[Any, Any, Any] | None:
        """(condition, batch where it holds, batch where not), if data decides what a prepared batch's loss consists of.

        Only one of the two losses is computed, and the optimizer's step stands once, after the choice.
        """
        return None

    def count(self, batch):
        """How many rows of the ragged part are in use."""
        raise NotImplementedError

    def step(self, state: State, draws, settings, update: Update) -> tuple[State, Metrics]:
        """One training step: collect, then one update."""
        carry, batch = self.collect(state, draws, settings)
        state, terms = update(state, self.loss, batch)
        return dataclasses.replace(state, carry=carry), terms

    def halves(self) -> tuple[Callable, Callable, Callable] | None:
        """Two parts of a step that need nothing of each other, and what joins them, if a step is made so.

        (one(state, draws, settings), other(state, draws, settings, update),
        join(state, result of one, result of other, draws, settings, update) -> (state, terms))

        Done one after the other they are `step`; an engine may run the two at the same time.
        """
        return None

    def evaluation_draws(self) -> Mapping[str, Draw]:
        """The random arrays that one evaluation needs."""
        return {}

    def tables(self) -> dict[str, Any]:
        """Constant NumPy arrays that `measure` reads; given as arguments, so that they are not compiled in."""
        return {}

    def measure(self, state: State, draws, tables) -> Metrics:
        """The part of an evaluation that runs in the engine's framework: arrays out."""
        return {}

    def evaluate(self, measured: Mapping[str, np.ndarray]) -> Metrics:
        """From measured NumPy arrays to named metrics: floats, or arrays for pictures."""
        return {}

    def divided(self, carry: Any, devices: int) -> Any:
        """A tree like the carry: True for arrays whose leading axis this many devices share out, False for the others.

        Everything else of a state is the same on all devices. Rules then see their part of such arrays and of draws
        with a `divided` axis, and take means with `ops.across_shards`.
        """
        raise TwinaxError(f"{type(self).__name__} cannot be shared out over {devices} devices; use trainer.devices=1")

    def show(self, state: State, seed: int) -> Episode | None:
        """One episode of a state of one seed (NumPy leaves), for a film and figures; None where there is none.

        Asked for at the end of a run and by `twinax eval --film`, so it may take seconds.
        """
        return None

    def watch(self, logs: Mapping[str, np.ndarray]) -> None:
        """Refuse, in a sentence, to go on after a chunk with these logs, if that would make no sense."""
        return None

    def members(self, networks: Any) -> dict[str, Any]:
        """The networks of one state that get a file of weights each, by name."""
        return {"networks": networks}

    def sources(self) -> tuple[Path, ...]:
        """Files that a person gave and that a run keeps, so that it can be built again; a setting names the first."""
        return ()

    def describe(self) -> dict[str, Any]:
        """Plain facts for a run's summary and report."""
        return {}
