"""Random walks that test an environment's rules, forwards from the source and back to it."""

from __future__ import annotations

from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.envs._broken_rule import refuse
from twinax.envs._environment import Environment
from twinax.envs.state_rows import equal, keys_of, pick, rows_of, size_of

WALKS = 64
"""Random walks through a world that is too large to enumerate; half of them stop only when they must."""


def at_source(env: Environment, states: Any) -> np.ndarray:
    """Which states are the source."""
    return equal(states, env.reset(size_of(states)))


def _choose(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.argmax(np.where(mask, rng.random(mask.shape), -1.0), 1).astype(np.int32)


def wander(env: Environment, rng: np.random.Generator, walks: int = WALKS) -> Any:
    """The distinct states of random walks from the source; each must be done after `max_steps` actions."""
    state = env.reset(walks)
    visited, walker = [state], [np.arange(walks)]
    for _ in range(env.max_steps):
        if np.asarray(state.done).all():
            break
        mask = np.array(env.forward_mask(state))
        if env.stops:
            mask[::2, -1] &= ~mask[::2, :-1].any(1)
        going = np.flatnonzero(~np.asarray(state.done))
        state = env.step(state, _choose(mask, rng))
        visited.append(pick(state, going))
        walker.append(going)
    states = jtu.tree_map(lambda *xs: np.concatenate(xs), *visited)
    rows = rows_of(states)
    by_walk = keys_of(np.column_stack([np.concatenate(walker), rows]))
    _, first, inverse = np.unique(by_walk, return_index=True, return_inverse=True)
    repeated = first[inverse.reshape(-1)] != np.arange(len(rows))
    refuse(repeated, states, "the environment's graph has a cycle: a walk comes back to a state")
    refuse(~np.asarray(state.done), state, f"a walk of max_steps={env.max_steps} actions does not end")
    return pick(states, np.sort(np.unique(keys_of(rows), return_index=True)[1]))


def walk_back(env: Environment, states: Any, rng: np.random.Generator) -> np.ndarray:
    """Random walks back from states, which must reach the source; the length of each."""
    start, length = states, np.zeros(size_of(states), int)
    for _ in range(env.max_steps):
        source, mask = at_source(env, states), env.backward_mask(states)
        if source.all():
            break
        stuck = ~source & ~mask.any(1) & ~(np.asarray(states.done) & env.stops)
        refuse(stuck, states, "a second source: a walk back ends in a state that is not the source")
        moved = env.backward_step(states, _choose(mask, rng))
        length += ~source

        def keep(old, new, source=source):
            return np.where(source.reshape(-1, *[1] * (old.ndim - 1)), old, new)

        states = jtu.tree_map(keep, states, moved)
    lost = ~at_source(env, states)
    refuse(lost, start, f"walking back max_steps={env.max_steps} actions does not reach the source")
    return length
