"""What can be built on PPO without touching it: another reward, and updates of other networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax.noise import Draw
from twinax.problem import Loss


@dataclass(frozen=True)
class Hooks:
    """Functions that an iteration calls. Networks they add are theirs alone: PPO's own loss leaves them as they are.

    Give the optimizer `separate=True`, so that each network counts its own updates.
    """

    names: tuple[str, ...]
    """Names of the networks that are added."""
    networks: Callable[[np.random.Generator], dict[str, Any]]
    """Fresh ones."""
    record: Callable[[Any, Any], Any]
    """(world's state before a step, after it) -> arrays to keep, worlds first."""
    reward: Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]
    """(networks, recorded, reward of the world) -> (reward to learn from, terms), time and world first."""
    update: Callable[..., tuple[Any, Any, dict[str, Any]]]
    """(state, own carry, recorded as rows, draws, update) -> (state, own carry, terms), after PPO's updates."""
    carry: Callable[[int], Any] = lambda groups: None
    """What is kept between iterations: NumPy arrays whose leading axis is the groups of worlds."""
    draws: Callable[[int], Mapping[str, Draw]] = lambda groups: {}
    """Random arrays, with the groups of worlds as second axis."""
    evaluate: Callable[[Mapping[str, np.ndarray]], dict[str, Any]] = lambda recorded: {}
    """Metrics of recorded steps of evaluated episodes."""
    losses: Callable[[Any, Any, Any], dict[str, tuple[Loss, Any]]] = lambda carry, recorded, draws: {}
    """(own carry, recorded as rows, draws) -> what `update` differentiates, by name, with a batch: for parity."""
