"""Where the base and the points of the feet are, and how they move, from joint positions and velocities.

The tree of bodies is cut into links of one joint each; a link's frame has its origin on the joint's axis. Links of the
same depth and kind are walked at once, so both legs cost as much as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinax import ops, tree
from twinax.envs.biped import _rotations as rotations
from twinax.envs.biped._robot import Robot
from twinax.errors import TwinaxError
from twinax.types import Array, Float

FREE, BALL, SLIDE, HINGE = range(4)
"""As MuJoCo numbers them."""


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
    """Links of one depth and kind."""

    kind: int
    parents: np.ndarray
    """Places among the links found before; the fixed world is number 0."""
    offset: np.ndarray
    """Origin in the parent's frame."""
    turn: np.ndarray
    """Rotation in the parent's frame, before the joint moves."""
    axis: np.ndarray
    generator: np.ndarray
    """Matrix K of the cross product with the axis; its rotation by q is 1 + sin q K + (1 - cos q) K^2."""
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
        self.base, self.base_offset, self.base_turn = base, _constant(place), _constant(turn)
        geoms = [robot.model.geom(geom).id for foot in robot.feet for geom in foot]
        attached = [links.attach(robot.model.geom_bodyid[geom]) for geom in geoms]
        places = [p + t @ robot.model.geom_pos[g] for (_, p, t), g in zip(attached, geoms, strict=True)]
        self.point_links = _constant(np.array([link for link, _, _ in attached], np.int32))
        self.point_offset = _constant(np.stack(places))
        self.radius = _constant(robot.model.geom_size[geoms, 0].copy())
        self.feet = (len(robot.feet), len(robot.feet[0]))

    def __call__(self, qpos: Float[Array, "worlds nq"], qvel: Float[Array, "worlds nv"]) -> Pose:
        worlds = qpos.shape[0]
        none = ops.zeros((worlds, 1, 3), qpos)
        origins, velocities, spins = none, none, none
        frames = ops.broadcast(_as(np.eye(3)[None, None], qpos), (worlds, 1, 3, 3))
        for level in self.levels:
            found = self._move(level, (origins, frames, velocities, spins), qpos, qvel)
            origins, frames, velocities, spins = (
                ops.concat([before, new], 1)
                for before, new in zip((origins, frames, velocities, spins), found, strict=True)
            )
        arm = rotations.rotate(frames[:, self.base], _as(self.base_offset, qpos))
        links = ops.like(self.point_links, qpos)
        reach = rotations.rotate(ops.take(frames, links, 1), _as(self.point_offset, qpos))
        spin = ops.take(spins, links, 1)
        points = ops.take(origins, links, 1) + reach
        lowest = ops.concat([points[..., :2], points[..., 2:] - _as(self.radius, qpos)[:, None]], -1)
        moving = ops.take(velocities, links, 1) + rotations.cross(spin, reach)
        shape = (worlds, *self.feet, 3)
        return Pose(
            position=origins[:, self.base] + arm,
            rotation=rotations.product(frames[:, self.base], _as(self.base_turn, qpos)),
            velocity=velocities[:, self.base] + rotations.cross(spins[:, self.base], arm),
            spin=spins[:, self.base],
            points=lowest.reshape(shape),
            point_velocity=moving.reshape(shape),
        )

    def _move(self, level: _Level, before, qpos, qvel):
        if level.kind == FREE:
            first, speed = int(level.columns[0]), int(level.speeds[0])
            frame = rotations.from_quaternion(qpos[:, first + 3 : first + 7])[:, None]
            # MuJoCo gives the velocity of a free body in the world, and its spin in the body.
            spin = rotations.rotate(frame, qvel[:, None, speed + 3 : speed + 6])
            return qpos[:, None, first : first + 3], frame, qvel[:, None, speed : speed + 3], spin
        parents, columns, speeds = ops.like((level.parents, level.columns, level.speeds), qpos)
        origin, frame, velocity, spin = (ops.take(x, parents, 1) for x in before)
        moved = ops.take(qpos, columns, 1) - _as(level.zero, qpos)
        speed = ops.take(qvel, speeds, 1)[..., None]
        arm = rotations.rotate(frame, _as(level.offset, qpos))
        frame = rotations.product(frame, _as(level.turn, qpos))
        axis = rotations.rotate(frame, _as(level.axis, qpos))
        if level.kind == SLIDE:
            arm = arm + axis * moved[..., None]
            return origin + arm, frame, velocity + rotations.cross(spin, arm) + axis * speed, spin
        generator, twice = _as(level.generator, qpos), _as(level.generator @ level.generator, qpos)
        angle = moved[..., None, None]
        turn = _as(np.eye(3), qpos) + ops.sin(angle) * generator + (1 - ops.cos(angle)) * twice
        velocity = velocity + rotations.cross(spin, arm)
        return origin + arm, rotations.product(frame, turn), velocity, spin + axis * speed


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
        columns = model.jnt_qposadr[joints]
        parents, offset, turn = zip(*(self.parent[joint] for joint in joints), strict=True)
        return _Level(
            kind=kind,
            parents=_constant(np.array([self.place[p] for p in parents], np.int32)),
            offset=_constant(np.stack(offset)),
            turn=_constant(np.stack(turn)),
            axis=_constant(axis.copy()),
            generator=_constant(np.cross(axis[:, None], np.eye(3)).swapaxes(1, 2).copy()),
            columns=_constant(columns.astype(np.int32)),
            speeds=_constant(model.jnt_dofadr[joints].astype(np.int32)),
            zero=_constant(model.qpos0[columns].copy()),
        )


def _as(constant: np.ndarray, reference: Array) -> Array:
    return ops.cast(ops.like(constant, reference), reference)


def _constant(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x
