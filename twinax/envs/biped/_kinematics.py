"""Where the base and the points of the feet are, and how they move, from joint positions and velocities.

The tree of bodies is cut into links of one joint each; a link's frame has its origin on the joint's axis. Links of the
same depth and kind are walked at once, so both legs cost as much as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.envs.biped import _rotations as rotations
from twinax.envs.biped._robot import Robot
from twinax.errors import TwinaxError
from twinax.types import Array, Float

FREE, BALL, SLIDE, HINGE = range(4)
"""As MuJoCo numbers them."""
UNIT = np.eye(3)[..., None, None]
UNIT.flags.writeable = False


@tree.record
class Pose:
    """In the frame of the world; metres, radians, seconds."""

    position: Float[Array, "worlds 3"]
    """Of the base."""
    rotation: Float[Array, "worlds 3 3"]
    velocity: Float[Array, "worlds 3"]
    spin: Float[Array, "worlds 3"]
    """Angular velocity."""
    points: Float[Array, "worlds feet points 3"]
    """Lowest points of the feet's spheres."""
    point_velocity: Float[Array, "worlds feet points 3"]
    """Of the spheres' centres."""

    @property
    def foot_height(self) -> Float[Array, "worlds feet"]:
        """Of each foot's lowest point."""
        return ops.min(self.points[..., 2], -1)


@dataclass(frozen=True, eq=False)
class _Level:
    """Links of one depth and kind; the parts of vectors come first, and a last axis of 1 stands for the worlds."""

    kind: int
    parents: np.ndarray
    """Places among the links found before; the fixed world is number 0."""
    offset: np.ndarray
    """Origin in the parent's frame."""
    turn: np.ndarray
    """Rotation in the parent's frame, before the joint moves."""
    axis: np.ndarray
    once: np.ndarray
    """Matrix K of the cross product with the axis. A turn by q is 1 + sin q K + (1 - cos q) K^2."""
    twice: np.ndarray
    """K^2."""
    columns: np.ndarray
    speeds: np.ndarray
    zero: np.ndarray
    """Position at which the joint has not moved."""


