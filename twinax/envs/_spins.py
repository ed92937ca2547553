"""Spins: every place of a system is given -1 or +1, in any order, and pairs of places pay."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._environment import Environment
from twinax.envs._ising_partition import MOST_SIDE, torus_log_partition
from twinax.errors import TwinaxError
from twinax.networks import Tokens
from twinax.parts import Title
from twinax.types import Array, Bool, Float, Int

LINE = 190
"""Grey of the lines between the places of a picture."""


class SpinState(NamedTuple):
    """The spins of each system."""

    spins: Int[Array, "batch places"]
    """-1 or 1, and 0 where none was written yet."""
    done: Bool[Array, " batch"]


class SpinSystem(Environment):
    """The rules of all systems of spins: action 2 i writes -1 at place i, 2 i + 1 writes 1, and when every place is
    written the system is done. Backward action i wipes place i."""

    @property
    def stops(self) -> bool:
        return False

    @property
    def fixed_length(self) -> bool:
        return True

    @property
    def places(self) -> int:
        """Spins of a system."""
        raise NotImplementedError

    @property
    def num_actions(self) -> int:
        return 2 * self.places

    @property
    def action_shape(self) -> tuple[int, ...]:
        return (self.places, 2)

    @property
    def num_backward_actions(self) -> int:
        return self.places

    @property
    def max_steps(self) -> int:
        return self.places

    @property
    def num_states(self) -> int:
        return 3**self.places

    def reset(self, batch: int) -> SpinState:
        return SpinState(np.zeros((batch, self.places), np.int32), np.zeros((batch,), bool))

    def _state(self, spins: Int[Array, "batch places"]) -> SpinState:
        return SpinState(spins, ops.all(spins != 0, -1))

    def step(self, state: SpinState, action: Int[Array, " batch"]) -> SpinState:
        here = ops.arange(self.places, state.spins)[None] == (action // 2)[..., None]
        value = ops.cast(2 * (action % 2) - 1, "int32")[..., None]
        return self._state(ops.where(here & ~state.done[..., None], value, state.spins))

    def backward_step(self, state: SpinState, action: Int[Array, " batch"]) -> SpinState:
        here = ops.arange(self.places, state.spins)[None] == action[..., None]
        return self._state(ops.where(here, 0, state.spins))

    def forward_mask(self, state: SpinState) -> Bool[Array, "batch actions"]:
        empty = state.spins == 0
        return ops.stack([empty, empty], -1).reshape(empty.shape[0], self.num_actions)

    def backward_mask(self, state: SpinState) -> Bool[Array, "batch places"]:
        return state.spins != 0

    def backward_action(self, state: SpinState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return action // 2

    def forward_action(self, state: SpinState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        up = ops.take_along(state.spins, action) > 0
        return 2 * action + ops.cast(up, action)

    def observe(self, state: SpinState) -> Tokens:
        return Tokens(state.spins + 1, 3)

    def log_paths_ratio(self, state: SpinState) -> Float[Array, "batch places"]:
        # k spins can have been written in k! orders, whichever was the last.
        return ops.zeros(state.spins.shape, state.spins, "float32")

    def couplings(self) -> np.ndarray:
        """J of the world's own log R = x^T J x + h^T x, (places, places), with nothing on the diagonal."""
        raise NotImplementedError

    def pulls(self) -> np.ndarray:
        """h, (places,)."""
        raise NotImplementedError

    def text(self, objects: Any, index: int) -> str:
        return "".join("-.+"[spin + 1] for spin in np.asarray(objects)[index])


