"""What the agent and a critic see of a state."""

from __future__ import annotations

import numpy as np

from twinax import ops
from twinax.envs.biped import _rotations as rotations
from twinax.envs.biped._rewards import Seen, constant, moving, wanted_heights
from twinax.types import Array, Float


def sense(seen: Seen) -> Float[Array, "worlds frame"]:
    """Gravity and gyro in the frame of the base, angles from home and velocities of the joints, feet on the floor, and
    the last action."""
    state, pose, settings = seen.state, seen.pose, seen.settings
    gravity = rotations.gravity_seen(pose.rotation)
    gyro = rotations.rotate_back(pose.rotation, pose.spin)
    angles = seen.angles - constant(seen.robot.home, state.qpos) - state.variation.offset
    sensed = ops.concat([gravity, gyro, angles, seen.speeds], 1)
    if settings.ranges.sensed:
        sensed = sensed + state.noise
    joints = len(seen.robot.joints)
    scale = np.array([1.0] * 3 + [settings.spin_scale] * 3 + [1.0] * joints + [settings.speed_scale] * joints)
    return ops.concat([sensed * constant(scale, sensed), seen.contacts, state.action], 1)


def observe(seen: Seen) -> Float[Array, "worlds observation"]:
    """What is sensed now, the command, the gait's clock (0 when told to stand), and what was sensed before."""
    state = seen.state
    clock = ops.stack([ops.sin(state.phase), ops.cos(state.phase)], -1) * moving(state)[:, None]
    worlds, frames, size = state.history.shape
    return ops.concat([sense(seen), state.command, clock, state.history.reshape(worlds, frames * size)], 1)


def observe_both(seen: Seen) -> tuple[Float[Array, "worlds observation"], Float[Array, "worlds critic"]]:
    """That, and what a critic sees besides: velocity and height of the base, heights of the feet and how far they are
    from those wanted (in decimetres), the push, and the floor's friction."""
    given, heights = observe(seen), seen.pose.foot_height
    more = [
        seen.velocity,
        seen.pose.position[:, 2:] - seen.robot.height,
        heights * 10,
        (heights - wanted_heights(seen.settings, seen.state)) * 10,
        seen.state.push / max(seen.settings.push_force[1], 1.0),
        seen.state.variation.friction[:, None],
    ]
    return given, ops.concat([given, *more], 1)