class Kinematics:
    """The walk for one robot.

    >>> from twinax.envs.biped import load_robot
    >>> robot = load_robot("biped")
    >>> pose = Kinematics(robot)(robot.home_qpos[None], np.zeros((1, 16)))
    >>> round(float(pose.position[0, 2]), 3), abs(pose.foot_height).max() < 1e-6
    (0.456, np.True_)
    """

    def __init__(self, robot: Robot):
        links = _Links(robot)
        self.levels = links.levels
        base, place, turn = links.attach(robot.model.body(robot.base).id)
        self.base = _constant(np.array([base], np.int32))
        self.base_offset, self.base_turn = _parts_first([place]), _parts_first([turn])
        geoms = [robot.model.geom(geom).id for foot in robot.feet for geom in foot]
        attached = [links.attach(int(robot.model.geom_bodyid[geom])) for geom in geoms]
        places = [p + t @ robot.model.geom_pos[g] for (_, p, t), g in zip(attached, geoms, strict=True)]
        self.point_links = _constant(np.array([link for link, _, _ in attached], np.int32))
        self.point_offset = _parts_first(places)
        self.radius = _parts_first([[0, 0, robot.model.geom_size[geom, 0]] for geom in geoms])
        self.feet = (len(robot.feet), len(robot.feet[0]))

    def __call__(self, qpos: Float[Array, "worlds nq"], qvel: Float[Array, "worlds nv"]) -> Pose:
        # Inside, worlds come last and the parts of a vector first: long rows to work on, in every framework.
        worlds = qpos.shape[0]
        columns, speeds = ops.swap_last(qpos), ops.swap_last(qvel)
        none = ops.zeros((3, 1, worlds), qpos)
        world = ops.broadcast(_as(UNIT, qpos), (3, 3, 1, worlds))
        links = (none, world, none, none)
        for level in self.levels:
            moved = self._move(level, links, columns, speeds)
            links = tuple(ops.concat(pair, -2) for pair in zip(links, moved, strict=True))
        base = ops.like(self.base, qpos)
        origin, frame, velocity, spin = (ops.take(x, base, x.ndim - 2) for x in links)
        arm = _rotate(frame, _as(self.base_offset, qpos))
        rotation = _product(frame, _as(self.base_turn, qpos))
        points, point_velocity = self._points(links, qpos)
        return Pose(
            position=_worlds_first(origin + arm)[:, 0],
            rotation=_worlds_first(rotation.reshape(9, 1, worlds)).reshape(worlds, 3, 3),
            velocity=_worlds_first(velocity + _cross(spin, arm))[:, 0],
            spin=_worlds_first(spin)[:, 0],
            points=_worlds_first(points).reshape(worlds, *self.feet, 3),
            point_velocity=_worlds_first(point_velocity).reshape(worlds, *self.feet, 3),
        )

    def _points(self, links: tuple, reference: Array) -> tuple[Array, Array]:
        """Lowest points of the spheres, and velocities of their centres."""
        place = ops.like(self.point_links, reference)
        origin, frame, velocity, spin = (ops.take(x, place, x.ndim - 2) for x in links)
        reach = _rotate(frame, _as(self.point_offset, reference))
        return origin + reach - _as(self.radius, reference), velocity + _cross(spin, reach)

    def _move(self, level: _Level, links: tuple, qpos: Array, qvel: Array) -> tuple[Array, Array, Array, Array]:
        """Origins, frames, velocities and spins of a level's links, in the world."""
        if level.kind == FREE:
            first, speed = int(level.columns[0]), int(level.speeds[0])
            quaternion = ops.swap_last(qpos[first + 3 : first + 7])
            frame = ops.move_axis(rotations.from_quaternion(quaternion), 0, 2)[:, :, None]
            # MuJoCo gives the velocity of a free body in the world, and its spin in the body.
            spin = _rotate(frame, qvel[speed + 3 : speed + 6, None])
            return qpos[first : first + 3, None], frame, qvel[speed : speed + 3, None], spin
        parents, columns, speeds = ops.like((level.parents, level.columns, level.speeds), qpos)
        origin, frame, velocity, spin = (ops.take(x, parents, x.ndim - 2) for x in links)
        moved = ops.take(qpos, columns) - _as(level.zero, qpos)
        speed = ops.take(qvel, speeds)
        arm = _rotate(frame, _as(level.offset, qpos))
        frame = _product(frame, _as(level.turn, qpos))
        axis = _rotate(frame, _as(level.axis, qpos))
        if level.kind == SLIDE:
            arm = arm + axis * moved
            return origin + arm, frame, velocity + _cross(spin, arm) + axis * speed, spin
        turn = _as(UNIT, qpos) + ops.sin(moved) * _as(level.once, qpos) + (1 - ops.cos(moved)) * _as(level.twice, qpos)
        return origin + arm, _product(frame, turn), velocity + _cross(spin, arm), spin + axis * speed


# A few operations on whole arrays, not one for each number: a program has several of these walks, and has to be traced
# and compiled.


def _product(a: Array, b: Array) -> Array:
    return ops.sum(a[:, :, None] * b[None], 1)


def _rotate(a: Array, v: Array) -> Array:
    return ops.sum(a * v[None], 1)


def _cross(a: Array, b: Array) -> Array:
    return _next(a * _next(b) - _next(a) * b)


def _next(v: Array) -> Array:
    """y, z, x of x, y, z."""
    return ops.concat([v[1:], v[:1]], 0)


def _worlds_first(x: Array) -> Array:
    """(part, link, world) as (world, link, part)."""
    return ops.swap_last(ops.move_axis(x, 2, 0))


