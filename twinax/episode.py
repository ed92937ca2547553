"""One episode for people to look at: what worlds tell of it, and what a run's films and figures are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class View:
    """A world's own view of an episode's states, time first."""

    frames: np.ndarray | None = None
    """uint8, (time, height, width, 3)."""
    frame_seconds: float = 0.04
    """How long a frame is seen."""
    drawn: str = ""
    """How the frames were made, for those who wonder why they look as they do; or why there are none."""
    strip: tuple[float, float] | None = None
    """Seconds of the film between which frames for a strip are taken; None for all of it."""
    bars: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """What holds at some times only, such as feet that touch the floor: by title, by name; bool."""
    tracks: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """Numbers over time: by title with its unit, by name. The first of a title is what happened."""


@dataclass(frozen=True)
class Episode:
    """What happened, one entry for each step."""

    seconds: float
    """Of a step; 0 where a step has no duration."""
    reward: np.ndarray
    terms: dict[str, np.ndarray]
    """Parts of the reward."""
    ended: str
    """How it ended."""
    view: View

    @property
    def times(self) -> np.ndarray:
        """Of the steps; without a duration they are counted."""
        return np.arange(1, len(self.reward) + 1) * (self.seconds or 1.0)


MOST_FRAMES = 250
MOST_STEPS = 500
"""Of an episode that is shown: ten seconds of a robot."""


def frame_places(number: int, seconds: float) -> tuple[Any, float]:
    """Which of so many states are filmed, and how long each is seen: in real time, unless that is very slow.

    >>> places, shown = frame_places(500, 0.02)
    >>> places[:3].tolist(), len(places), shown
    ([0, 2, 4], 250, 0.04)
    """
    every = max(1, round(0.04 / (seconds or 0.04)), -(-number // MOST_FRAMES))
    return np.arange(0, number, every), min(max(every * seconds, 0.04), 0.1)
