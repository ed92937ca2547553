"""Reference motion: frames of named features, and the checks that find a mismatch before a training does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError


@dataclass(frozen=True)
class Feature:
    """One number of a frame."""

    name: str
    """Such as angle/left_knee, speed/left_knee, velocity/ahead, height or contact/left."""
    unit: str
    frame: str = ""
    """Of a vector: heading (turned with the base about the vertical) or world."""


@dataclass(frozen=True)
class Reference:
    """Motion as frames at a fixed rate; clips follow one another."""

    layout: tuple[Feature, ...]
    frames: np.ndarray
    """(frame, feature)"""
    rate: float
    """Frames a second."""
    starts: tuple[int, ...] = (0,)
    """First frame of each clip."""

    def steps(self) -> np.ndarray:
        """Each frame beside the one after it, within clips."""
        first = np.ones(len(self.frames) - 1, bool)
        first[[start - 1 for start in self.starts if start]] = False
        return np.concatenate([self.frames[:-1], self.frames[1:]], 1)[first].astype(np.float32)

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of each feature; those that never change count as 1."""
        deviation = self.frames.std(0)
        return self.frames.mean(0).astype(np.float32), np.where(deviation > 1e-4, deviation, 1.0).astype(np.float32)

    def distance(self, recorded: Mapping[str, Any]) -> dict[str, float]:
        """How far recorded steps are from this: for each feature the area between the two distributions, in units of
        the reference's deviation, and the mean of that."""
        half = np.asarray(recorded["values"])[..., : len(self.layout)]
        rows = half[np.asarray(recorded["alive"], bool)]
        if not len(rows):
            return {"gait_distance": float("inf")}
        mean, deviation = self.statistics()
        at = (np.arange(200) + 0.5) / 200
        ours = np.quantile((rows - mean) / deviation, at, axis=0)
        theirs = np.quantile((self.frames - mean) / deviation, at, axis=0)
        return {"gait_distance": float(np.abs(ours - theirs).mean())}

    # Files

    def save(self, path: Path | str) -> None:
        """As an npz without objects."""
        columns = {part: np.array([getattr(f, part) for f in self.layout]) for part in ("name", "unit", "frame")}
        np.savez(path, frames=self.frames, rate=self.rate, starts=np.array(self.starts), **columns)

    @classmethod
    def load(cls, path: Path | str) -> Reference:
        """From a file that `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as found:
                parts = {name: found[name] for name in ("frames", "rate", "starts", "name", "unit", "frame")}
        except (OSError, ValueError, KeyError) as error:
            raise TwinaxError(f"{path} is not a file of reference motion: {error}") from error
        layout = [
            Feature(str(n), str(u), str(f))
            for n, u, f in zip(*(parts[k] for k in ("name", "unit", "frame")), strict=True)
        ]
        return cls(tuple(layout), parts["frames"], float(parts["rate"]), tuple(int(s) for s in parts["starts"]))

    # Checks

    def check(
        self,
        layout: Sequence[Feature],
        rate: float,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        ahead: tuple[float, float] | None = None,
    ) -> None:
        """Refuse what a discriminator would tell from the robot's steps by something other than motion.

        `layout` and `rate` are the robot's; `ranges` are limits of angles by joint, in rad; `ahead` is the range of
        velocities that are commanded.
        """
        self._check_layout(layout)
        if abs(self.rate - rate) > 1e-6 * rate:
            raise TwinaxError(f"the reference has {self.rate:g} frames a second and the robot {rate:g}; resample it")
        if len(self.frames) < 3 or self.frames.shape[1] != len(self.layout):
            shape, width = self.frames.shape, len(self.layout)
            raise TwinaxError(f"the reference has frames of shape {shape}; it needs at least 3 of {width} numbers")
        if not np.isfinite(self.frames).all():
            row, column = np.argwhere(~np.isfinite(self.frames))[0]
            raise TwinaxError(
                f"frame {row} of the reference has {self.layout[column].name} = {self.frames[row, column]}"
            )
        self._check_contacts()
        self._check_speeds()
        for joint, (low, high) in (ranges or {}).items():
            values = self._column(f"angle/{joint}")
            if values.min() < low - 0.2 or values.max() > high + 0.2:
                raise TwinaxError(
                    f"angle/{joint} of the reference goes from {values.min():.2f} to {values.max():.2f}, but the joint "
                    f"from {low:.2f} to {high:.2f} rad; are its units or its zero others?"
                )
        if ahead is not None and "velocity/ahead" in self._places:
            mean = float(self._column("velocity/ahead").mean())
            if not ahead[0] - 0.1 <= mean <= ahead[1] + 0.1:
                raise TwinaxError(
                    f"the reference goes ahead at {mean:.2f} m/s, but {ahead[0]:.2f} to {ahead[1]:.2f} m/s are "
                    "commanded; style and task would pull apart"
                )

    @property
    def _places(self) -> dict[str, int]:
        return {feature.name: place for place, feature in enumerate(self.layout)}

    def _column(self, name: str) -> np.ndarray:
        if name not in self._places:
            raise TwinaxError(f"the reference has no feature {name}; it has {', '.join(self._places)}")
        return self.frames[:, self._places[name]]

    def _check_layout(self, layout: Sequence[Feature]) -> None:
        wanted = [feature.name for feature in layout]
        have = [feature.name for feature in self.layout]
        if set(wanted) != set(have):
            missing, extra = sorted(set(wanted) - set(have)), sorted(set(have) - set(wanted))
            raise TwinaxError(f"the reference lacks the features {missing} and has {extra}, which the robot does not")
        for place, (theirs, ours) in enumerate(zip(self.layout, layout, strict=True)):
            if theirs.name != ours.name:
                raise TwinaxError(
                    f"the reference has {theirs.name} at place {place}, where the robot has {ours.name}; "
                    "bring its columns into the robot's order"
                )
            for part in ("unit", "frame"):
                if getattr(theirs, part) != getattr(ours, part):
                    raise TwinaxError(
                        f"{theirs.name} of the reference has the {part} '{getattr(theirs, part)}', and the robot's has "
                        f"'{getattr(ours, part)}'"
                    )

    def _check_contacts(self) -> None:
        for name, place in self._places.items():
            values = self.frames[:, place]
            if name.startswith("contact/") and values.min() == values.max():
                raise TwinaxError(
                    f"{name} is {values[0]:g} in all frames of the reference: its contacts were not measured"
                )

    def _check_speeds(self) -> None:
        """Speeds must be what the angles do."""
        inside = np.ones(len(self.frames) - 1, bool)
        inside[[start - 1 for start in self.starts if start]] = False
        for name in self._places:
            joint = name.removeprefix("speed/")
            if joint == name or f"angle/{joint}" not in self._places:
                continue
            moved = np.diff(self._column(f"angle/{joint}"))[inside] * self.rate
            speed = self._column(name)
            between = 0.5 * (speed[:-1] + speed[1:])[inside]
            if np.abs(moved).max() < 1e-3 and np.abs(between).max() < 1e-3:
                continue
            ratio = float(between @ moved / max(moved @ moved, 1e-12))
            if not 0.7 < ratio < 1.4:
                raise TwinaxError(
                    f"{name} of the reference is {ratio:.2f} times the change of angle/{joint} a second; is it in "
                    "other units, normalised, or of another joint?"
                )
