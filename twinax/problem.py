"""The contract between a family of algorithms and all that run it: the mathematics, in seven members.

What engines, evaluations, proofs and people may want besides are records of their own, in `twinax.parts`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from twinax import ops
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.optimizer import Moments, Optimizer
from twinax.parts import Compile, Judge, Present, Prove, Use
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
class Inputs:
    """What a step reads besides its state and draws."""

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Numbers that may change between chunks without a new compilation, such as those of exploration."""
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Constant arrays, such as a dataset: converted once, and never compiled in."""


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

    A family writes `init`, `draws`, `collect` and `loss`, and names its `optimizer`; one whose steps read numbers or
    data has `inputs`, and one with inner updates (PPO's epochs, delayed actors) its own `step`, which calls the
    engine's `update` as often as it needs. Everything here is written over `ops`, so it runs on the arrays that it is
    given.
    """

    _made_by = "such as tx.gflownet.problem(tx.envs.Hypergrid()) or tx.ppo.problem(tx.envs.CartPole())"
    optimizer: Optimizer

    @abstractmethod
    def init(self, seed: int) -> State:
        """A fresh state with NumPy leaves in float32."""

    @abstractmethod
    def draws(self) -> Mapping[str, Draw]:
        """The random arrays that one step needs."""

    def inputs(self) -> Inputs:
        """What steps read besides, as NumPy arrays."""
        return Inputs()

    @abstractmethod
    def collect(self, state: State, draws: Mapping[str, Any], inputs: Inputs) -> tuple[Any, Any]:
        """Act in the world: `(carry, batch)`. Runs without gradients."""

    @abstractmethod
    def loss(self, networks: Any, batch: Any, size: int | None = None) -> tuple[Any, Terms]:
        """The scalar that is differentiated, and its terms; `size` is one of `compile.sizes` that holds the batch."""

    def step(self, state: State, draws: Mapping[str, Any], inputs: Inputs, update: Update) -> tuple[State, Metrics]:
        """One training step: collect, then one update."""
        carry, batch = self.collect(state, draws, inputs)
        state, terms = update(state, self.loss, batch)
        return dataclasses.replace(state, carry=carry), terms

    # What others than the mathematics may read; each is optional

    @property
    def compile(self) -> Compile:
        """For engines."""
        return Compile()

    @property
    def judge(self) -> Judge:
        """For evaluations."""
        return Judge()

    @property
    def prove(self) -> Prove:
        """For what has to hold before training, and for parity."""
        return Prove()

    @property
    def present(self) -> Present:
        """For people: runs, reports and exports."""
        return Present()

    @property
    def use(self) -> Use:
        """For those who sample, act and export."""
        return Use()
