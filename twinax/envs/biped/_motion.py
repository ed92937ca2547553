"""What a gait is told by: named features of a state, and a scripted gait made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from twinax import ops
from twinax.envs._reference import Feature, Reference
from twinax.envs.biped import _rotations as rotations
from twinax.envs.biped._biped import Biped
from twinax.envs.biped._footing import AXES, SIDES, check_footing
from twinax.errors import TwinaxError
from twinax.types import Array, Float

SAGITTAL = ("hip_pitch", "knee", "ankle_pitch")
"""Joints of a leg that move a foot ahead and up and keep its sole flat."""


def motion_layout(world: Biped) -> tuple[Feature, ...]:
    """The features of `motion_features`, in order."""
    joints = world.body.joints
    return (
        *(Feature(f"angle/{joint}", "rad") for joint in joints),
        *(Feature(f"speed/{joint}", "rad/s") for joint in joints),
        *(Feature(f"velocity/{axis}", "m/s", "heading") for axis in AXES),
        *(Feature(f"spin/{axis}", "rad/s", "heading") for axis in AXES),
        Feature("height", "m"),
        *(Feature(f"contact/{side}", "1") for side in SIDES[: len(world.body.feet)]),
    )


def motion_features(world: Biped, state: Any) -> Float[Array, "worlds features"]:
    """What a discriminator sees of a state."""
    seen = world.see(state)
    pose = seen.pose
    spin = rotations.in_heading(pose.rotation, pose.spin)
    return ops.concat([seen.angles, seen.speeds, seen.velocity, spin, pose.position[:, 2:], seen.contacts], 1)


def check_reference(world: Biped, reference: Reference, commanded: bool = True) -> None:
    """Refuse a reference that does not fit the robot, before anything is trained: by its names, units and rate, by what
    the robot's own geometry makes of its numbers, and, if `commanded`, by the velocity that the task asks for."""
    robot = world.body
    ranges = {joint: (low, high) for joint, low, high in zip(robot.joints, robot.low, robot.high, strict=True)}
    reference.check(motion_layout(world), 1 / world.seconds, ranges)
    check_footing(world, reference)
    if commanded:
        reference.check_velocity(world.command_ahead)


def scripted_gait(world: Biped, speed: float = 0.2, seconds: float = 8.0, lift: float | None = None) -> Reference:
    """Steps in place of the gait's clock, with the feet moved back under the body at a speed in m/s: reference motion
    that needs no recording. It is geometry, not physics: the base glides level, and soles stay flat.

    >>> from twinax.envs.biped import make_biped
    >>> world = make_biped("walk")
    >>> scripted_gait(world, seconds=1.28).frames.shape
    (64, 29)
    """
    robot = world.body
    names = [[f"{side}_{joint}" for joint in SAGITTAL] for side in SIDES]
    if missing := [name for leg in names for name in leg if name not in robot.joints]:
        raise TwinaxError(f"a scripted gait needs the joints {', '.join(missing)}, which {robot.name} lacks")
    period = round(world.gait_period / world.seconds)
    # Half a frame off the clock's zero, so that no frame falls on the moment of a touch-down.
    phase = 2 * math.pi * (np.arange(period) + 0.5) / period
    stride = speed * world.gait_period / 2
    high = world.swing_height if lift is None else lift
    legs = [phase, phase + math.pi]
    ahead = np.stack([-0.5 * stride * np.cos(p) for p in legs], 1)
    up = np.stack([high * np.maximum(np.sin(p), 0.0) for p in legs], 1)
    angles = _solved(world, ahead, up, names)
    speeds = (np.roll(angles, -1, 0) - np.roll(angles, 1, 0)) / (2 * world.seconds)
    zeros = np.zeros((period, 1))
    contacts = (up < world.contact_height).astype(float)
    base = [zeros + speed, zeros, zeros, zeros, zeros, zeros, zeros + robot.height]
    cycle = np.concatenate([angles, speeds, *base, contacts], 1)
    number = max(3, round(seconds / world.seconds))
    return Reference(motion_layout(world), np.resize(cycle, (number, cycle.shape[1])), 1 / world.seconds)


def _solved(world: Biped, ahead: np.ndarray, up: np.ndarray, names: list[list[str]]) -> np.ndarray:
    """Angles at which the feet are moved by so much from home, soles flat: Newton's method, all frames at once."""
    robot, frames = world.body, len(ahead)
    places = np.array([[robot.joints.index(name) for name in leg] for leg in names])
    angles = np.tile(robot.home, (frames, 1))

    def feet(angles: np.ndarray) -> np.ndarray:
        """(frame, foot, 3): ahead, up, and by how much the sole is tilted."""
        qpos = np.tile(robot.home_qpos, (len(angles), 1))
        qpos[:, robot.columns] = angles
        points = world.kinematics(qpos, np.zeros((len(angles), robot.model.nv))).points
        x, z = points[..., 0], points[..., 2]
        middle = x - x.mean(-1, keepdims=True)
        return np.stack([x.mean(-1), z.mean(-1), (middle * z).mean(-1) / (middle**2).mean(-1)], -1)

    wanted = feet(angles[:1]) + np.stack([ahead, up, np.zeros_like(ahead)], -1)
    wanted[..., 2] = 0.0
    small = 1e-6
    for _ in range(20):
        reached = feet(angles)
        if np.abs(reached - wanted).max() < 1e-10:
            return angles
        jacobian = np.empty((frames, 2, 3, 3))
        for k in range(3):
            moved = angles.copy()
            moved[:, places[:, k]] += small  # one joint of each leg: a foot feels its own leg alone
            jacobian[..., k] = (feet(moved) - reached) / small
        step = np.linalg.solve(jacobian, (wanted - reached)[..., None])[..., 0]
        for leg in range(2):
            angles[:, places[leg]] += step[:, leg]
    raise TwinaxError(
        f"{robot.name} cannot take steps of {2 * ahead.max():.3f} m with feet lifted by {up.max():.3f} m from home"
    )
