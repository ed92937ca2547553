"""A process of its own that renders a robot with MuJoCo: whatever a GL library does, it does not do to a training.

    python _render_child.py DIRECTORY      reads model.mjb and poses.npz there, writes frames.npy

It is run as a file, and imports nothing of the package.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

AZIMUTH = 125.0
"""Where the camera looks, in degrees: the robot comes towards it, and passes to the right."""
COLOURS = {"left": (0.98, 0.45, 0.09, 1.0), "right": (0.23, 0.51, 0.96, 1.0), "": (0.58, 0.64, 0.72, 1.0)}
TILE = 0.25
"""Metres of a tile of the floor: without tiles one would not see the robot move."""


def main(directory: Path) -> None:
    mujoco: Any = importlib.import_module("mujoco")
    model = mujoco.MjModel.from_binary_path(str(directory / "model.mjb"))
    with np.load(directory / "poses.npz", allow_pickle=False) as file:
        poses = {name: file[name] for name in file.files}
    width, height = (int(x) for x in poses["size"])
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height
    model.vis.quality.shadowsize, model.vis.quality.offsamples = 1024, 4
    _dress(mujoco, model)
    data = mujoco.MjData(model)
    camera = mujoco.MjvCamera()
    camera.distance, camera.azimuth, camera.elevation = float(poses["distance"]), AZIMUTH, -12.0
    frames = []
    with mujoco.Renderer(model, height, width) as renderer:
        for qpos, look, push in zip(poses["qpos"], poses["look"], poses["push"], strict=True):
            data.qpos[:] = qpos
            mujoco.mj_forward(model, data)
            camera.lookat[:] = look
            renderer.update_scene(data, camera)
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
            _surroundings(mujoco, renderer.scene, look)
            if np.any(push):
                _arrow(mujoco, renderer.scene, data.xipos[int(poses["push_body"])], push)
            frames.append(renderer.render().copy())
    np.save(directory / "frames.npy", np.stack(frames), allow_pickle=False)


def _dress(mujoco: Any, model: Any) -> None:
    """Legs in two colours and soft light; the floor is drawn by `_surroundings`."""
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:], model.vis.headlight.specular[:] = 0.45, 0.4, 0.1
    model.light_diffuse[:], model.light_specular[:] = 0.5, 0.1
    model.stat.extent, model.vis.map.znear, model.vis.map.zfar = 1.0, 0.05, 40.0
    for geom in range(model.ngeom):
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE:
            model.geom_rgba[geom, 3] = 0.0
        elif model.geom_matid[geom] < 0:
            model.geom_rgba[geom] = COLOURS[side_of(model, int(model.geom_bodyid[geom]))]


def side_of(model: Any, body: int) -> str:
    """left or right, by its name and those of the bodies above."""
    while body > 0:
        for side in ("left", "right"):
            if side in model.body(body).name:
                return side
        body = int(model.body_parentid[body])
    return ""


def _surroundings(mujoco: Any, scene: Any, look: np.ndarray) -> None:
    """A floor with tiles around the robot, and a wall of light far behind it."""
    place = np.array([*look[:2], -0.013])
    _box(mujoco, scene, (30, 30, 0.01), place, (0.86, 0.88, 0.91))
    x, y = np.round(look[:2] / TILE).astype(int)
    for i in range(x - 7, x + 8):
        for j in range(y - 7, y + 8):
            if (i + j) % 2 == 0:
                place = np.array([i * TILE, j * TILE, -0.0015])
                _box(mujoco, scene, (TILE / 2, TILE / 2, 0.0015), place, (0.70, 0.74, 0.80))
    turn = np.deg2rad(AZIMUTH)
    ahead, side = np.array([np.cos(turn), np.sin(turn), 0]), np.array([-np.sin(turn), np.cos(turn), 0])
    frame = np.stack([side, [0, 0, 1], np.cross(side, [0, 0, 1])], 1)
    wall = _box(mujoco, scene, (40, 40, 0.1), np.array([*look[:2], 0]) + 12 * ahead, (0.95, 0.97, 0.99), frame)
    wall.emission = 1.0


def _box(mujoco: Any, scene: Any, half: Any, place: np.ndarray, colour: Any, turn: Any = None) -> Any:
    geom = scene.geoms[scene.ngeom]
    kind, frame = mujoco.mjtGeom.mjGEOM_BOX, np.eye(3) if turn is None else turn
    mujoco.mjv_initGeom(geom, kind, np.array(half, float), place, frame.ravel(), np.array([*colour, 1.0], np.float32))
    geom.specular, geom.shininess = 0.0, 0.0
    scene.ngeom += 1
    return geom


def _arrow(mujoco: Any, scene: Any, place: np.ndarray, push: np.ndarray) -> None:
    """From where the push comes to where it meets the robot: 4 cm for a newton."""
    geom, colour = scene.geoms[scene.ngeom], np.array([0.94, 0.27, 0.27, 1.0], np.float32)
    kind = mujoco.mjtGeom.mjGEOM_ARROW
    mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.eye(3).ravel(), colour)
    start = place - 0.04 * np.array([push[0], push[1], 0.0])
    mujoco.mjv_connector(geom, kind, 0.012, start, place)
    scene.ngeom += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
