"""Worlds for tests: strings that end by their own rules, graphs written as tables; and policies that are tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.envs import Environment, Hypergrid, enumerate_states
from twinax.gflownet import Outputs
from twinax.networks import KHot


class BitState(NamedTuple):
    bits: Any
    """-1 where nothing has been written yet."""
    done: Any


@dataclass(frozen=True)
class BitStrings(Environment):
    """Strings of a fixed length, written in any order; there is no stop action.

    Action 2 i + v writes v at place i, backward action i wipes place i.
    """

    length: int
    stops = False
    fixed_length = True

    @property
    def num_actions(self):
        return 2 * self.length

    @property
    def action_shape(self):
        return (self.length, 2)

    @property
    def num_backward_actions(self):
        return self.length

    @property
    def max_steps(self):
        return self.length

    def reset(self, batch):
        return BitState(np.full((batch, self.length), -1, np.int32), np.zeros((batch,), bool))

    def _state(self, bits):
        return BitState(bits, ops.all(bits >= 0, -1))

    def step(self, state, action):
        here = ops.one_hot(action // 2, self.length, "int32") * ops.cast(~state.done, "int32")[:, None]
        return self._state(ops.where(here == 1, ops.cast(action % 2, "int32")[:, None], state.bits))

    def backward_step(self, state, action):
        return self._state(ops.where(ops.one_hot(action, self.length, "int32") == 1, -1, state.bits))

    def forward_mask(self, state):
        empty = state.bits < 0
        return ops.stack([empty, empty], -1).reshape(empty.shape[0], 2 * self.length)

    def backward_mask(self, state):
        return state.bits >= 0

    def backward_action(self, state, action):
        return action // 2

    def forward_action(self, state, action):
        return 2 * action + (ops.take_along(state.bits, action) > 0)

    def observe(self, state):
        # Dense floats, where the hypergrid gives a KHot.
        return ops.one_hot(state.bits + 1, 3, "float32").reshape(-1, 3 * self.length)

    @property
    def observation_size(self):
        return 3 * self.length

    def log_reward(self, state):
        # Neighbours that agree, and a weight for each place: no two strings are worth the same.
        weights = ops.like((np.arange(self.length) + 0.5) * 0.3, state.bits)
        ones = ops.cast(state.bits > 0, weights)
        return ops.sum(ones * weights, -1) - ops.sum(ops.abs(ones[:, 1:] - ones[:, :-1]), -1)

    def log_paths_ratio(self, state):
        # k! ways to have written k bits, whichever was the last.
        return ops.zeros(state.bits.shape, state.bits, "float32")


class LeftToRight(BitStrings):
    """The same strings, written from left to right: a tree, with one way to each string."""

    num_actions = 2
    num_backward_actions = 1
    action_shape = (2,)

    def _place(self, state):
        return ops.cast(ops.sum(ops.cast(state.bits >= 0, "int32"), -1), "int32")

    def step(self, state, action):
        return super().step(state, 2 * self._place(state) + action)

    def backward_step(self, state, action):
        return super().backward_step(state, self._place(state) - 1)

    def forward_mask(self, state):
        return ops.stack([~state.done, ~state.done], -1)

    def backward_mask(self, state):
        return state.bits[:, :1] >= 0

    def backward_action(self, state, action):
        return 0 * action

    def forward_action(self, state, action):
        last = ops.clip(self._place(state) - 1, 0, self.length - 1)
        return ops.cast(ops.take_along(state.bits, last) > 0, "int32")

    def log_paths_ratio(self, state):
        return ops.zeros((state.bits.shape[0], 1), state.bits, "float32")


class NodeState(NamedTuple):
    node: Any
    done: Any


@dataclass(frozen=True)
class TableWorld(Environment):
    """A graph given by its edges, (parent, action, child); node 0 is the source.

    A backward action has the number of the forward action that it undoes.
    """

    edges: tuple[tuple[int, int, int], ...]
    finished: tuple[int, ...]
    """Nodes that are done."""
    max_steps: int = 0
    forgotten: tuple[tuple[int, int, int], ...] = ()
    """Edges that are missing in the backward rules."""
    stops = False

    @property
    def num_nodes(self):
        return 1 + max(max(s, t) for s, _, t in self.edges)

    @property
    def num_actions(self):
        return 1 + max(a for _, a, _ in self.edges)

    @property
    def num_backward_actions(self):
        return self.num_actions

    def _table(self, backward):
        table = np.full((self.num_nodes, self.num_actions), -1)
        for s, a, t in self.edges:
            if not backward:
                table[s, a] = t
            elif (s, a, t) not in self.forgotten:
                table[t, a] = s
        return table

    def reset(self, batch):
        return NodeState(np.zeros((batch,), np.int32), np.zeros((batch,), bool))

    def _row(self, table, node):
        return ops.take(ops.like(table, node), node)

    def _state(self, node):
        node = ops.cast(node, "int32")
        return NodeState(node, self._row(np.isin(np.arange(self.num_nodes), self.finished), node))

    def _move(self, state, action, backward):
        there = ops.take_along(self._row(self._table(backward), state.node), action)
        return self._state(ops.where(there < 0, state.node, ops.cast(there, "int32")))

    def step(self, state, action):
        return self._move(state, action, False)

    def backward_step(self, state, action):
        return self._move(state, action, True)

    def forward_mask(self, state):
        return self._row(self._table(False), state.node) >= 0

    def backward_mask(self, state):
        return self._row(self._table(True), state.node) >= 0

    def observe(self, state):
        return ops.one_hot(state.node, self.num_nodes, "float32")

    @property
    def observation_size(self):
        return self.num_nodes

    def log_reward(self, state):
        return ops.cast(state.node, "float32") * 0.25


DIAMOND = ((0, 0, 1), (0, 1, 2), (1, 1, 3), (2, 0, 3), (3, 0, 4), (1, 0, 5))
"""0 -> {1, 2} -> 3 -> 4 and 1 -> 5; the ends are 4 and 5."""


class Tabular(eqx.Module):
    """A policy that is a table: one row of logits for each state that is not done, found from its observation.

    The observation of a world whose parts are one-hot coded, `base` columns each, is a number in that base.
    """

    forward: Any
    backward: Any
    log_flow: Any
    place: Any
    """Row of each number; a static table, not a parameter."""
    base: int = eqx.field(static=True)

    def __call__(self, observation):
        if isinstance(observation, KHot):
            digits = observation.indices % self.base
        else:
            parts = observation.reshape(observation.shape[0], observation.shape[1] // self.base, self.base)
            digits = ops.argmax(parts)
        weights = ops.like(self.base ** np.arange(digits.shape[-1]), digits)
        row = ops.take(self.place, ops.sum(digits * weights, -1))
        return Outputs(*(ops.take(table, row) for table in (self.forward, self.backward, self.log_flow)))

    def acting(self):
        return self


def base_of(env) -> int:
    return env.side if isinstance(env, Hypergrid) else 3


def tabular(env, forward, backward, log_flow) -> Tabular:
    """A policy from tables over the enumerated states; a done state is looked up as the state it looks like."""
    graph = enumerate_states(env)
    base = base_of(env)
    seen = env.observe(graph.states)
    dense = seen.dense("float64") if isinstance(seen, KHot) else seen
    digits = dense.reshape(len(graph.done), -1, base).argmax(-1)
    keys = digits @ base ** np.arange(digits.shape[1])
    place = np.zeros(base ** digits.shape[1], np.int32)
    # Rows of done states first, so that a state that is not done wins where both look the same.
    for rows in (np.flatnonzero(graph.done), np.flatnonzero(~graph.done)):
        place[keys[rows]] = rows
    return Tabular(forward, backward, log_flow, place, base)


def random_policy(env, seed=0, scale=1.0) -> Tabular:
    """Random tables."""
    rng, number = np.random.default_rng(seed), len(enumerate_states(env).done)
    sizes = ((number, env.num_actions), (number, env.num_backward_actions), (number,))
    return tabular(env, *(scale * rng.normal(size=size) for size in sizes))


class Balanced(NamedTuple):
    """The one solution of every balance condition for a given backward policy, by enumeration."""

    edge: Any
    """log of the flow along each edge of the enumeration."""
    state: Any
    """log of the flow through each state."""
    forward: Any
    """log P_F, random where an action is not allowed."""


def balanced(env, log_pb) -> Balanced:
    """Flows from the rewards back to the source: F(s -> s') = F(s') P_B(s | s'), F(s) = sum over its edges.

    `log_pb` has log P_B(backward action | state) for each state of the enumeration.
    """
    graph = enumerate_states(env)
    children = jtu.tree_map(lambda x: x[graph.target], graph.states)
    undo = np.clip(env.backward_action(children, graph.action), 0, env.num_backward_actions - 1)
    back = log_pb[graph.target, undo]
    if env.stops:
        back = np.where(graph.action == env.num_actions - 1, 0.0, back)
    state = np.where(graph.done, graph.log_reward, -np.inf)
    edge = np.zeros(len(graph.source))
    for low, high in list(zip(graph.edge_levels[:-1], graph.edge_levels[1:], strict=True))[::-1]:
        edge[low:high] = state[graph.target[low:high]] + back[low:high]
        np.logaddexp.at(state, graph.source[low:high], edge[low:high])
    forward = np.random.default_rng(1).normal(size=(len(graph.done), env.num_actions))
    forward[graph.source, graph.action] = edge - state[graph.source]
    return Balanced(edge, state, forward)


def backward_table(env, kind, seed=2):
    """log P_B of every state for a backward policy: uniform, maxent, or random numbers as a learned one."""
    graph = enumerate_states(env)
    mask = env.backward_mask(graph.states)
    logits = np.zeros(mask.shape)
    if kind == "learned":
        logits = np.random.default_rng(seed).normal(size=mask.shape)
    elif kind == "maxent":
        logits = np.asarray(env.log_paths_ratio(graph.states), np.float64)
    return logits, ops.log_softmax(logits, mask)
