"""Gymnasium environments as offline agents see them: flat observations, actions in [-1, 1]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.errors import TwinaxError


def make(name: str, settings: Mapping[str, Any]) -> Any:
    """An environment whose observations are one vector or image, and whose actions are a flat box or single choices."""
    import gymnasium  # pyright: ignore[reportMissingImports]

    try:
        env = gymnasium.make(name, **settings)
    except gymnasium.error.Error as error:
        raise TwinaxError(f"Gymnasium cannot make '{name}': {' '.join(str(error).split())}") from None
    spaces = gymnasium.spaces
    if not isinstance(env.observation_space, spaces.Box):
        env = gymnasium.wrappers.FlattenObservation(env)
    box = env.action_space
    if not isinstance(box, spaces.Box | spaces.Discrete) or (isinstance(box, spaces.Box) and len(box.shape) != 1):
        raise TwinaxError(f"'{name}' has actions of {box}; only flat boxes and single choices can be stored")
    return env


def scaled_to_box(actions: np.ndarray, box: Any) -> np.ndarray:
    """Actions in [-1, 1] as the environment takes them."""
    if not np.isfinite([box.low, box.high]).all():
        raise TwinaxError(f"the environment has actions of {box}; its box must be finite")
    return (box.low + (np.clip(actions, -1, 1) + 1) / 2 * (box.high - box.low)).astype(box.dtype)
