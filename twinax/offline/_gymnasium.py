"""Gymnasium environments as offline agents see them: flat observations, actions in [-1, 1]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.errors import TwinaxError

_OGBENCH = re.compile(r"(visual-)?(pointmaze|antmaze|humanoidmaze|antsoccer|cube|scene|puzzle|powderworld)-")
_EXTRAS = {"mujoco": "gymnasium[mujoco]", "imageio": "gymnasium[mujoco]", "Box2D": "gymnasium[box2d]"}


def make(name: str, settings: Mapping[str, Any]) -> Any:
    """An environment whose observations are one vector or image, and whose actions are a flat box or single choices."""
    import gymnasium  # pyright: ignore[reportMissingImports]

    # OGBench's environments are known to Gymnasium once its package is imported.
    full = f"ogbench:{name}" if _OGBENCH.match(name) and name not in gymnasium.registry else name
    try:
        env = gymnasium.make(full, **settings)
    except (gymnasium.error.Error, ImportError) as error:
        raise TwinaxError(f"Gymnasium cannot make '{name}': {_reason(error)}") from None
    spaces = gymnasium.spaces
    if not isinstance(env.observation_space, spaces.Box):
        env = gymnasium.wrappers.FlattenObservation(env)
    box = env.action_space
    if not isinstance(box, spaces.Box | spaces.Discrete) or (isinstance(box, spaces.Box) and len(box.shape) != 1):
        raise TwinaxError(f"'{name}' has actions of {box}; only flat boxes and single choices can be stored")
    return env


def _reason(error: BaseException) -> str:
    missing: BaseException | None = error
    while missing is not None and not (isinstance(missing, ModuleNotFoundError) and missing.name):
        missing = missing.__cause__  # Gymnasium says in its own words what could not be imported
    if not isinstance(missing, ModuleNotFoundError):
        return " ".join(str(error).split())
    command = _EXTRAS.get(str(missing.name), missing.name)
    return f"it needs {missing.name}, which is not installed: pip install '{command}'"


def scaled_to_box(actions: np.ndarray, box: Any) -> np.ndarray:
    """Actions in [-1, 1] as the environment takes them."""
    if not np.isfinite([box.low, box.high]).all():
        raise TwinaxError(f"the environment has actions of {box}; its box must be finite")
    return (box.low + (np.clip(actions, -1, 1) + 1) / 2 * (box.high - box.low)).astype(box.dtype)


def clipped_to_box(actions: np.ndarray, box: Any) -> np.ndarray:
    """Actions in an environment's own units, held within what it takes."""
    return np.clip(actions, box.low, box.high).astype(box.dtype)
