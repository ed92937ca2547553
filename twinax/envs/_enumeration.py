"""All states of a small world, with its edges in an order in which parents come first."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.tree_util as jtu
import numpy as np

from twinax.envs._environment import Environment
from twinax.envs.state_rows import pick, rows_of, show, size_of
from twinax.errors import TwinaxError

LIMIT = 2_000_000
"""More states than this are not enumerated."""
PIECE = 2**18
"""Children that are made at once."""


class TooManyStates(TwinaxError):
    """The world is larger than the limit that was set."""


class Enumeration(NamedTuple):
    """The graph of an environment; NumPy arrays throughout."""

    states: Any
    """Every state, done ones included, level after level; state 0 is the source."""
    done: np.ndarray
    """Which states are done."""
    source: np.ndarray
    """Parent of each edge, ascending by level."""
    action: np.ndarray
    """Forward action of each edge."""
    target: np.ndarray
    """Child of each edge."""
    edge_levels: np.ndarray
    """Bounds of the levels in the edge arrays; level k is edge_levels[k]:edge_levels[k + 1]."""
    log_reward: np.ndarray
    """log R in float64, of done states; -inf elsewhere."""

    @property
    def log_z(self) -> float:
        """log of the sum of rewards over done states."""
        return float(np.logaddexp.reduce(self.log_reward[self.done]))

    @property
    def target_distribution(self) -> np.ndarray:
        """R / Z over all states (0 where not done)."""
        return np.exp(self.log_reward - self.log_z)


@functools.lru_cache(maxsize=8)
def enumerate_states(env: Environment, limit: int = LIMIT) -> Enumeration:
    """Walk the whole graph from the source; worlds with more than `limit` states are refused.

    >>> from twinax.envs import Hypergrid
    >>> enumerate_states(Hypergrid(dim=2, side=8)).done.sum()
    np.int64(64)
    """
    return _in_order(env, *discover(env, limit))


def discover(env: Environment, limit: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """All states, in the order in which they are first met, and the edges as source, action, target."""
    if env.num_states is not None and env.num_states > limit:
        raise TooManyStates(f"the environment has more than {limit} states ({env.num_states:,}), too many to enumerate")
    rng = np.random.default_rng(0)
    frontier = env.reset(1)
    multipliers = rng.integers(1, 2**63, size=rows_of(frontier).shape[1], dtype=np.uint64) | np.uint64(1)
    index = {int(_hash(frontier, multipliers)[0]): 0}
    layers, edges, first = [frontier], [], 0
    piece = min(PIECE, max(4 * limit, 1024))
    while True:
        number = size_of(frontier)
        row, action = np.nonzero(np.asarray(env.forward_mask(frontier)))
        known = sum(size_of(layer) for layer in layers)
        added: list[Any] = []
        # In pieces, so that a world that is too large is refused before all children of a layer are made.
        for start in range(0, len(row), piece):
            rows, actions = row[start : start + piece], action[start : start + piece]
            children = env.step(pick(frontier, rows), actions.astype(np.int32))
            hashes, where, inverse = np.unique(_hash(children, multipliers), return_index=True, return_inverse=True)
            _refuse_collisions(children, where, inverse, index, hashes, [*layers, *added])
            new = np.array([h for h, key in enumerate(hashes.tolist()) if key not in index], np.int64)
            if known + len(new) > limit:
                raise TooManyStates(f"the environment has more than {limit} states, too many to enumerate")
            index.update((int(hashes[h]), known + k) for k, h in enumerate(new))
            known += len(new)
            target = np.array([index[key] for key in hashes.tolist()], np.int64)[inverse]
            edges.append((rows + first, actions, target))
            if len(new):
                added.append(pick(children, where[new]))
        if not added:
            break
        first += number
        frontier = jtu.tree_map(lambda *xs: np.concatenate(xs), *added)
        layers.append(frontier)
    states = jtu.tree_map(lambda *xs: np.concatenate(xs), *layers)
    empty = np.zeros(0, np.int64)
    source, action, target = (np.concatenate(column) for column in zip(*edges, (empty, empty, empty), strict=True))
    return states, source, action, target


def levels(states: Any, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The length of the longest path to each state; a graph with a cycle is refused."""
    number = size_of(states)
    level = np.full(number, -1, np.int64)
    waiting = np.bincount(target, minlength=number)  # parents without a level
    order = np.argsort(source, kind="stable")
    first = np.searchsorted(source[order], np.arange(number + 1))
    ready, k = np.flatnonzero(waiting == 0), 0
    while len(ready):
        level[ready] = k
        count = first[ready + 1] - first[ready]
        edge = np.repeat(first[ready] - np.cumsum(count) + count, count) + np.arange(count.sum())
        children, times = np.unique(target[order[edge]], return_counts=True)
        waiting[children] -= times
        ready, k = children[waiting[children] == 0], k + 1
    if (level < 0).any():
        raise TwinaxError(
            f"the environment's graph has a cycle through the state {show(states, _on_cycle(level, source, target))}; "
            "a GFlowNet needs an acyclic one"
        )
    return level


def _on_cycle(level: np.ndarray, source: np.ndarray, target: np.ndarray) -> int:
    # States without a level are on a cycle or behind one: walking back among them ends on a cycle.
    parent = {int(t): int(s) for s, t in zip(source, target, strict=True) if level[s] < 0 and level[t] < 0}
    here, seen = next(iter(parent)), set()
    while here not in seen:
        seen.add(here)
        here = parent[here]
    return here


def _in_order(env, states, source, action, target) -> Enumeration:
    number = size_of(states)
    level = levels(states, source, target)
    order = np.argsort(level[source], kind="stable")
    source, action, target = source[order], action[order], target[order]
    bounds = np.searchsorted(level[source], np.arange(level.max() + 2))
    done = np.asarray(states.done)
    log_reward = np.full(number, -np.inf)
    log_reward[done] = np.asarray(env.log_reward(jtu.tree_map(lambda x: x[done], states)), np.float64)
    if not np.isfinite(log_reward[done]).all():
        bad = int(np.flatnonzero(done & ~np.isfinite(log_reward))[0])
        raise TwinaxError(
            f"the log-reward of the state {show(states, bad)} is {log_reward[bad]}; rewards must be finite and above 0"
        )
    return Enumeration(states, done, source, action, target, bounds, log_reward)


def _hash(states: Any, multipliers: np.ndarray) -> np.ndarray:
    rows = rows_of(states).view(np.uint64)
    mixed = (rows + np.uint64(0x9E3779B97F4A7C15)) * multipliers
    mixed ^= mixed >> np.uint64(29)
    return (mixed * multipliers[::-1]).sum(1, dtype=np.uint64)


def _refuse_collisions(children: Any, where, inverse, index: dict[int, int], hashes, layers: list[Any]) -> None:
    """Equal hashes must mean equal states: among the children, and against those that were met before."""
    rows = rows_of(children)
    same = (rows == rows[where][inverse]).all()
    met = [(k, index[key]) for k, key in enumerate(hashes.tolist()) if key in index]
    if met and same:
        mine, known = np.array(met).T
        before = np.concatenate([rows_of(layer) for layer in layers])
        same = (rows[where[mine]] == before[known]).all()
    if not same:
        raise TwinaxError("two states share a hash; change the order of the state's arrays and try again")
