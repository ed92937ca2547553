"""A row of numbers for each observation: no network at all, the yardstick that networks are held to in small worlds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.networks._observations import KHot, Tokens, described
from twinax.networks._own import NetworkSpec
from twinax.types import Array, Float


@checked
@dataclass(frozen=True)
class Tabular:
    """Makes a table with a row of its own for each observation, all zero at first, so that nothing learned of one says
    anything of another. It reads `Tokens`, and coordinates as the hypergrid shows them.

    >>> spec = NetworkSpec("policy", Tokens(np.zeros((1, 8), np.int32), 5), {"forward": 4})
    >>> sum(leaf.size for leaf in [Tabular()(np.random.default_rng(0), spec).weight])
    1562500
    """

    most: int = 20_000_000
    """Numbers of the largest table that is made."""

    def __call__(self, rng: np.random.Generator, spec: NetworkSpec) -> Table:
        seen = spec.observation
        if not isinstance(seen, Tokens | KHot):
            raise TwinaxError(
                f"Tabular reads Tokens or coordinates, but as {spec.role} it is shown {described(seen)}; take another "
                "network"
            )
        digits, base = _digits(seen)
        columns, places = spec.outputs, digits.shape[-1]
        if base**places * columns > self.most:
            raise TwinaxError(
                f"a table for {places} places of {base} kinds has {base**places:,} rows of {columns} numbers, which is "
                f"more than {self.most:,}; take another network"
            )
        return Table(np.zeros((base**places, columns), np.float32))


class Table(eqx.Module):
    """What `Tabular` makes: the row of an observation is its digits as one number, the last place counting most."""

    weight: Array

    def __call__(self, seen: Tokens | KHot) -> Float[Array, "rows columns"]:
        digits, base = _digits(seen)
        worth = ops.like((base ** np.arange(digits.shape[-1])).astype(np.int32), digits)
        return ops.take(self.weight, ops.cast(ops.sum(digits * worth, -1), "int32"))


def _digits(seen: Tokens | KHot) -> tuple[Any, int]:
    """What stands at each place, and how many kinds there are of it."""
    if isinstance(seen, Tokens):
        return (seen.ids, seen.vocabulary) if seen.begin is None else (seen.ids[..., 1:], seen.vocabulary - 1)
    # Coordinates have as many columns each.
    places = seen.indices.shape[-1]
    kinds = seen.size // places
    return seen.indices - ops.arange(places, seen.indices) * kinds, kinds
