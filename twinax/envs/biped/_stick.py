"""A robot drawn from its geoms, from its side and from ahead: for machines without a GL library."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from twinax.envs._canvas import Canvas
from twinax.envs.biped._render_child import side_of
from twinax.envs.biped.mujoco_model import load_mujoco

HEIGHT, SIDE, FRONT = 320, 360, 240
"""Pixels."""
COLOURS = {"left": "#f97316", "right": "#3b82f6", "": "#94a3b8"}
SHADES = {"left": "#c2570c", "right": "#1d4ed8", "": "#64748b"}
"""Of the legs and the rest; the shade is the rim."""
RED, LINE, FLOOR = "#ef4444", "#64748b", "#e8ecf1"


def draw(robot: Any, qpos: np.ndarray, push: np.ndarray) -> np.ndarray:
    """A frame for each pose; both views follow the base."""
    mujoco, model = load_mujoco(), robot.model
    data, base = mujoco.MjData(model), model.body(robot.base).id
    pushed = model.body(robot.push_body).id
    shown = [k for k in range(model.ngeom) if model.geom_type[k] != mujoco.mjtGeom.mjGEOM_PLANE]
    sides = [side_of(model, body) for body in range(model.nbody)]
    reach, frames = 1.4 * _tall(model, data), []
    for pose, force in zip(qpos, push, strict=True):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        views = []
        # Seen from its right, x points to the right and what is further left is further away; from ahead, y does.
        for width, axis, away, name in ((SIDE, 0, 1, "side"), (FRONT, 1, 0, "front")):
            canvas = Canvas(width, HEIGHT, HEIGHT / reach, (data.xpos[base, axis], 0.4 * reach))
            _floor(canvas, data.xpos[base, axis], reach)
            depth = data.geom_xpos[:, away] * (-1 if away else 1)
            _bones(canvas, model, data, axis, sides)
            for k in sorted(shown, key=lambda k, depth=depth: depth[k]):
                _geom(canvas, mujoco, model, data, k, axis, sides[model.geom_bodyid[k]])
            if force[axis]:
                end = np.array([data.xipos[pushed, axis], data.xipos[pushed, 2]])
                canvas.arrow(end - [0.04 * force[axis], 0], end, 0.012, RED)
            canvas.text((8, 6), name, 12, "#94a3b8")
            views.append(canvas.array())
        frames.append(np.concatenate(views, 1))
    return np.stack(frames)


def _tall(model: Any, data: Any) -> float:
    """Height of the highest geom at rest."""
    mujoco = load_mujoco()
    mujoco.mj_resetData(model, data)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_kinematics(model, data)
    moves = model.geom_bodyid != 0
    return float((data.geom_xpos[moves, 2] + model.geom_rbound[moves]).max())


def _floor(canvas: Canvas, middle: float, reach: float) -> None:
    canvas.polygon(
        [(middle - reach, 0), (middle + reach, 0), (middle + reach, -reach), (middle - reach, -reach)], FLOOR
    )
    canvas.line([(middle - reach, 0), (middle + reach, 0)], 0.004, LINE)
    for tenth in range(int(np.floor((middle - reach) * 10)), int(np.ceil((middle + reach) * 10)) + 1):
        whole = tenth % 5 == 0
        canvas.line([(tenth / 10, 0), (tenth / 10, -0.025 if whole else -0.012)], 0.003, LINE)
        if whole:
            canvas.label((tenth / 10, -0.035), f"{tenth / 10:g} m")


def _bones(canvas: Canvas, model: Any, data: Any, axis: int, sides: list[str]) -> None:
    """Lines between bodies, so that nothing floats where a body has no geom."""
    for body in range(1, model.nbody):
        parent = int(model.body_parentid[body])
        if parent:
            canvas.line(data.xpos[[parent, body]][:, [axis, 2]], 0.02, SHADES[sides[body]])


def _geom(canvas: Canvas, mujoco: Any, model: Any, data: Any, k: int, axis: int, side: str) -> None:
    """Its outline seen along the other level axis, with a rim."""
    flat, kinds = [axis, 2], mujoco.mjtGeom
    centre, turn, size = data.geom_xpos[k], data.geom_xmat[k].reshape(3, 3), model.geom_size[k]
    kind = model.geom_type[k]
    for grow, colour in ((0.004, SHADES[side]), (0.0, COLOURS[side])):
        if kind == kinds.mjGEOM_SPHERE:
            canvas.circle(centre[flat], size[0] + grow, colour)
        elif kind == kinds.mjGEOM_CAPSULE:
            ends = np.stack([centre + sign * size[1] * turn[:, 2] for sign in (-1, 1)])
            canvas.line(ends[:, flat], 2 * (size[0] + grow), colour)
        else:
            # Boxes exactly, other kinds by the box around them.
            middle, half = model.geom_aabb[k, :3], model.geom_aabb[k, 3:] + grow
            corners = centre + (middle + half * np.array(list(product((-1, 1), repeat=3)))) @ turn.T
            canvas.polygon(_hull(corners[:, flat]), colour)


def _hull(points: np.ndarray) -> np.ndarray:
    """The corners around points in a plane, in order (Andrew's walk along both sides)."""

    def half(ordered: list[np.ndarray]) -> list[np.ndarray]:
        corners: list[np.ndarray] = []
        for point in ordered:
            while len(corners) > 1:
                (ax, ay), (bx, by) = corners[-1] - corners[-2], point - corners[-2]
                if ax * by - ay * bx > 0:
                    break
                corners.pop()
            corners.append(point)
        return corners[:-1]

    ordered = sorted(points, key=lambda p: (p[0], p[1]))
    return np.array(half(ordered) + half(ordered[::-1]))
