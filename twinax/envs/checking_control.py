"""The rules of a world with one agent, stepped a few times in NumPy before a training: shapes, dtypes, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.envs._control import Control, Discrete, Moved, Restarting
from twinax.errors import TwinaxError
from twinax.noise import Draw

WORLDS, STEPS = 3, 4


def check_world(world: Control, seed: int = 0) -> None:
    """Refuse, in a sentence, a world whose rules do not give what they must.

    Worlds that do not run in NumPy, and those that keep their state elsewhere, have checks of their own.

    >>> from twinax.envs import CartPole
    >>> check_world(CartPole())
    """
    if world.time_limit < 0:
        raise TwinaxError(f"the time limit of {world.name} is {world.time_limit}; it must be at least 0, for none")
    if "numpy" not in world.frameworks or isinstance(world, Restarting):
        return
    rng = np.random.default_rng(seed)
    state = world.reset(_draws(world.reset_draws(WORLDS), rng))
    for leaf in jtu.tree_leaves(state):
        if np.shape(leaf)[:1] != (WORLDS,):
            raise TwinaxError(
                f"reset of {world.name} gives a state with an array of shape {np.shape(leaf)} for {WORLDS} worlds; "
                "worlds come first"
            )
    _check_seen(world, state, "reset")
    for _ in range(STEPS):
        action = _some_action(world, rng)
        moved = world.step(state, action, _draws(world.step_draws(WORLDS), rng))
        if not isinstance(moved, Moved):
            raise TwinaxError(f"step of {world.name} gives {type(moved).__name__}; it must give a twinax.envs.Moved")
        _check_moved(world, state, moved)
        state = moved.state


def _draws(spec: Mapping[str, Draw], rng: np.random.Generator) -> dict[str, np.ndarray]:
    # Any numbers will do; those of a training would have to be compiled first.
    kinds = {
        "uniform": lambda draw: rng.uniform(1e-6, 1 - 1e-6, draw.shape).astype(np.float32),
        "normal": lambda draw: rng.standard_normal(draw.shape).astype(np.float32),
        "integers": lambda draw: rng.integers(0, draw.high, draw.shape).astype(np.int32),
    }
    return {name: kinds[draw.kind](draw) for name, draw in spec.items()}


def _some_action(world: Control, rng: np.random.Generator) -> np.ndarray:
    if isinstance(world.actions, Discrete):
        return rng.integers(0, world.actions.n, WORLDS).astype(np.int32)
    low, high = (np.clip(np.array(bound, np.float64), -1e3, 1e3) for bound in (world.actions.low, world.actions.high))
    return (low + (high - low) * rng.random((WORLDS, world.actions.size))).astype(np.float32)


def _check_seen(world: Control, state: Any, after: str) -> None:
    sights = {"observe": (world.observe, world.observation_size)}
    if world.privileged:
        sights["observe_critic"] = (world.observe_critic, world.critic_size)
    for name, (look, size) in sights.items():
        _check_array(f"{name} of {world.name} after {after}", look(state), (WORLDS, size), "f")


def _check_moved(world: Control, before: Any, moved: Moved) -> None:
    if jtu.tree_structure(before) != jtu.tree_structure(moved.state):
        kinds = f"{jtu.tree_structure(before)} into {jtu.tree_structure(moved.state)}"
        raise TwinaxError(f"step of {world.name} turns a state from {kinds}; its structure must be kept")
    for old, new in zip(jtu.tree_leaves(before), jtu.tree_leaves(moved.state), strict=True):
        if np.shape(old) != np.shape(new) or np.asarray(old).dtype != np.asarray(new).dtype:
            kinds = " into ".join(f"{np.asarray(x).dtype}{np.shape(x)}" for x in (old, new))
            raise TwinaxError(
                f"step of {world.name} turns an array of the state from {kinds}; shape and dtype must be kept"
            )
    _check_array(f"the reward of {world.name}", moved.reward, (WORLDS,), "f")
    _check_array(f"`terminated` of {world.name}", moved.terminated, (WORLDS,), "b")
    for name, term in moved.terms.items():
        if np.shape(term) != (WORLDS,):
            raise TwinaxError(f"the term {name} of {world.name} has the shape {np.shape(term)}, not ({WORLDS},)")
    _check_seen(world, moved.state, "a step")
    if moved.seen is not None:
        asked = world.observe_both(moved.state)
        if len(moved.seen) != 2 or not all(map(np.array_equal, moved.seen, asked)):
            raise TwinaxError(
                f"step of {world.name} gives `seen` that is not what observe and observe_critic give of its state; "
                "leave it out, and they are asked"
            )


def _check_array(what: str, value: Any, shape: tuple[int, ...], kind: str) -> None:
    array = np.asarray(value)
    wanted = {"f": "floats", "b": "booleans"}[kind]
    if array.shape != shape or array.dtype.kind != kind:
        raise TwinaxError(
            f"{what} is {array.dtype} of shape {array.shape} for {WORLDS} worlds; it must be {wanted} of shape {shape}"
        )
    if kind == "f" and not np.isfinite(array).all():
        raise TwinaxError(
            f"{what} is {array[~np.isfinite(array)][0]} for an action within its bounds; it must be finite"
        )
