"""A reward of spins whose couplings are learned from data while a GFlowNet samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._frozen_array import FrozenArray
from twinax.envs._rewarded import Rewarded
from twinax.envs._spin_data import SUMMED, SpinData, every_system, given_spins, log_weights, simulated_spins
from twinax.envs._spins import SpinState, SpinSystem
from twinax.errors import TwinaxError
from twinax.parts import Picture, Title
from twinax.types import Array, Float

J, FIELDS = "learned_couplings", "known_fields"


@checked
@dataclass(frozen=True)
class LearnedCouplings:
    """log R = x^T J x + h^T x for spins x of -1 and 1, where J is learned from data and h are the world's own fields.

    J is symmetric with nothing on its diagonal, and both directions of a pair pay: 2 J_ij x_i x_j. It begins with 0.

    >>> import twinax as tx
    >>> spins = tx.envs.sample_spins(tx.envs.Ising(3), number=4, sweeps=5)
    >>> tx.envs.Ising(3).with_reward(LearnedCouplings(spins)).observed().spins.shape
    (4, 9)
    """

    titles: ClassVar[Mapping[str, Title]] = {
        "coupling_accuracy": Title(
            "-log RMSE of J", "Minus log of the root mean square of J - true J; more is better.", tile=True
        ),
        "data_log_likelihood": Title(
            "Log-likelihood of the data", "Mean over systems of log R - exact log Z; more is better.", tile=True
        ),
        "pseudo_likelihood": Title(
            "Pseudo-likelihood", "Mean over systems of the sum of log P(spin | all others); more is better.", tile=True
        ),
    }
    pictures: ClassVar[Mapping[str, Picture]] = {
        "couplings": Picture(
            "Couplings J", labels={"true": "True", "learned": "Learned"}, difference=("learned", "true")
        )
    }
    data: Any = None
    """Observed spins of -1 and 1, one system in each row: an array, or the path of a CSV, npy or npz file (with the
    array spins, and couplings where the true ones are known); null simulates them from the world's own couplings."""
    couplings: Any = None
    """True couplings of data of one's own: a matrix, or the path of a CSV or npy file; null: not known."""
    samples: int = 2_000
    """Systems that are simulated: exactly for up to 16 spins, by parallel tempering for more."""
    seed: int = 0
    """Decides on the simulated systems."""
    given: SpinData | None = field(init=False, repr=False)
    """The data of one's own, as they were read."""

    def __post_init__(self):
        for name in ("data", "couplings"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, Path(value))
            elif value is not None and not isinstance(value, Path | FrozenArray):
                object.__setattr__(self, name, _frozen(name, value))
        if self.data is None and self.couplings is not None:
            raise TwinaxError("couplings are the true ones of data, and no data were given; name both, or neither")
        for name, least in (("samples", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise TwinaxError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        object.__setattr__(self, "given", None if self.data is None else given_spins(self.data, self.couplings))

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that it was made from."""
        return tuple(one for one in (self.data, self.couplings) if isinstance(one, Path))

    def _system(self, env: Any) -> SpinSystem:
        """The world of spins; one sentence for any other, and for one that the data do not fit."""
        world = env
        while isinstance(world, Rewarded):
            world = world.env
        if not isinstance(world, SpinSystem):
            raise TwinaxError(
                f"LearnedCouplings pays spins, and {type(world).__name__} has none; take tx.envs.Ising or "
                "tx.envs.PlainSpins, env=ising or env=spins on the command line"
            )
        if self.given is not None and (columns := self.given.spins.shape[1]) != world.places:
            raise TwinaxError(
                f"the data have {columns} columns, but the world has {world.places} spins; they must be equal"
            )
        return world

    def learnable(self, env: Any) -> dict[str, np.ndarray]:
        """J before anything is learned."""
        places = self._system(env).places
        if self.given is None:
            self._spins(env)  # what cannot be simulated is said before anything is made of it
        return {J: np.zeros((places, places))}

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """What the rule reads."""
        return {**self.learnable(env), FIELDS: self._system(env).pulls()}

    def observed(self, env: Any) -> SpinState:
        """The data as finished states."""
        spins = self._spins(env).astype(np.int32)
        return SpinState(spins, np.ones(len(spins), bool))

    def _spins(self, env: Any) -> np.ndarray:
        world = self._system(env)
        return simulated_spins(world, self.samples, self.seed) if self.given is None else self.given.spins.values

    def true_couplings(self, env: Any) -> np.ndarray | None:
        """Where the data come from; None where that is not known."""
        if self.given is None:
            matrix = self._system(env).couplings()
            return (matrix + matrix.T) / 2
        return None if self.given.couplings is None else self.given.couplings.values

    def log_reward(self, env: Any, state: SpinState) -> Float[Array, " batch"]:
        """x^T J x + h^T x, over the spins that are written."""
        couplings, fields = (env.constant(name, state.spins) for name in (J, FIELDS))
        x = ops.cast(state.spins, couplings)
        return ops.sum((x @ symmetric(couplings) + ops.cast(fields, couplings)) * x, -1)

    def log_partition(self, env: Any) -> float | None:
        """log Z of J as it is, over all systems of a few spins."""
        places = self._system(env).places
        if places > SUMMED:
            return None
        return float(np.logaddexp.reduce(log_weights(every_system(places), *self._energy(env))))

    def _energy(self, env: Any) -> tuple[np.ndarray, np.ndarray]:
        couplings = np.asarray(env.constant(J, np.zeros(1)), np.float64)
        return symmetric(couplings), self._system(env).pulls()

    def measures(self, env: Any, states: Any, weights: np.ndarray) -> dict[str, Any]:
        """How J fits the data, and how far it is from the true one."""
        couplings, fields = self._energy(env)
        x = self._spins(env).astype(np.float64)
        # log P(x_i | others) = -log(1 + exp(-2 x_i (2 J x + h)_i))
        alone = -np.logaddexp(0, -2 * x * (2 * x @ couplings + fields))
        found: dict[str, Any] = {"pseudo_likelihood": float(alone.sum(1).mean())}
        if (log_z := self.log_partition(env)) is not None:
            found["data_log_likelihood"] = float(log_weights(x, couplings, fields).mean() - log_z)
        true = self.true_couplings(env)
        if true is not None:
            error = np.sqrt(np.square(couplings - true).mean())
            found["coupling_accuracy"] = float(-np.log(max(error, np.finfo(np.float64).tiny)))
            found["picture/couplings/true"] = true
        return {**found, "picture/couplings/learned": couplings}


def symmetric(matrix: Any) -> Any:
    """The half of what a matrix and its transpose add up to, with nothing on the diagonal."""
    number = ops.arange(matrix.shape[0], matrix)
    apart = number[:, None] != number[None]
    return ops.where(apart, 0.5 * (matrix + ops.move_axis(matrix, 0, 1)), 0.0)


def _frozen(name: str, value: Any) -> FrozenArray:
    try:
        return FrozenArray.of(value)
    except (TypeError, ValueError) as error:
        raise TwinaxError(f"{name} is no table of numbers: {error}") from None
