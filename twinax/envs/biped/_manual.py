"""What someone must know who runs a policy on the robot itself."""

from __future__ import annotations

from typing import Any

from twinax.envs.biped._files import referenced, robot_file


def layout(world: Any) -> dict[str, int]:
    """Parts of an observation and their sizes; frames of a history follow, the oldest first."""
    joints, feet = len(world.body.joints), len(world.body.feet)
    frame = {
        "gravity": 3,
        "gyro": 3,
        "joint_angles": joints,
        "joint_velocities": joints,
        "feet_on_floor": feet,
        "last_action": joints,
    }
    before = {
        f"{name}_{steps}_steps_ago": size for steps in range(world.history, 0, -1) for name, size in frame.items()
    }
    return {**frame, "command": 3, "gait_clock": 2, **before}


def manual(world: Any) -> dict[str, Any]:
    """Names, scales and poses, in the order of the actuators; metres, radians, seconds."""
    robot = world.body
    file = robot_file(world.robot)
    return {
        "actions": list(robot.joints),
        "robot": {
            "name": robot.name,
            "mjcf": None if file is None else file.name,
            "mjcf_needs": [] if file is None else referenced(file),
            "joints": list(robot.joints),
            "home": robot.home,
            "low": robot.low,
            "high": robot.high,
            "kp": robot.kp,
            "kv": robot.kv,
            "force": robot.force,
            "feet": [list(foot) for foot in robot.feet],
            "base": robot.base,
        },
        "control": {
            "rate": 1 / world.seconds,
            "timestep": robot.timestep,
            "substeps": world.substeps,
            "target": "clip(home + scale * action, low, high), after filter and delay",
            "scale": world.scale,
            "filter": world.action_filter,
            "delay": world.action_delay,
        },
        "senses": {
            "gravity": f"direction of gravity in the frame of the {robot.base}; (0, 0, -1) upright",
            "gyro": f"rad/s in the frame of the {robot.base}, times {world.spin_scale:g}",
            "joint_angles": "rad, from home",
            "joint_velocities": f"rad/s, times {world.speed_scale:g}",
            "feet_on_floor": f"1 for a foot whose lowest point is below {world.contact_height:g} m",
            "last_action": "within [-1, 1], before filter and delay",
            "command": "velocity ahead and to the left in m/s, turning to the left in rad/s",
            "gait_clock": f"sine and cosine of a phase of {world.gait_period:g} s; 0 and 0 when the command is 0",
        },
    }
