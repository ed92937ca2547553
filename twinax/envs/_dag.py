"""Directed acyclic graphs, built edge by edge: which variable depends on which, learned from data."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs import _dag_measures as measured
from twinax.envs._black_box import black_boxes
from twinax.envs._dag_data import Observations, given, simulated
from twinax.envs._dag_drawing import drawn
from twinax.envs._dag_rewards import BGe, ParentScores
from twinax.envs._enumeration import LIMIT, enumerate_states
from twinax.envs._environment import Environment
from twinax.envs._frozen_array import FrozenArray
from twinax.envs._rewarded import as_reward
from twinax.errors import TwinaxError
from twinax.networks import Graph
from twinax.types import Array, Bool, Float, Int

MOST_NUMBERS = 20_000_000
"""Numbers of simulated data."""
MOST_NODES = 256
"""Actions are counted in int32, and states are squares of this."""
EXACT_NODES = 5
"""Graphs of up to so many nodes are all looked at, for the exact posterior."""


class DAGState(NamedTuple):
    """Graphs, and what can be reached in them."""

    adjacency: Bool[Array, "batch nodes nodes"]
    """Entry [i, j] is True where i -> j."""
    closure: Bool[Array, "batch nodes nodes"]
    """Entry [i, j] is True where a path leads from j to i, and where i = j: then i -> j would close a cycle."""
    done: Bool[Array, " batch"]


@checked
@dataclass(frozen=True)
class DAG(Environment):
    """From no edges; action i * num_nodes + j adds i -> j unless that closes a cycle, the last action stops.

    >>> DAG(num_nodes=4).max_steps
    7
    """

    num_nodes: int | None = None
    """Number of variables of simulated data; null: 5, or as many as data of one's own have."""
    data: Any = None
    """Samples, one in each row: an array, or the path of a CSV or npz file; null simulates them from a random graph."""
    graph: Any = None
    """True graph of data of one's own: a matrix with 1 where i -> j, or the path of a CSV file; null: not known."""
    standardise: bool = False
    """Whether each column of one's own data is brought to mean 0 and variance 1."""
    num_samples: int = 100
    """Rows of simulated data."""
    edges_per_node: float = 1.0
    """Edges for each node of the simulated graph, on average."""
    seed: int = 0
    """Decides on the simulated graph and its data."""
    max_parents: int | None = None
    """Largest number of edges into a node; null allows any number."""
    reward: Any = BGe()
    """What a graph pays: `BGe`, `LinearGaussian`, any function of adjacency matrices, or a record of one's own."""
    observations: Observations = field(init=False, repr=False)
    """The data as they are scored, with names and true graph."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        for name in ("data", "graph"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, Path(value))
            elif value is not None and not isinstance(value, Path | FrozenArray):
                object.__setattr__(self, name, _frozen(name, value))
        if self.data is None:
            self._simulate()
        else:
            seen = given(self.data, self.graph, self.standardise)
            columns = seen.samples.shape[1]
            if self.num_nodes not in (None, columns):
                raise TwinaxError(f"num_nodes is {self.num_nodes}, but the data have {columns} columns; leave it out")
            object.__setattr__(self, "num_nodes", columns)
            object.__setattr__(self, "observations", seen)
        if self._size > MOST_NODES:
            raise TwinaxError(f"num_nodes is {self._size}; it must be at most {MOST_NODES}")
        if self.max_parents is not None and not 1 <= self.max_parents < self._size:
            raise TwinaxError(f"max_parents is {self.max_parents}; it must lie between 1 and {self._size - 1}")
        if isinstance(self.reward, ParentScores):
            self.reward.check(self)

    def _simulate(self) -> None:
        if self.graph is not None:
            raise TwinaxError("graph is the true graph of data, and no data were given; name both, or neither")
        number = 5 if self.num_nodes is None else self.num_nodes
        least = {"num_nodes": (number, 2), "num_samples": (self.num_samples, 2), "seed": (self.seed, 0)}
        for name, (value, smallest) in least.items():
            if value < smallest:
                raise TwinaxError(f"{name} is {value}; it must be at least {smallest}")
        if not (math.isfinite(self.edges_per_node) and self.edges_per_node >= 0):
            raise TwinaxError(f"edges_per_node is {self.edges_per_node}; it must be finite, and 0 or more")
        if number > MOST_NODES:
            raise TwinaxError(f"num_nodes is {number}; it must be at most {MOST_NODES}")
        if number * self.num_samples > MOST_NUMBERS:
            raise TwinaxError(
                f"num_nodes={number} with num_samples={self.num_samples:,} are more than {MOST_NUMBERS:,} numbers; "
                "take fewer samples"
            )
        object.__setattr__(self, "num_nodes", number)
        seen = simulated(number, self.num_samples, self.edges_per_node, self.seed)
        object.__setattr__(self, "observations", seen)

    @property
    def _size(self) -> int:
        assert self.num_nodes is not None
        return self.num_nodes

    @property
    def num_actions(self) -> int:
        return self._size**2 + 1

    @property
    def num_backward_actions(self) -> int:
        return self._size**2

    @property
    def max_steps(self) -> int:
        most = self._size if self.max_parents is None else self.max_parents
        return 1 + sum(min(before, most) for before in range(self._size))

    def reset(self, batch: int) -> DAGState:
        d = self._size
        closure = np.broadcast_to(np.eye(d, dtype=bool), (batch, d, d)).copy()
        return DAGState(np.zeros((batch, d, d), bool), closure, np.zeros((batch,), bool))

    def step(self, state: DAGState, action: Int[Array, " batch"]) -> DAGState:
        source, target = self._ends(state, action)
        # Whatever j reaches is now reached by whatever reaches i.
        below = ops.any(state.closure & target[:, None, :], -1)
        above = ops.any(state.closure & source[:, :, None], 1)
        return DAGState(
            state.adjacency | (source[:, :, None] & target[:, None, :]),
            state.closure | (below[:, :, None] & above[:, None, :]),
            state.done | (action == self.num_actions - 1),
        )

    def backward_step(self, state: DAGState, action: Int[Array, " batch"]) -> DAGState:
        source, target = self._ends(state, action)
        adjacency = state.adjacency & ~(source[:, :, None] & target[:, None, :])
        closure = ops.swap_last(adjacency) | ops.like(np.eye(self._size, dtype=bool), adjacency)
        for k in range(self._size):
            closure = closure | (closure[:, :, k][:, :, None] & closure[:, k][:, None, :])
        return DAGState(adjacency, closure, state.done & False)

    def _ends(self, state: DAGState, action: Int[Array, " batch"]) -> tuple[Any, Any]:
        """Where an edge begins and where it ends, one True in each row; none for the stop action and in done states."""
        nodes = ops.arange(self._size, state.adjacency)
        source = ((action // self._size)[:, None] == nodes) & ~state.done[:, None]
        return source, (action % self._size)[:, None] == nodes

    def forward_mask(self, state: DAGState) -> Bool[Array, "batch actions"]:
        free: Any = ~(state.adjacency | state.closure | state.done[:, None, None])
        if self.max_parents is not None:
            parents = ops.sum(ops.cast(state.adjacency, "int32"), -2)
            free = free & (parents < self.max_parents)[:, None, :]
        return ops.concat([free.reshape(-1, self._size**2), ~state.done[:, None]], -1)

    def backward_mask(self, state: DAGState) -> Bool[Array, "batch edges"]:
        edges: Any = state.adjacency & ~state.done[:, None, None]
        return edges.reshape(-1, self._size**2)

    def observe(self, state: DAGState) -> Graph:
        edges = ops.cast(state.adjacency, "float32")[..., None]
        d = self._size
        return Graph(ops.broadcast(ops.like(np.eye(d, dtype=np.float32), edges), (edges.shape[0], d, d)), edges)

    def objects(self, state: DAGState) -> Bool[Array, "batch nodes nodes"]:
        return state.adjacency

    def log_paths_ratio(self, state: DAGState) -> Float[Array, "batch edges"]:
        # Edges may come in any order: every parent of a graph with k edges has (k - 1)! paths.
        return ops.zeros((state.adjacency.shape[0], self._size**2), state.adjacency, "float32")

    @property
    def num_states(self) -> int:
        return 2 * _count(self._size, self._size if self.max_parents is None else self.max_parents)

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.data, self.graph) if isinstance(path, Path))

    @property
    def true_graph(self) -> np.ndarray | None:
        """Where the data came from, if that is known: entry [i, j] is True where i -> j."""
        known = self.observations.graph
        return None if known is None else known.values

    def text(self, objects: Any, index: int) -> str:
        names = self.observations.names
        edges = [f"{names[i]}->{names[j]}" for i, j in np.argwhere(np.asarray(objects)[index])]
        return ", ".join(edges) or "no edges"

    def draw(self, objects: Any, index: int) -> np.ndarray | None:
        adjacency = np.asarray(objects)[index].astype(bool)
        return drawn(adjacency, self.observations.names, self.true_graph)

    def distance(self, one: Any, other: Any) -> np.ndarray:
        """In how many pairs of nodes graphs differ."""
        one, other = (np.asarray(x.adjacency if hasattr(x, "adjacency") else x) for x in (one, other))
        pairs = [measured.differing_pairs(one, graph[None]) for graph in other]
        return np.stack(pairs, 1) if pairs else np.zeros((len(one), 0), int)

    def measures(self, states: DAGState, weights: np.ndarray) -> dict[str, Any]:
        small = self._size <= EXACT_NODES and not any(black_boxes(self))
        exact = posterior(self) if small else None
        return measured.summary(np.asarray(states.adjacency), weights, self.true_graph, exact)

    titles = measured.TITLES


def posterior(env: DAG) -> tuple[np.ndarray, np.ndarray]:
    """All graphs of a small world and their exact probabilities.

    >>> graphs, probabilities = posterior(DAG(num_nodes=3))
    >>> graphs.shape
    (25, 3, 3)
    """
    # With its limit written out, so that it is the enumeration of the exact metrics.
    graph = enumerate_states(env, LIMIT)
    return graph.states.adjacency[graph.done], graph.target_distribution[graph.done]


@functools.cache
def _count(nodes: int, most: int) -> int:
    """How many acyclic graphs there are: nodes without children are set apart, counted by inclusion and exclusion."""
    if nodes == 0:
        return 1
    total = 0
    for last in range(1, nodes + 1):
        choices = sum(math.comb(nodes - last, parents) for parents in range(min(most, nodes - last) + 1))
        total -= (-1) ** last * math.comb(nodes, last) * choices**last * _count(nodes - last, most)
    return total


def _frozen(name: str, value: Any) -> FrozenArray:
    try:
        return FrozenArray.of(np.asarray(value, np.float64 if name == "data" else None))
    except (TypeError, ValueError) as error:
        raise TwinaxError(f"{name} is no table of numbers: {error}") from None
