"""What networks see besides plain rows of numbers: coordinates, tokens, graphs and items, kept short."""

from __future__ import annotations

from typing import Any

from twinax import ops
from twinax.errors import TwinaxError
from twinax.tree import record, static
from twinax.types import Array, Bool, Float, Int

WRITTEN_OUT = 16
"""Tokens of at most so many kinds are one-hot coded in full: products are then cheaper than looking columns up, and
their gradients far more so."""


@record
class KHot:
    """Rows that are 1 at a few distinct indices: what one-hot coded coordinates are, kept short.

    A `Linear` layer adds the matching columns of its weight instead of multiplying zeros.
    """

    indices: Int[Array, "*batch k"]
    size: int = static()

    def dense(self, dtype: Any) -> Float[Array, "*batch size"]:
        """The same rows written out."""
        return ops.sum(ops.one_hot(self.indices, self.size, dtype), -2)


@record
class Tokens:
    """Rows of tokens, such as the letters of a sequence, one for each place.

    >>> import numpy as np
    >>> Tokens(np.array([[0, 2]]), vocabulary=3).khot().dense("float32").tolist()
    [[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    """

    ids: Int[Array, "*batch places"]
    """From 0 to vocabulary - 1."""
    vocabulary: int = static()
    empty: int | None = static(default=None)
    """The token of a place where nothing stands yet, if there is one: a network may read the last place before."""
    begin: int | None = static(default=None)
    """The last kind of token, where the first place always has it and no other place does."""

    def khot(self) -> KHot:
        """The same, each place one-hot coded and kept short: what an MLP reads of many kinds of tokens."""
        places = self.ids.shape[-1]
        return KHot(self.ids + ops.arange(places, self.ids) * self.vocabulary, places * self.vocabulary)

    def dense(self) -> Float[Array, "*batch numbers"]:
        """The same written out: what an MLP reads of few kinds."""
        places = self.ids.shape[-1]
        return ops.one_hot(self.ids, self.vocabulary, "float32").reshape(*self.ids.shape[:-1], places * self.vocabulary)


@record
class Graph:
    """Dense graphs: what is known of each node, and of each ordered pair of nodes.

    >>> import numpy as np
    >>> width(Graph(np.zeros((1, 3, 2)), np.zeros((1, 3, 3, 1))))
    15
    """

    nodes: Float[Array, "*batch nodes features"]
    edges: Float[Array, "*batch nodes nodes kinds"]
    """Entry [i, j] is what leads from i to j; 0 where there is nothing."""


@record
class Items:
    """Items of which some are there, such as the trees of a forest: a row of features for each.

    >>> import numpy as np
    >>> flat(Items(np.ones((1, 2, 3)), np.array([[True, False]]))).tolist()
    [[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]]
    """

    features: Float[Array, "*batch items features"]
    """Whatever stands in the row of an item that is not there is not read."""
    present: Bool[Array, "*batch items"]


@record
class SharedItems:
    """Items of many states that have rows of features in common: each row once, and which of them each state shows.

    >>> import numpy as np
    >>> seen = SharedItems(np.eye(3), np.array([[0, 1], [2, 1]]), np.ones((2, 2), bool))
    >>> seen.items().features[1].tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    rows: Float[Array, "rows features"]
    index: Int[Array, "*batch items"]
    """The row of each item; any row for those that are not there."""
    present: Bool[Array, "*batch items"]
    crowds: tuple[tuple[int, int], ...] = static(default=())
    """(states, items): so many states, one after the other, show so many items at most; together these are all states.
    Empty where no bound is known."""

    def items(self) -> Items:
        """The same written out."""
        return Items(ops.take(self.rows, self.index), self.present)


def flat(observation: Any) -> Any:
    """What an MLP reads of an observation: a flat row of numbers, or a `KHot` that stands for one."""
    if isinstance(observation, Tokens):
        return observation.dense() if observation.vocabulary <= WRITTEN_OUT else observation.khot()
    if isinstance(observation, Graph):
        nodes, edges = observation.nodes, observation.edges
        batch = nodes.shape[:-2]
        return ops.concat([nodes.reshape(*batch, -1), edges.reshape(*batch, -1)], -1)
    if isinstance(observation, SharedItems):
        observation = observation.items()
    if isinstance(observation, Items):
        features, present = observation.features, observation.present
        there = ops.where(present[..., None], features, 0.0)
        return ops.concat([there.reshape(*features.shape[:-2], -1), ops.cast(present, features)], -1)
    return observation


def described(observation: Any) -> str:
    """What an observation is, in a sentence.

    >>> import numpy as np
    >>> described(np.zeros((1, 3), np.float32)), described(Tokens(np.zeros((1, 4), np.int32), 3))
    ('rows of 3 numbers', 'a Tokens')
    """
    shape = tuple(observation.shape) if hasattr(observation, "shape") else ()
    return f"rows of {shape[-1]} numbers" if len(shape) == 2 else f"a {type(observation).__name__}"


def width(observation: Any) -> int:
    """How many numbers an MLP reads of an observation; only what is flat, or can be made so, has such a number."""
    seen = flat(observation)
    if isinstance(seen, KHot):
        return seen.size
    shape = tuple(seen.shape) if hasattr(seen, "shape") else ()
    if len(shape) != 2:
        raise TwinaxError(
            "what is observed is no flat row of numbers, so an MLP cannot read it; give a network that does with "
            "network=..., or policy.network=package.module:Name"
        )
    return shape[1]
