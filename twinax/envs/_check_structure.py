"""What an environment is made of: numbers, and a source state of arrays, before any rule is looked at."""

from __future__ import annotations

import math
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.envs._environment import Environment
from twinax.errors import TwinaxError

SIZES = ("num_actions", "num_backward_actions", "max_steps")


def check_structure(env: Any) -> None:
    """Refuse what is no environment, or whose sizes and source state are not of the kind that rules are checked on."""
    name = type(env).__name__
    if not isinstance(env, Environment):
        raise TwinaxError(f"{name} is not an environment for GFlowNets; it must be a twinax.envs.Environment")
    check_hashable(env)
    for size in SIZES:
        value = getattr(env, size)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise TwinaxError(f"{size} of {name} is {value!r}; it must be a whole number, at least 1")
    shape = env.action_shape
    if not (isinstance(shape, tuple) and 1 <= len(shape) <= 2 and math.prod(shape) == env.num_actions):
        raise TwinaxError(
            f"action_shape of {name} is {shape!r}; it must be (actions,) or (places, words), with {env.num_actions} "
            "actions in all"
        )
    _check_constants(name, env.constants())
    _check_source(name, env.reset(3))


def check_hashable(env: Any) -> None:
    """Refuse an environment that cannot be the key of what is known of it."""
    try:
        hash(env)
    except TypeError as error:
        raise TwinaxError(
            f"{type(env).__name__} cannot be hashed ({error}); make it a frozen dataclass whose fields are numbers, "
            "strings or tuples"
        ) from error


def _check_constants(name: str, constants: Any) -> None:
    if not isinstance(constants, dict):
        raise TwinaxError(f"constants of {name} gives a {type(constants).__name__}; it must be arrays by name")
    for key, value in constants.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise TwinaxError(f"the constant '{key}' of {name} is {kind}; it must be a NumPy array of numbers")


def _check_source(name: str, state: Any) -> None:
    if not hasattr(state, "done"):
        raise TwinaxError(f"a state of {name} has no leaf `done`; it must have one, of booleans")
    for leaf in jtu.tree_leaves(state):
        if not isinstance(leaf, np.ndarray) or leaf.shape[:1] != (3,):
            given = f"an array of shape {leaf.shape}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise TwinaxError(f"reset(3) of {name} gives {given} in its state; it must be NumPy arrays of 3 rows")
        if leaf.dtype.kind not in "biuf" or leaf.dtype == np.float64:
            raise TwinaxError(
                f"reset of {name} gives an array of {leaf.dtype}, which the frameworks do not hold alike; "
                "use int32, bool or float32"
            )
    if state.done.dtype != bool or state.done.shape != (3,):
        given = f"{state.done.dtype} of shape {state.done.shape}"
        raise TwinaxError(f"`done` of reset(3) of {name} is {given}; it must be bool of shape (3,)")
