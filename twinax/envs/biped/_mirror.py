"""The world seen in a mirror that swaps left and right: the robots are symmetric, and their rules must be."""

from __future__ import annotations

import numpy as np

from twinax import ops
from twinax.envs.biped._rewards import constant
from twinax.envs.biped._robot import Robot
from twinax.types import Array, Float


def mirror_joints(robot: Robot, values: Float[Array, "worlds joints"]) -> Float[Array, "worlds joints"]:
    """Actions, targets, angles or velocities of the joints, swapped.

    >>> from twinax.envs.biped import load_robot
    >>> mirror_joints(load_robot("planar"), np.arange(6.0)[None])
    array([[3., 4., 5., 0., 1., 2.]])
    """
    order, sign = robot.mirror
    return ops.take(values, ops.like(order, values), 1) * constant(sign, values)


def mirror_motion(
    robot: Robot, qpos: Float[Array, "worlds nq"], qvel: Float[Array, "worlds nv"]
) -> tuple[Float[Array, "worlds nq"], Float[Array, "worlds nv"]]:
    """Positions and velocities, swapped. A base on slides and hinges moves in the mirror's own plane and stays, and so
    does whatever is loose."""
    order, sign = robot.mirror
    places, signs = np.arange(robot.model.nq), np.ones(robot.model.nq)
    speed_places, speed_signs = np.arange(robot.model.nv), np.ones(robot.model.nv)
    if robot.free:
        position, speed = robot.root
        signs[[position + 1, position + 4, position + 6]] = -1.0  # y, and turns about x and z
        speed_signs[[speed + 1, speed + 3, speed + 5]] = -1.0
    places[robot.columns], signs[robot.columns] = robot.columns[order], sign
    speed_places[robot.speeds], speed_signs[robot.speeds] = robot.speeds[order], sign
    return (
        ops.take(qpos, ops.like(places, qpos), 1) * constant(signs, qpos),
        ops.take(qvel, ops.like(speed_places, qvel), 1) * constant(speed_signs, qvel),
    )
