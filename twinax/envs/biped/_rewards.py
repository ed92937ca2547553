"""Terms of the reward: each a function of what is known after a step, in its own unit; weights give the sign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.envs.biped import _rotations as rotations
from twinax.envs.biped._kinematics import Pose
from twinax.envs.biped._robot import Robot
from twinax.envs.biped._state import BipedState
from twinax.envs.biped.settings import BipedSettings
from twinax.types import Array, Float


@dataclass(frozen=True)
class Seen:
    """A state with what follows from it."""

    settings: BipedSettings
    robot: Robot
    state: BipedState
    pose: Pose
    target: Float[Array, "worlds joints"]
    """What the servos were told; rad."""

    @property
    def angles(self) -> Float[Array, "worlds joints"]:
        """rad."""
        return ops.take(self.state.qpos, ops.like(self.robot.columns, self.state.qpos), 1)

    @property
    def speeds(self) -> Float[Array, "worlds joints"]:
        """rad/s."""
        return ops.take(self.state.qvel, ops.like(self.robot.speeds, self.state.qvel), 1)

    @property
    def torque(self) -> Float[Array, "worlds joints"]:
        """What the servos exert now, if nothing varies; N m."""
        kp, kv, force = (constant(x, self.target) for x in (self.robot.kp, self.robot.kv, self.robot.force))
        wanted = kp * (self.target - self.angles) - kv * self.speeds
        return ops.minimum(ops.maximum(wanted, -force), force)

    @property
    def velocity(self) -> Float[Array, "worlds 3"]:
        """Of the base, as seen from where it looks; m/s."""
        return rotations.in_heading(self.pose.rotation, self.pose.velocity)

    @property
    def contacts(self) -> Float[Array, "worlds feet"]:
        """1 for a foot on the floor."""
        return ops.cast(self.pose.foot_height < self.settings.contact_height, self.pose.position)


def moving(state: BipedState) -> Float[Array, " worlds"]:
    """1 where the command is to move."""
    return ops.cast(ops.sum(ops.abs(state.command), -1) > 0, state.command)


def wanted_heights(settings: BipedSettings, state: BipedState) -> Float[Array, "worlds feet"]:
    """Of the feet, by the gait's clock: half a sine each, half a turn apart."""
    swing = ops.sin(state.phase) * moving(state) * settings.swing_height
    return ops.relu(ops.stack([swing, -swing], -1))


def _squares(x: Any) -> Any:
    return ops.sum(x * x, -1)


def _bell(error: Any, width: float) -> Any:
    return ops.exp(-error / width**2)


def _velocity(seen: Seen) -> Any:
    return _bell(_squares(seen.velocity[:, :2] - seen.state.command[:, :2]), seen.settings.velocity_width)


def _yaw(seen: Seen) -> Any:
    return _bell(ops.square(seen.pose.spin[:, 2] - seen.state.command[:, 2]), seen.settings.yaw_width)


def _height(seen: Seen) -> Any:
    return ops.square(seen.pose.position[:, 2] - seen.robot.height)


def _feet_phase(seen: Seen) -> Any:
    wanted = wanted_heights(seen.settings, seen.state)
    return _bell(_squares(seen.pose.foot_height - wanted), seen.settings.phase_width)


def _foot_slip(seen: Seen) -> Any:
    speed = ops.mean(_squares(seen.pose.point_velocity[..., :2]), -1)
    return ops.sum(seen.contacts * speed, -1)


TERMS: dict[str, Callable[[Seen], Any]] = {
    "alive": lambda seen: seen.state.phase * 0 + 1,
    "velocity": _velocity,
    "yaw": _yaw,
    "orientation": lambda seen: _squares(seen.pose.rotation[:, 2, :2]),
    "height": _height,
    "spin": lambda seen: _squares(seen.pose.spin[:, :2]),
    "feet_phase": _feet_phase,
    "foot_slip": _foot_slip,
    "action_rate": lambda seen: _squares(seen.state.action - seen.state.previous_action),
    "torque": lambda seen: _squares(seen.torque),
    "energy": lambda seen: ops.sum(ops.abs(seen.torque * seen.speeds), -1),
    "pose": lambda seen: _squares(seen.angles - constant(seen.robot.home, seen.target)),
}
"""velocity, yaw and feet_phase are between 0 and 1; orientation is the sine of the tilt, squared; the rest are m^2,
rad^2/s^2, m^2/s^2, 1, (N m)^2, W and rad^2."""


def constant(x: np.ndarray, reference: Array) -> Array:
    """A constant of the robot in the reference's framework and dtype."""
    return ops.cast(ops.like(x, reference), reference)
