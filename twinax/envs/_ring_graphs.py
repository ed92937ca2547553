"""Graphs on labelled nodes, edge by edge; what pays is one ring through all nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._environment import Environment
from twinax.envs._rewarded import as_reward
from twinax.errors import TwinaxError
from twinax.networks import Graph
from twinax.parts import Title
from twinax.types import Array, Bool, Float, Int


class GraphState(NamedTuple):
    """The edges of each graph."""

    edges: Int[Array, "batch edges"]
    """1 for edges that are there, in the order of `RingGraphs.pairs`."""
    done: Bool[Array, " batch"]


@checked
@dataclass(frozen=True)
class Ring:
    """R is high for a graph that is one ring through all nodes and nothing else, and low for all others."""

    ring: float = 100.0
    """Reward of a ring."""
    other: float = 1e-6
    """Reward of everything else."""

    def __post_init__(self):
        for name in ("ring", "other"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise TwinaxError(f"{name} is {value}; it must be finite and above 0")

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of each graph."""
        ring = ops.cast(env.is_ring(state.edges), "int32")
        return ops.take(ops.like(np.log([self.other, self.ring]), ring), ring)

    def log_partition(self, env: Any) -> float:
        """(n-1)! rings, or half as many without directions, among 2^edges graphs."""
        rings = math.factorial(env.nodes - 1) // (1 if env.directed else 2)
        others = math.log(2 ** len(env.pairs) - rings) + math.log(self.other)
        return float(np.logaddexp(math.log(rings) + math.log(self.ring), others))


@checked
@dataclass(frozen=True)
class RingGraphs(Environment):
    """Graphs on labelled nodes: every action but the last adds an edge, the last one stops.

    Nodes have names, so that graphs which only differ by names are different objects.

    >>> RingGraphs(nodes=4).num_actions, RingGraphs(nodes=4, directed=False).num_actions
    (13, 7)
    """

    titles: ClassVar[Mapping[str, Title]] = {
        "ring_share": Title("Rings", "Probability that a sampled graph is a ring; it should be that of the target.")
    }
    nodes: int = 4
    """Nodes of a graph."""
    directed: bool = True
    """Whether edges have a direction; then there can be two between two nodes."""
    reward: Any = Ring()
    """What a graph pays: `Ring`, any function of edges, or a record of one's own."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        if not 3 <= self.nodes <= 60:
            raise TwinaxError(f"nodes is {self.nodes}; it must be from 3 to 60")

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """From which node to which each edge leads."""
        kind = itertools.permutations if self.directed else itertools.combinations
        return tuple(kind(range(self.nodes), 2))

    @property
    def num_actions(self) -> int:
        return self.num_backward_actions + 1

    @property
    def num_backward_actions(self) -> int:
        return self.nodes * (self.nodes - 1) // (1 if self.directed else 2)

    @property
    def max_steps(self) -> int:
        return self.num_actions

    @property
    def num_states(self) -> int:
        return 2**self.num_actions

    def reset(self, batch: int) -> GraphState:
        return GraphState(np.zeros((batch, self.num_backward_actions), np.int32), np.zeros((batch,), bool))

    def step(self, state: GraphState, action: Int[Array, " batch"]) -> GraphState:
        added = ops.one_hot(action, self.num_backward_actions, "int32")  # the stop action gives zeros
        added = added * ops.cast(~state.done, "int32")[..., None]
        return GraphState(ops.maximum(state.edges, added), state.done | (action == self.num_backward_actions))

    def backward_step(self, state: GraphState, action: Int[Array, " batch"]) -> GraphState:
        taken = ops.one_hot(action, self.num_backward_actions, "int32")
        taken = taken * ops.cast(~state.done, "int32")[..., None]
        return GraphState(state.edges * (1 - taken), state.done & False)

    def forward_mask(self, state: GraphState) -> Bool[Array, "batch actions"]:
        going = ~state.done[..., None]
        return ops.concat([(state.edges == 0) & going, going], -1)

    def backward_mask(self, state: GraphState) -> Bool[Array, "batch edges"]:
        return (state.edges > 0) & ~state.done[..., None]

    def adjacency(self, edges: Int[Array, "batch edges"]) -> Int[Array, "batch nodes nodes"]:
        """1 where an edge leads from one node to another; without directions, both ways."""
        # Edges are looked up; the place after the last one is a 0 for all pairs without an edge.
        where = np.full((self.nodes, self.nodes), len(self.pairs), np.int32)
        for k, (i, j) in enumerate(self.pairs):
            where[i, j] = k
            if not self.directed:
                where[j, i] = k
        padded = ops.concat([edges, edges[..., :1] * 0], -1)
        flat = ops.take(padded, ops.like(where.reshape(-1), edges), -1)
        return flat.reshape(*edges.shape[:-1], self.nodes, self.nodes)

    def is_ring(self, edges: Int[Array, "batch edges"]) -> Bool[Array, " batch"]:
        """Whether all degrees are right, and every node is reached from the first."""
        matrix = self.adjacency(edges)
        degree = 1 if self.directed else 2
        right = ops.all(ops.sum(matrix, -1) == degree, -1) & ops.all(ops.sum(matrix, -2) == degree, -1)
        reached = matrix[..., 0, :] > 0
        for _ in range(self.nodes - 1):
            further = ops.any((matrix > 0) & reached[..., None], -2)
            reached = reached | further
        return right & ops.all(reached, -1)

    def observe(self, state: GraphState) -> Graph:
        names = np.broadcast_to(np.eye(self.nodes, dtype=np.float32), (state.edges.shape[0], self.nodes, self.nodes))
        edges = ops.cast(self.adjacency(state.edges), "float32")[..., None]
        return Graph(ops.like(np.ascontiguousarray(names), state.edges), edges)

    def log_paths_ratio(self, state: GraphState) -> Float[Array, "batch edges"]:
        # k edges can have come in k! orders, whichever was the last.
        return ops.zeros(state.edges.shape, state.edges, "float32")

    def measures(self, states: GraphState, weights: np.ndarray) -> dict[str, Any]:
        return {"ring_share": float(weights[self.is_ring(states.edges)].sum())}

    def text(self, objects: Any, index: int) -> str:
        sign = ">" if self.directed else "-"
        pairs = self.pairs
        edges = [f"{pairs[k][0]}{sign}{pairs[k][1]}" for k in np.flatnonzero(np.asarray(objects)[index])]
        return " ".join(edges) or "no edges"

    def draw(self, objects: Any, index: int) -> np.ndarray:
        """Its nodes on a circle."""
        from twinax.envs._canvas import Canvas

        canvas = Canvas(160, 160, 66.0, (0.0, 0.0))
        angle = np.pi / 2 - 2 * np.pi * np.arange(self.nodes) / self.nodes
        place = np.column_stack([np.cos(angle), np.sin(angle)])
        for k in np.flatnonzero(np.asarray(objects)[index]):
            i, j = self.pairs[k]
            if self.directed:
                canvas.arrow(place[i], place[i] + 0.9 * (place[j] - place[i]), 0.04, "#1f77b4")
            else:
                canvas.line([place[i], place[j]], 0.04, "#1f77b4")
        for point in place:
            canvas.circle(point, 0.09, "#333333")
        return canvas.array()