class _Links:
    """The model's joints as links, those that carry the base or a foot."""

    def __init__(self, robot: Robot):
        model = robot.model
        self.model = model
        self.depth: dict[int, int] = {}
        self.parent: dict[int, tuple[int, np.ndarray, np.ndarray]] = {}
        wanted = [model.body(robot.base).id]
        wanted += [int(model.geom_bodyid[model.geom(geom).id]) for foot in robot.feet for geom in foot]
        self.place = {-1: 0}  # by joint; -1 is the world
        for body in wanted:
            self._climb(body)
        groups: dict[tuple[int, int], list[int]] = {}
        for joint, depth in self.depth.items():
            groups.setdefault((depth, int(model.jnt_type[joint])), []).append(joint)
        self.levels = []
        for (_, kind), joints in sorted(groups.items()):
            if kind == BALL:
                raise TwinaxError(
                    f"joint '{model.joint(joints[0]).name}' is a ball; use hinges, slides or a free joint"
                )
            self.levels.append(self._level(kind, joints))
            for joint in joints:
                self.place[joint] = len(self.place)

    def attach(self, body: int) -> tuple[int, np.ndarray, np.ndarray]:
        """The link that carries a body, and the body's place and rotation in its frame."""
        joint, place, turn = self._frame(body)
        return self.place[joint], place, turn

    def _frame(self, body: int) -> tuple[int, np.ndarray, np.ndarray]:
        """The last joint above a body's frame (-1: none), and the frame's place and rotation seen from it."""
        model = self.model
        if body == 0:
            return -1, np.zeros(3), np.eye(3)
        number, first = int(model.body_jntnum[body]), int(model.body_jntadr[body])
        if number:
            joint = first + number - 1
            back = np.zeros(3) if model.jnt_type[joint] == FREE else -model.jnt_pos[joint]
            return joint, back, np.eye(3)
        joint, place, turn = self._frame(int(model.body_parentid[body]))
        here = rotations.from_quaternion(model.body_quat[body])
        return joint, place + turn @ model.body_pos[body], turn @ here

    def _climb(self, body: int) -> int:
        """Note the joints from the world to a body; how many there are."""
        if body == 0:
            return 0
        model = self.model
        above = self._climb(int(model.body_parentid[body]))
        number, first = int(model.body_jntnum[body]), int(model.body_jntadr[body])
        if number == 0:
            return above
        joint, place, turn = self._frame(int(model.body_parentid[body]))
        here = rotations.from_quaternion(model.body_quat[body])
        place, turn = place + turn @ model.body_pos[body], turn @ here
        anchor = np.zeros(3)
        for k in range(first, first + number):
            self.parent[k] = (joint, place + turn @ (model.jnt_pos[k] - anchor), turn)
            self.depth[k] = above + 1 + k - first
            joint, place, turn, anchor = k, np.zeros(3), np.eye(3), model.jnt_pos[k]
        return above + number

    def _level(self, kind: int, joints: list[int]) -> _Level:
        model = self.model
        axis = model.jnt_axis[joints]
        once = np.cross(axis[:, None], np.eye(3)).swapaxes(1, 2)
        columns = model.jnt_qposadr[joints]
        parents, offset, turn = zip(*(self.parent[joint] for joint in joints), strict=True)
        return _Level(
            kind=kind,
            parents=_constant(np.array([self.place[p] for p in parents], np.int32)),
            offset=_parts_first(offset),
            turn=_parts_first(turn),
            axis=_parts_first(axis),
            once=_parts_first(once),
            twice=_parts_first(once @ once),
            columns=_constant(columns.astype(np.int32)),
            speeds=_constant(model.jnt_dofadr[joints].astype(np.int32)),
            zero=_constant(model.qpos0[columns][:, None]),
        )


def _as(constant: np.ndarray, reference: Array) -> Array:
    return ops.cast(ops.like(constant, reference), reference)


def _parts_first(rows: Any) -> np.ndarray:
    """(link, part...) as (part..., link, 1)."""
    return _constant(np.moveaxis(np.asarray(rows, np.float64), 0, -1)[..., None].copy())


def _constant(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x