@checked
@dataclass(frozen=True)
class Ising(SpinSystem):
    """log R = sigma x^T A x + field sum(x) for spins x of -1 and 1 on a torus of side x side places.

    A is 1 for neighbours and counts both directions, so an edge pays 2 sigma for equal spins and -2 sigma for others.
    On a side of 2, where the neighbours to the left and to the right are one, they count once.

    >>> round(Ising(side=9, sigma=0.1).log_partition, 6)
    59.49705
    """

    titles: ClassVar[Mapping[str, Title]] = {
        "magnetisation": Title("Magnetisation", "Mean of |sum of spins| / places over what is sampled."),
        "agreement": Title("Agreement", "Mean over edges of the product of the two spins: 1 where all are equal."),
    }
    side: int = 9
    """Places along each side of the torus."""
    sigma: float = 0.1
    """Coupling of neighbours: above 0 they like to be equal, below 0 to be different."""
    field: float = 0.0
    """What pulls every spin up (above 0) or down."""

    def __post_init__(self):
        if self.side < 2:
            raise TwinaxError(f"side is {self.side}; it must be at least 2")
        for name in ("sigma", "field"):
            if not math.isfinite(value := getattr(self, name)):
                raise TwinaxError(f"{name} is {value}; it must be finite")

    @property
    def places(self) -> int:
        return self.side**2

    def neighbours(self, spins: Int[Array, "batch places"]) -> Int[Array, " batch"]:
        """x^T A x in whole numbers, over the spins that are written."""
        grid = spins.reshape(spins.shape[0], self.side, self.side)
        pairs = ops.sum(grid * (ops.roll(grid, 1, 1) + ops.roll(grid, 1, 2)), (1, 2))
        return ops.cast(pairs, "int32") * (2 if self.side > 2 else 1)

    def log_reward(self, state: SpinState) -> Float[Array, " batch"]:
        wide = ops.like(np.zeros(1), state.spins)
        paid = self.sigma * ops.cast(self.neighbours(state.spins), wide)
        return paid + self.field * ops.cast(ops.sum(state.spins, -1), wide) if self.field else paid

    @functools.cached_property
    def log_partition(self) -> float | None:  # type: ignore[override]
        """log Z by the transfer matrix, up to a side of 10 and where couplings are not so strong that all that fits
        together is lost in float64."""
        value = torus_log_partition(self.side, self.sigma, self.field) if self.side <= MOST_SIDE else -math.inf
        return value if math.isfinite(value) else None

    def couplings(self) -> np.ndarray:
        return self.sigma * torus(self.side)

    def pulls(self) -> np.ndarray:
        return np.full(self.places, self.field)

    def measures(self, states: SpinState, weights: np.ndarray) -> dict[str, Any]:
        spins = np.asarray(states.spins)
        edges = np.count_nonzero(torus(self.side))
        agreement = weights @ np.asarray(self.neighbours(spins)) / edges
        return {"magnetisation": float(weights @ np.abs(spins.mean(1))), "agreement": float(agreement)}

    def text(self, objects: Any, index: int) -> str:
        line = super().text(objects, index)
        return " ".join(line[start : start + self.side] for start in range(0, self.places, self.side))

    def draw(self, objects: Any, index: int) -> np.ndarray:
        """Dark where a spin is up, light where it is down, grey between; lines part the places."""
        shade = np.array([235, 160, 35], np.uint8)[np.asarray(objects)[index] + 1].reshape(self.side, self.side)
        pixels = max(1, 160 // self.side)
        image = np.kron(shade, np.ones((pixels, pixels), np.uint8))
        if pixels >= 6:
            # Without lines nobody could count the places of equal spins.
            image[::pixels] = image[:, ::pixels] = image[-1] = image[:, -1] = LINE
        return np.repeat(image[..., None], 3, -1)


@checked
@dataclass(frozen=True)
class Spins(SpinSystem):
    """log R = x^T J x + h^T x for spins x of -1 and 1 and any couplings J, whose diagonal pays nothing.

    >>> Spins.of(np.array([[0.0, 0.5], [0.5, 0.0]])).places
    2
    """

    matrix: tuple[tuple[float, ...], ...]
    """The couplings J, row by row."""
    fields: tuple[float, ...] = ()
    """What pulls each spin up; empty: nothing does."""

    def __post_init__(self):
        matrix = self.matrix
        wrong = [len(row) for row in matrix if len(row) != len(matrix)]
        if wrong or not matrix:
            raise TwinaxError(
                f"the couplings have {len(matrix)} rows, one of {(wrong or [0])[0]} numbers; give a square"
            )
        if self.fields and len(self.fields) != len(matrix):
            raise TwinaxError(
                f"there are {len(self.fields)} fields for {len(matrix)} spins; give one for each, or none"
            )
        if not (np.isfinite(np.array(matrix)).all() and np.isfinite(np.array(self.fields)).all()):
            raise TwinaxError("the couplings or fields of the spins are not all finite numbers")

    @classmethod
    def of(cls, couplings: Any, fields: Any = ()) -> Spins:
        """The same from arrays."""
        try:
            matrix = np.asarray(couplings, float)
        except (TypeError, ValueError) as error:
            raise TwinaxError(f"the couplings are no matrix of numbers ({error}); give a square one") from None
        if matrix.ndim != 2:
            raise TwinaxError(f"the couplings have the shape {matrix.shape}; give a square matrix")
        return cls(tuple(map(tuple, matrix.tolist())), tuple(np.asarray(fields, float).tolist()))

    # A long matrix is hashed once: worlds are the keys of what is remembered about them.
    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.matrix, self.fields))

    @property
    def places(self) -> int:
        return len(self.matrix)

    def constants(self) -> dict[str, np.ndarray]:
        return {"couplings": self.couplings(), "fields": self.pulls()}

    def couplings(self) -> np.ndarray:
        matrix = np.array(self.matrix)
        return matrix - np.diag(np.diag(matrix))

    def pulls(self) -> np.ndarray:
        return np.array(self.fields) if self.fields else np.zeros(self.places)

    def log_reward(self, state: SpinState) -> Float[Array, " batch"]:
        couplings, fields = (self.constant(name, state.spins) for name in ("couplings", "fields"))
        x = ops.cast(state.spins, couplings)
        return ops.sum((x @ couplings + fields) * x, -1)


def torus(side: int) -> np.ndarray:
    """1 where two places of a torus are neighbours, (side^2, side^2)."""
    place = np.arange(side**2).reshape(side, side)
    matrix = np.zeros((side**2, side**2))
    for axis in (0, 1):
        for shift in (1, -1):
            matrix[place.ravel(), np.roll(place, shift, axis).ravel()] = 1.0
    return matrix
