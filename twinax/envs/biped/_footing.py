"""Whether frames are motion of this robot: its own geometry says what its feet do, and where the base then is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twinax.envs._reference import Reference
from twinax.envs.biped._biped import Biped
from twinax.errors import TwinaxError

SIDES = ("left", "right")
AXES = ("ahead", "left", "up")
# Recorded motion fits a robot roughly: retargeting slides feet, frames do not say how the base tilts, and feet roll.
# What is looked for is wrong by more: other units, axes, joints or sides.
FLOOR = 0.1
"""Distance of the lowest foot from the floor, as a part of the base's height at home."""
LOWER = 0.7
"""Share of frames in which the one foot on the floor is the lower one."""
TILT = 0.35
"""Of the sole of a foot on the floor, seen from the base; rad."""
SLIP, SLIP_PART = 0.05, 0.35
"""Speed of a foot on the floor: in m/s, and besides as a part of the base's."""
TURN = math.pi
"""How far the base may turn about the vertical within a second; rad."""


@dataclass(frozen=True)
class Footing:
    """What the frames say of the feet, as if the base were upright. Axes: frame, foot, and perhaps a vector."""

    height: np.ndarray
    """Of each foot's lowest point above the floor; m."""
    velocity: np.ndarray
    """Of that point, as seen from the base, in the heading's frame; m/s."""
    tilt: np.ndarray
    """Slope of the sole, ahead; rad."""
    down: np.ndarray
    """Whether the reference calls the foot in contact."""


def footing(world: Biped, reference: Reference) -> Footing:
    """The frames' angles and speeds, put through the robot's kinematics."""
    robot, frames = world.body, reference.frames
    qpos, qvel = np.tile(robot.home_qpos, (len(frames), 1)), np.zeros((len(frames), robot.model.nv))
    qpos[:, robot.columns] = reference.columns(*(f"angle/{joint}" for joint in robot.joints))
    qvel[:, robot.speeds] = reference.columns(*(f"speed/{joint}" for joint in robot.joints))
    pose = world.kinematics(qpos, qvel)
    arm = pose.points - pose.position[:, None, None]
    lowest = arm[..., 2].argmin(-1)[..., None, None]
    reach, moved = (np.take_along_axis(x, lowest, 2)[:, :, 0] for x in (arm, pose.point_velocity))
    spin = reference.columns(*(f"spin/{axis}" for axis in AXES))
    middle = arm[..., 0] - arm[..., 0].mean(-1, keepdims=True)
    slope = (middle * arm[..., 2]).mean(-1) / np.maximum((middle**2).mean(-1), 1e-9)
    return Footing(
        height=reference.columns("height") + reach[..., 2],
        velocity=moved + np.cross(spin[:, None], reach),
        tilt=np.arctan(slope),
        down=reference.columns(*(f"contact/{side}" for side in SIDES[: len(robot.feet)])) > 0.5,
    )


def check_footing(world: Biped, reference: Reference) -> None:
    """Refuse frames with the right names whose numbers are not this robot's; `Reference.check` comes first."""
    feet = footing(world, reference)
    _check_height(world, reference, feet)
    _check_contacts(feet)
    _check_soles(feet)
    _check_spin(world, reference)
    _check_velocity(reference, feet)


def _check_height(world: Biped, reference: Reference, feet: Footing) -> None:
    above, home = float(np.median(feet.height.min(1))), world.body.height
    if abs(above) > FLOOR * home:
        height = float(np.median(reference.columns("height")))
        raise TwinaxError(
            f"height of the reference is {height:.2f} m, which puts its lower foot {above:.2f} m above the floor, and "
            f"{world.body.name} is {home:.2f} m high at home; is it in other units, or of another body?"
        )


def _check_contacts(feet: Footing) -> None:
    one = feet.down.sum(1) == 1
    if one.any() and feet.down.shape[1] > 1:
        lower = np.take_along_axis(feet.down, feet.height.argmin(1)[:, None], 1)[one, 0].mean()
        if lower < LOWER:
            raise TwinaxError(
                f"in {lower:.0%} of the reference's frames with one foot in contact that foot is the lower one, and it "
                f"must be in {LOWER:.0%}; are contacts inverted, or left and right exchanged?"
            )
        return
    for side, height, down in zip(SIDES, feet.height.T, feet.down.T, strict=False):
        on, off = height[down].mean(), height[~down].mean()
        if on > off:
            raise TwinaxError(
                f"the {side} foot of the reference is {on:.3f} m high in contact and {off:.3f} m without; are contacts "
                "inverted?"
            )


def _check_soles(feet: Footing) -> None:
    for side, tilt, down in zip(SIDES, feet.tilt.T, feet.down.T, strict=False):
        middle = float(np.median(tilt[down]))
        if abs(middle) > TILT:
            raise TwinaxError(
                f"the sole of the reference's {side} foot is tilted by {middle:.2f} rad while it is in contact, more "
                f"than {TILT}; are joints of the leg exchanged, or are their zeros others?"
            )


def _check_spin(world: Biped, reference: Reference) -> None:
    """A base that tilts too far has fallen, so rolling and pitching come back."""
    for axis, most in zip(AXES, (world.max_tilt, world.max_tilt, TURN), strict=True):
        turned = max(_turned(reference, axis, clip) for clip in reference.clips())
        if turned > most:
            raise TwinaxError(
                f"spin/{axis} of the reference turns the base by {turned:.2f} rad within a second, more than "
                f"{most:.2f}; is it in deg/s?"
            )


def _turned(reference: Reference, axis: str, clip: slice) -> float:
    """The farthest that the base turns about an axis within a second of a clip; rad."""
    path = np.cumsum(reference.columns(f"spin/{axis}")[clip, 0]) / reference.rate
    lags = range(1, min(round(reference.rate) + 1, len(path)))
    return max((float(np.abs(path[lag:] - path[:-lag]).max()) for lag in lags), default=0.0)


def _check_velocity(reference: Reference, feet: Footing) -> None:
    """A foot in contact stays where it is, so seen from the base it goes back as fast as the base goes."""
    base = reference.columns(*(f"velocity/{axis}" for axis in AXES))
    for foot, side in enumerate(SIDES[: feet.down.shape[1]]):
        down = feet.down[:, foot]
        told, walked = base[down].mean(0), -feet.velocity[down, foot].mean(0)
        allowed = SLIP + SLIP_PART * max(np.linalg.norm(told), np.linalg.norm(walked))
        worst = int(np.abs(told - walked).argmax())
        if np.linalg.norm(told - walked) > allowed:
            raise TwinaxError(
                f"velocity/{AXES[worst]} of the reference is {told[worst]:.2f} m/s while its {side} foot is in "
                f"contact, but that leg then walks at {walked[worst]:.2f} m/s; is the velocity in another frame or "
                "unit, or are joints exchanged?"
            )
