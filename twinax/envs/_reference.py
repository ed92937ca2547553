"""Reference motion: frames of named features, and the checks that find a mismatch before a training does."""

from __future__ import annotations

import zipfile
import zlib
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

    def __post_init__(self):
        frames, width = np.asarray(self.frames), len(self.layout)
        if frames.ndim != 2 or frames.shape[1] != width or frames.dtype.kind not in "fiub":
            raise TwinaxError(
                f"frames of a reference are {frames.dtype} of shape {frames.shape}; they must be numbers of shape "
                f"(frames, {width}), one for each feature of its layout"
            )
        if np.ndim(self.rate) or not 0 < self.rate < np.inf:
            raise TwinaxError(f"the rate of a reference is {self.rate}; it must be one number above 0, frames a second")
        starts = list(self.starts)
        if starts[:1] != [0] or starts != sorted(set(starts)) or starts[-1] >= max(len(frames), 1):
            raise TwinaxError(
                f"the clips of a reference start at frames {starts}; they must begin with 0, rise, and stay below its "
                f"{len(frames)} frames"
            )

    def clips(self) -> list[slice]:
        """The frames of each clip."""
        ends = (*self.starts[1:], len(self.frames))
        return [slice(start, end) for start, end in zip(self.starts, ends, strict=True)]

    def columns(self, *names: str) -> np.ndarray:
        """Features by name: (frame, feature)."""
        return np.stack([self._column(name) for name in names], 1)

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
        columns: dict[str, Any] = {
            part: np.array([getattr(f, part) for f in self.layout]) for part in ("name", "unit", "frame")
        }
        np.savez(path, frames=self.frames, rate=self.rate, starts=np.array(self.starts), **columns)

    @classmethod
    def load(cls, path: Path | str) -> Reference:
        """From a file that `save` wrote."""
        parts = _read(path)
        columns = [np.atleast_1d(parts[name]) for name in ("name", "unit", "frame")]
        if len({len(column) for column in columns}) > 1:
            sizes = ", ".join(str(len(column)) for column in columns)
            raise TwinaxError(f"{path} has {sizes} entries of name, unit and frame; it must have as many of each")
        if parts["rate"].size != 1 or parts["rate"].dtype.kind not in "fiu":
            kind, shape = parts["rate"].dtype, parts["rate"].shape
            raise TwinaxError(f"the rate in {path} is {kind} of shape {shape}; it must be one number, frames a second")
        if parts["starts"].ndim != 1 or parts["starts"].dtype.kind not in "iu":
            kind, shape = parts["starts"].dtype, parts["starts"].shape
            raise TwinaxError(f"the starts in {path} are {kind} of shape {shape}; they must be a row of whole numbers")
        layout = tuple(Feature(str(n), str(u), str(f)) for n, u, f in zip(*columns, strict=True))
        return cls(layout, parts["frames"], parts["rate"].item(), tuple(parts["starts"].tolist()))

    # Checks

    def check(
        self,
        layout: Sequence[Feature],
        rate: float,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        """Refuse what a discriminator would tell from the robot's steps by something other than motion.

        `layout` and `rate` are the robot's; `ranges` are limits of angles by joint, in rad.
        """
        self._check_layout(layout)
        if abs(self.rate - rate) > 1e-6 * rate:
            raise TwinaxError(f"the reference has {self.rate:g} frames a second and the robot {rate:g}; resample it")
        if max(clip.stop - clip.start for clip in self.clips()) < 3:
            number, clips = len(self.frames), len(self.starts)
            raise TwinaxError(f"the reference has {number} frames in {clips} clips; it needs at least 3 in one of them")
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

    def check_velocity(self, ahead: tuple[float, float]) -> None:
        """Refuse a style that pulls away from the velocities ahead that are commanded; m/s."""
        mean = float(self._column("velocity/ahead").mean())
        if not ahead[0] - 0.1 <= mean <= ahead[1] + 0.1:
            raise TwinaxError(
                f"the reference goes ahead at {mean:.2f} m/s, but {ahead[0]:.2f} to {ahead[1]:.2f} m/s are commanded; "
                "style and task would pull apart"
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
        for name in self._places:
            if not name.startswith("contact/"):
                continue
            values = self._column(name)
            if (others := values[(values != 0) & (values != 1)]).size:
                raise TwinaxError(f"{name} of the reference is {others[0]:g}, but contacts are 0 or 1; is it a force?")
            if values.min() == values.max():
                raise TwinaxError(
                    f"{name} is {values[0]:g} in all frames of the reference: its contacts were not measured"
                )

    def _check_speeds(self) -> None:
        """Speeds must be what the angles do."""
        for name in self._places:
            joint = name.removeprefix("speed/")
            if joint == name or f"angle/{joint}" not in self._places:
                continue
            moved, told = self._moved(f"angle/{joint}", name)
            if max(np.sqrt((moved**2).mean()), np.sqrt((told**2).mean())) < STILL:
                continue
            ratio = float(told @ moved / max(moved @ moved, 1e-12))
            if not 0.7 < ratio < 1.4:
                raise TwinaxError(
                    f"{name} of the reference is {ratio:.2f} times the change of angle/{joint} a second; is it in "
                    "other units, normalised, or of another joint?"
                )

    def _moved(self, angle: str, speed: str) -> tuple[np.ndarray, np.ndarray]:
        """How far an angle has moved within `WINDOW`, and how far its speed says it has."""
        pieces: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for clip in self.clips():
            x, v = self._column(angle)[clip], self._column(speed)[clip]
            window = max(1, min(round(WINDOW * self.rate), len(x) - 1))
            path = np.concatenate([[0.0], np.cumsum(0.5 * (v[1:] + v[:-1]))]) / self.rate
            pieces[0].append(x[window:] - x[:-window])
            pieces[1].append(path[window:] - path[:-window])
        moved, told = (np.concatenate(part) for part in pieces)
        return moved, told


# Over a few frames noise of a recording counts for little; what moves by less than that is called still.
WINDOW = 0.1
"""Seconds over which speeds are held against angles."""
STILL = 0.03
"""rad."""


def _read(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays of a file of reference motion; objects are never loaded."""
    names = ("frames", "rate", "starts", "name", "unit", "frame")
    try:
        with open(path, "rb") as file:
            if file.read(2) != b"PK":
                raise TwinaxError(f"{path} is not a file of reference motion: it is no npz; write it by Reference.save")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                if missing := [name for name in names if name not in archive]:
                    raise TwinaxError(f"{path} is not a file of reference motion: it has no {', '.join(missing)}")
                return {name: archive[name] for name in names}
    except OSError as error:
        raise TwinaxError(f"the reference motion {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise TwinaxError(
            f"{path} is not a file of reference motion: it is cut off, damaged, or holds Python objects; write it by "
            "Reference.save"
        ) from error
