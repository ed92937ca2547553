"""The perfect binary tree: left or right, until a leaf is reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._environment import Environment
from twinax.envs._rewarded import as_reward
from twinax.errors import TwinaxError
from twinax.networks import Tokens
from twinax.types import Array, Bool, Float, Int


class TreeState(NamedTuple):
    """Where each walker is: the root is node 1, and node k has the children 2 k and 2 k + 1."""

    node: Int[Array, " batch"]
    done: Bool[Array, " batch"]


@checked
@dataclass(frozen=True)
class LeafNumber:
    """R of a leaf is 1 plus its number from the left, which begins with 0."""

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R; a node on the way is paid as the leaf at its place in its level."""
        wide = ops.like(np.zeros(1), state.node)
        level = ops.cast(_first(env, state.node), "int32")
        return ops.log(ops.cast(state.node - level + 1, wide))

    def log_partition(self, env: Any) -> float:
        """log of 1 + 2 + ... + 2^depth."""
        return math.log(2 ** (env.depth - 1)) + math.log(2**env.depth + 1)


@checked
@dataclass(frozen=True)
class PerfectTree(Environment):
    """Action 0 goes left, 1 right; a walk ends after `depth` actions. One way leads to each leaf, so P_B is 1.

    >>> round(PerfectTree(depth=4).log_partition, 6)
    4.912655
    """

    depth: int = 4
    """Actions from the root to a leaf."""
    reward: Any = LeafNumber()
    """What a leaf pays: `LeafNumber`, any function of nodes, or a record of one's own."""

    def __post_init__(self):
        object.__setattr__(self, "reward", as_reward(self.reward))
        if not 1 <= self.depth <= 29:
            raise TwinaxError(f"depth is {self.depth}; it must be from 1 to 29, because nodes are numbered in int32")

    @property
    def stops(self) -> bool:
        return False

    @property
    def fixed_length(self) -> bool:
        return True

    @property
    def num_actions(self) -> int:
        return 2

    @property
    def num_backward_actions(self) -> int:
        return 1

    @property
    def max_steps(self) -> int:
        return self.depth

    @property
    def num_states(self) -> int:
        return 2 ** (self.depth + 1) - 1

    def reset(self, batch: int) -> TreeState:
        return TreeState(np.ones((batch,), np.int32), np.zeros((batch,), bool))

    def _state(self, node: Int[Array, " batch"]) -> TreeState:
        return TreeState(ops.cast(node, "int32"), node >= 2**self.depth)

    def step(self, state: TreeState, action: Int[Array, " batch"]) -> TreeState:
        return self._state(ops.where(state.done, state.node, 2 * state.node + ops.cast(action, "int32")))

    def backward_step(self, state: TreeState, action: Int[Array, " batch"]) -> TreeState:
        return self._state(state.node // 2 + ops.cast(state.node == 1, "int32"))

    def forward_mask(self, state: TreeState) -> Bool[Array, "batch 2"]:
        return ops.stack([~state.done, ~state.done], -1)

    def backward_mask(self, state: TreeState) -> Bool[Array, "batch 1"]:
        return (state.node > 1)[..., None]

    def backward_action(self, state: TreeState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return action * 0

    def forward_action(self, state: TreeState, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        return state.node % 2

    def observe(self, state: TreeState) -> Tokens:
        return Tokens(self._turns(state.node), 3)

    def _turns(self, node: Int[Array, " batch"]) -> Int[Array, "batch depth"]:
        """0 for left, 1 for right, and 2 for turns that are not made yet."""
        # A node with t turns is below 2^(t + 1): shifted to the last level its bits are the turns.
        level = _first(self, node)
        missing = ops.cast(2**self.depth // level, "int32")[..., None]
        bits = ops.like((2 ** np.arange(self.depth - 1, -1, -1)).astype(np.int32), node)
        turns = (node[..., None] * missing // bits) % 2
        return ops.cast(ops.where(bits < missing, 2, turns), "int32")

    def log_paths_ratio(self, state: TreeState) -> Float[Array, "batch 1"]:
        return ops.zeros((state.node.shape[0], 1), state.node, "float32")

    def text(self, objects: Any, index: int) -> str:
        return bin(int(np.asarray(objects)[index]))[3:].replace("0", "L").replace("1", "R") or "root"

    def picture(self, states: TreeState, distribution: np.ndarray) -> np.ndarray | None:
        """The distribution over leaves, from left to right."""
        if self.depth > 12:
            return None
        leaves = np.asarray(states.node) - 2**self.depth
        return np.bincount(leaves[states.done], distribution[states.done], minlength=2**self.depth)[None]


def _first(env: Any, node: Int[Array, " batch"]) -> Int[Array, " batch"]:
    """The leftmost node of the level of a node: the highest power of 2 that is not above it."""
    powers = ops.like((2 ** np.arange(env.depth + 1)).astype(np.int32), node)
    return ops.max(ops.where(powers[None] <= node[..., None], powers[None], 1), -1)
