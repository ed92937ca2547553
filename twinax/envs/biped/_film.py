"""A film of a robot: rendered by MuJoCo where a GL library works, otherwise drawn from its geoms."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs._canvas import captioned
from twinax.envs.biped._stick import draw
from twinax.envs.biped.mujoco_model import load_mujoco
from twinax.episode import View, frame_places

SIZE = (400, 320)
LIBRARIES = ("egl", "osmesa")
"""GL libraries that need no screen, in the order in which they are tried."""
_OFF = ("0", "disable", "disabled", "off", "false")


def view(world: Any, states: Any) -> View:
    """Frames, steps and speeds of states that follow each other."""
    seen = world.see(states)
    velocity, command = seen.velocity[:, 0], states.command[:, 0]
    places, shown = frame_places(len(velocity), world.seconds)
    qpos, push = states.qpos[places].astype(np.float64), states.push[places].astype(np.float64)
    frames = rendered(world.body, qpos, push)
    drawn = "drawn from the robot's geoms, because no GL library works" if frames is None else "rendered by MuJoCo"
    frames = draw(world.body, qpos, push) if frames is None else frames
    words = [
        f"{(k + 1) * world.seconds:4.1f} s     ahead {velocity[k]:+.2f} m/s     wanted {command[k]:+.2f} m/s"
        for k in places
    ]
    height = seen.pose.position[:, 2]
    tracks = {
        "height of the base, m": {"robot": height, "at home": np.full_like(height, world.body.height)},
        "velocity ahead, m/s": {"robot": velocity, "command": command},
    }
    if np.any(states.push):
        tracks["push, N"] = {"ahead": states.push[:, 0], "to the left": states.push[:, 1]}
    walks = bool(np.any(command))
    return View(
        frames=captioned(frames, words),
        frame_seconds=shown,
        drawn=drawn,
        # Two steps with each foot, after the robot has got going.
        strip=(2.0, 2.0 + 2 * world.gait_period) if walks else None,
        bars={"feet on the floor": {name: seen.contacts[:, k] > 0 for k, name in enumerate(foot_names(world.body))}},
        tracks=tracks,
    )


def foot_names(robot: Any) -> list[str]:
    """What the names of a foot's points have in common, such as left_foot."""
    names = [os.path.commonprefix(foot).rstrip("_-.0123456789") for foot in robot.feet]
    return [name.replace("_", " ") or f"foot {k}" for k, name in enumerate(names)]


def rendered(robot: Any, qpos: np.ndarray, push: np.ndarray) -> np.ndarray | None:
    """Frames by MuJoCo in a process of its own, or None where no GL library works."""
    mujoco = load_mujoco()
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if chosen in _OFF:
        return None
    base = base_positions(robot, qpos)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        mujoco.mj_saveModel(robot.model, str(directory / "model.mjb"))
        np.savez(
            directory / "poses.npz",
            qpos=qpos,
            push=push,
            look=_smooth(base) * [1, 1, 0] + [0, 0, 0.85 * robot.height],
            size=np.array(SIZE),
            distance=np.array(3.0 * robot.height),
            push_body=np.array(robot.model.body(robot.push_body).id),
        )
        for library in (chosen,) if chosen else LIBRARIES:
            if _child(directory, library):
                return np.load(directory / "frames.npy", allow_pickle=False)
    return None


def _child(directory: Path, library: str) -> bool:
    """Whether it wrote the frames."""
    program = Path(__file__).with_name("_render_child.py")
    # -P: the package's own files must not be found in place of modules that the child imports.
    command = [sys.executable, "-P", str(program), str(directory)]
    environment = {**os.environ, "MUJOCO_GL": library}
    try:
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and (directory / "frames.npy").is_file()


def base_positions(robot: Any, qpos: np.ndarray) -> np.ndarray:
    """Of the base in each pose."""
    mujoco, body = load_mujoco(), robot.model.body(robot.base).id
    data, positions = mujoco.MjData(robot.model), []
    for pose in qpos:
        data.qpos[:] = pose
        mujoco.mj_kinematics(robot.model, data)
        positions.append(data.xpos[body].copy())
    return np.array(positions)


def _smooth(path: np.ndarray, half: int = 6) -> np.ndarray:
    """A running mean: a camera that follows every step makes people seasick."""
    padded = np.concatenate([np.repeat(path[:1], half, 0), path, np.repeat(path[-1:], half, 0)])
    return np.stack([np.convolve(column, np.full(2 * half + 1, 1 / (2 * half + 1)), "valid") for column in padded.T], 1)
