"""Small worlds that show tokens, graphs and items, for the networks that read those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from small_worlds import BitStrings, LeftToRight

from twinax import ops
from twinax.envs import Environment
from twinax.networks import Graph, Items, Tokens


class ShownBits(BitStrings):
    """Bits in any order: a token for each place, 2 where nothing stands, and logits for each place."""

    default_network = "transformer"

    @property
    def action_shape(self):
        return (self.length, 2)

    def observe(self, state):
        return Tokens(ops.where(state.bits < 0, 2, state.bits), 3)

    @property
    def observation_size(self):
        return 3 * self.length


class GrowingBits(LeftToRight):
    """Bits from left to right behind a token that begins: 3, and 2 where nothing stands."""

    default_network = "transformer"

    def observe(self, state):
        begin = ops.cast(ops.zeros((state.bits.shape[0], 1), state.bits) + 3, state.bits)
        return Tokens(ops.concat([begin, ops.where(state.bits < 0, 2, state.bits)], -1), 4, empty=2)

    @property
    def observation_size(self):
        return 4 * (self.length + 1)


class EdgeState(NamedTuple):
    edges: Any
    """True where the first node leads to the second."""
    done: Any


@dataclass(frozen=True)
class Arrows(Environment):
    """Directed graphs without loops, edge by edge: action i * nodes + j adds i -> j, the last stops."""

    nodes: int
    default_network = "graph"

    @property
    def num_actions(self):
        return self.nodes**2 + 1

    @property
    def num_backward_actions(self):
        return self.nodes**2

    @property
    def max_steps(self):
        return self.nodes * (self.nodes - 1) + 1

    def reset(self, batch):
        return EdgeState(np.zeros((batch, self.nodes**2), bool), np.zeros((batch,), bool))

    def _chosen(self, state, action):
        return ops.arange(self.nodes**2, action)[None] == action[:, None]

    def step(self, state, action):
        stop = action == self.nodes**2
        edges = state.edges | (self._chosen(state, action) & ~state.done[:, None])
        return EdgeState(edges, state.done | stop)

    def backward_step(self, state, action):
        edges = ops.where(state.done[:, None], state.edges, state.edges & ~self._chosen(state, action))
        return EdgeState(edges, state.done & False)

    def forward_mask(self, state):
        free = ~state.edges & ops.like(~np.eye(self.nodes, dtype=bool).reshape(-1), state.edges)
        return ops.concat([free, state.done[:, None] | True], -1) & ~state.done[:, None]

    def backward_mask(self, state):
        return state.edges & ~state.done[:, None]

    def observe(self, state):
        edges = ops.cast(state.edges, "float32").reshape(-1, self.nodes, self.nodes, 1)
        names = ops.like(np.eye(self.nodes, dtype=np.float32), edges)[None]
        return Graph(names + ops.zeros((edges.shape[0], 1, 1), edges), edges)

    def log_reward(self, state):
        # An edge is worth its number, and two nodes that lead to each other lose as much.
        edges = ops.cast(state.edges, "float32").reshape(-1, self.nodes, self.nodes)
        worth = ops.like(np.arange(self.nodes**2).reshape(self.nodes, self.nodes) * np.float32(0.2), edges)
        return ops.sum(edges * worth, (1, 2)) - ops.sum(edges * ops.swap_last(edges), (1, 2))


class PairState(NamedTuple):
    partner: Any
    """-1 of who has none."""
    done: Any


@dataclass(frozen=True)
class Couples(Environment):
    """Everybody finds a partner: the action of the pair i < j stands at i (2n - 1 - i) / 2 + j - i - 1.

    Backward action i parts the pair whose lesser one is i.
    """

    people: int
    stops = False
    default_network = "pairs"

    @property
    def num_actions(self):
        return self.people * (self.people - 1) // 2

    @property
    def num_backward_actions(self):
        return self.people

    @property
    def max_steps(self):
        return self.people // 2

    def reset(self, batch):
        return PairState(np.full((batch, self.people), -1, np.int32), np.zeros((batch,), bool))

    def _state(self, partner):
        return PairState(partner, ops.all(partner >= 0, -1))

    def _pair(self, action):
        one, other = (x.astype(np.int32) for x in np.triu_indices(self.people, 1))
        return tuple(ops.take(ops.like(x, action), action)[:, None] for x in (one, other))

    def step(self, state, action):
        one, other = self._pair(action)
        who = ops.arange(self.people, state.partner)[None]
        partner = ops.where(who == one, other, ops.where(who == other, one, state.partner))
        return self._state(ops.where(state.done[:, None], state.partner, ops.cast(partner, "int32")))

    def backward_step(self, state, action):
        who = ops.arange(self.people, state.partner)[None]
        parted = (who == action[:, None]) | (state.partner == action[:, None])
        return self._state(ops.where(parted, ops.cast(ops.zeros((), state.partner) - 1, "int32"), state.partner))

    def forward_mask(self, state):
        one, other = (x.astype(np.int32) for x in np.triu_indices(self.people, 1))
        free = state.partner < 0
        return ops.take(free, ops.like(one, free), 1) & ops.take(free, ops.like(other, free), 1)

    def backward_mask(self, state):
        return state.partner > ops.arange(self.people, state.partner)[None]

    def backward_action(self, state, action):
        return self._pair(action)[0][:, 0]

    def forward_action(self, state, action):
        other = ops.clip(ops.take_along(state.partner, action), 0, self.people - 1)
        return ops.clip(action * (2 * self.people - 1 - action) // 2 + other - action - 1, 0, self.num_actions - 1)

    def observe(self, state):
        # The greater one of a pair stands with the lesser one, and is not there itself.
        own = ops.like(np.eye(self.people, dtype=np.float32), state.partner)[None]
        other = ops.one_hot(ops.clip(state.partner, 0, self.people), self.people, "float32")
        features = own + ops.where((state.partner >= 0)[..., None], other, 0.0)
        there = (state.partner < 0) | (state.partner > ops.arange(self.people, state.partner)[None])
        return Items(features, there)

    def log_reward(self, state):
        who = ops.cast(ops.arange(self.people, state.partner), "float32")[None]
        other = ops.cast(state.partner, "float32")
        return ops.sum(ops.where(other > who, who * other, 0.0 * other), -1) * 0.2
