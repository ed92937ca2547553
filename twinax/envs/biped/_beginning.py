"""Where the robot is when an episode begins: near home, its lowest foot on the floor."""

from __future__ import annotations

import numpy as np

from twinax import ops
from twinax.envs.biped import _rotations as rotations
from twinax.envs.biped._kinematics import HINGE, SLIDE, Kinematics
from twinax.envs.biped._rewards import constant
from twinax.envs.biped._robot import Robot
from twinax.envs.biped.settings import BipedSettings
from twinax.types import Array, Float

RESTING = 1e-6
"""The lowest point of the feet is set this far, in m, above the floor."""
Y, Z = 1, 2


def start_positions(
    settings: BipedSettings,
    robot: Robot,
    kinematics: Kinematics,
    uniform: Float[Array, "worlds joints"],
    tilt: Float[Array, "worlds 2"],
) -> Float[Array, "worlds nq"]:
    """Positions from uniform numbers: one for each joint, and two for roll and pitch."""
    worlds = uniform.shape[0]
    low, high = constant(robot.low, uniform), constant(robot.high, uniform)
    angles = constant(robot.home, uniform) + settings.reset_joints * (2 * uniform - 1)
    angles = ops.minimum(ops.maximum(angles, low), high)
    tilt = settings.reset_tilt * (2 * tilt - 1)
    # Each joint's place in qpos is a row of zeros and a one; the places differ from robot to robot.
    place = np.zeros((len(robot.joints), robot.model.nq))
    place[np.arange(len(robot.joints)), robot.columns] = 1.0
    root = np.where(place.any(0), 0.0, robot.home_qpos)
    qpos = ops.broadcast(constant(root, uniform), (worlds, robot.model.nq)) + angles @ constant(place, uniform)
    if robot.free:
        first = robot.root[0] + 3
        turned = rotations.from_roll_pitch(tilt[:, 0], tilt[:, 1])
        turned = rotations.after(qpos[:, first : first + 4], turned)
        qpos = ops.concat([qpos[:, :first], turned, qpos[:, first + 4 :]], 1)
    else:
        qpos = qpos + tilt[:, 1:] * constant(_root(robot, HINGE, Y), uniform)
    height = ops.min(kinematics(qpos, ops.zeros((worlds, robot.model.nv), uniform)).foot_height, -1)
    return qpos + (RESTING - height)[:, None] * constant(_root(robot, SLIDE, Z), uniform)


def _root(robot: Robot, kind: int, axis: int) -> np.ndarray:
    """Where in qpos the base slides along an axis or turns about it: a row with the sign of that, or zeros."""
    model, base = robot.model, robot.model.body(robot.base)
    row = np.zeros(model.nq)
    if robot.free:
        row[robot.root[0] + axis] = 1.0
        return row
    for joint in range(base.jntadr[0], base.jntadr[0] + base.jntnum[0]):
        if model.jnt_type[joint] == kind and abs(model.jnt_axis[joint, axis]) == 1:
            row[model.jnt_qposadr[joint]] = model.jnt_axis[joint, axis]
    return row
