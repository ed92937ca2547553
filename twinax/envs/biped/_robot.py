"""A robot: its MJCF, read by MuJoCo, and the little that MJCF does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs.biped._description import check_description, read_description
from twinax.envs.biped._servos import driven_joints, require_joints, target_limits
from twinax.envs.biped.mujoco_model import load_mujoco, names_of
from twinax.errors import TwinaxError, UnknownName

ROBOTS = ("biped", "humanoid", "planar")
"""Robots that come with the package: 10 and 17 joints and a free base, or 6 joints in a plane."""
NEARLY = 1e-4
"""A keyframe is written with few digits: this far beyond a limit, in rad, an angle is at it."""
UPRIGHT = 0.8
"""Tilt of the base, in rad, at which a home pose is none."""


@dataclass(frozen=True, eq=False)
class Robot:
    """What the world needs to know of a robot. Arrays with an entry for each actuator are in the actuators' order.

    >>> robot = load_robot("biped")
    >>> robot.joints[:3], len(robot.joints), robot.free
    (('left_hip_pitch', 'left_hip_roll', 'left_knee'), 10, True)
    """

    name: str
    model: Any
    """`mujoco.MjModel`; read, never written."""
    base: str
    """Body whose height and tilt say whether the robot has fallen."""
    push_body: str
    """Body that is pushed, at its centre of mass."""
    feet: tuple[tuple[str, ...], ...]
    """Spheres of each foot; the lowest point of each may touch the floor."""
    joints: tuple[str, ...]
    home_qpos: np.ndarray
    """Positions of the keyframe, as MuJoCo counts them."""
    home: np.ndarray
    """Angles of the joints there; rad."""
    columns: np.ndarray
    """Place of each joint in qpos."""
    speeds: np.ndarray
    """Place of each joint in qvel."""
    low: np.ndarray
    high: np.ndarray
    """Range of each servo's target, within that of its joint; rad."""
    kp: np.ndarray
    """N m / rad."""
    kv: np.ndarray
    """N m s / rad."""
    force: np.ndarray
    """Largest torque; N m."""
    free: bool
    """Whether the base hangs on a free joint, and not on slides and hinges."""
    root: tuple[int, int]
    """Where the base's joints begin in qpos and in qvel; a loose body may come before them."""
    height: float
    """Of the base at home, the lowest point of its feet on the floor; m."""

    @property
    def timestep(self) -> float:
        """Seconds of a physics step."""
        return float(self.model.opt.timestep)

    @property
    def mirror(self) -> tuple[np.ndarray, np.ndarray]:
        """The joint on the other side of each joint, and the sign of its angle seen in a mirror.

        Joints without a partner, such as a waist that turns, change their sign.
        """
        partner = []
        for name in self.joints:
            swapped = name.replace("left", "?").replace("right", "left").replace("?", "right")
            partner.append(self.joints.index(swapped) if swapped in self.joints else -1)
        order = np.array([k if p < 0 else p for k, p in enumerate(partner)])
        return order, np.where(order == np.arange(len(order)), -1.0, 1.0)


def load_robot(robot: str | Path | Robot, **description: Any) -> Robot:
    """A robot by name, or any MJCF by path with a description.

    The description is a YAML or JSON file of the same name beside the MJCF, or keyword arguments, which win:
    `base` (a body), `feet` (for each foot the names of its spheres, as many for each), and perhaps `push_body` (the
    base), `joints` (the order of the actuators, to be checked) and `keyframe` ("home").
    """
    if isinstance(robot, Robot):
        return robot
    path = Path(__file__).with_name(f"{robot}.xml") if str(robot) in ROBOTS else Path(robot)
    if not path.is_file():
        if path.suffix:
            raise TwinaxError(f"there is no MJCF file {path}")
        raise UnknownName("robot", robot, ROBOTS)
    return make_robot(path.stem, _read(path), {**read_description(path), **description})


def _read(path: Path) -> Any:
    mujoco = load_mujoco()
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise TwinaxError(f"MuJoCo cannot read {path.name}: {' '.join(str(error).split())}") from None


def make_robot(name: str, model: Any, description: Mapping[str, Any]) -> Robot:
    """A robot from a model that is loaded already."""
    check_description(name, description)
    base = description["base"]
    bodies = names_of(model.body, range(1, model.nbody))
    for body in (base, description.get("push_body", base)):
        if body not in bodies:
            raise UnknownName(f"body of {name}", body, bodies)
    joints = driven_joints(name, model)
    if "joints" in description:
        require_joints(name, model, tuple(description["joints"]), joints)
    numbers = np.array([model.joint(joint).id for joint in joints], np.int32)
    columns, speeds = model.jnt_qposadr[numbers], model.jnt_dofadr[numbers]
    low, high = target_limits(model, numbers)
    force = np.where(model.actuator_forcelimited > 0, model.actuator_forcerange[:, 1], np.inf)
    qpos = _keyframe(name, model, description.get("keyframe", "home"))
    home, feet = qpos[columns], _feet(name, model, description["feet"])
    for joint, angle, least, most in zip(joints, home, low, high, strict=True):
        if not least - NEARLY <= angle <= most + NEARLY:
            raise TwinaxError(
                f"joint '{joint}' of {name} is at {angle:g} rad at home, but its servo reaches {least:g} to {most:g}; "
                "change the keyframe, the joint's range or the servo's ctrlrange"
            )
    return Robot(
        name=name,
        model=model,
        base=base,
        push_body=description.get("push_body", base),
        feet=feet,
        joints=joints,
        home_qpos=_constant(qpos),
        home=_constant(home),
        columns=_constant(columns.astype(np.int32)),
        speeds=_constant(speeds.astype(np.int32)),
        low=_constant(low),
        high=_constant(high),
        kp=_constant(model.actuator_gainprm[:, 0].copy()),
        kv=_constant(-model.actuator_biasprm[:, 2]),
        force=_constant(force),
        free=_moves_freely(name, model, base),
        root=_root(model, base),
        height=_height(name, model, base, feet, qpos),
    )


def _keyframe(name: str, model: Any, wanted: str) -> np.ndarray:
    keys = names_of(model.key, range(model.nkey))
    if not keys:
        raise TwinaxError(
            f"{name} has no keyframe with a name; add <keyframe><key name='{wanted}' qpos='...'/></keyframe>"
        )
    if wanted not in keys:
        raise UnknownName(f"keyframe of {name}", wanted, keys)
    return model.key(wanted).qpos.copy()


def _feet(name: str, model: Any, feet: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    mujoco = load_mujoco()
    geoms = tuple(tuple(foot) for foot in feet)
    known = names_of(model.geom, range(model.ngeom))
    for geom in (geom for foot in geoms for geom in foot):
        if geom not in known:
            raise UnknownName(f"geom of {name}", geom, known)
        if model.geom(geom).type != mujoco.mjtGeom.mjGEOM_SPHERE:
            raise TwinaxError(f"geom '{geom}' of {name} is no sphere; the points of a foot must be spheres")
    return geoms


def _moves_freely(name: str, model: Any, base: str) -> bool:
    mujoco = load_mujoco()
    body = model.body(base)
    if body.jntnum[0] == 0:
        raise TwinaxError(f"the base '{base}' of {name} has no joint, so it cannot move; give it a <freejoint/>")
    if body.parentid[0] != 0:
        raise TwinaxError(f"the base '{base}' of {name} hangs on another body; it must be a child of the worldbody")
    return bool(model.jnt_type[body.jntadr[0]] == mujoco.mjtJoint.mjJNT_FREE)


def _root(model: Any, base: str) -> tuple[int, int]:
    first = model.body(base).jntadr[0]
    return int(model.jnt_qposadr[first]), int(model.jnt_dofadr[first])


def _height(name: str, model: Any, base: str, feet: Sequence[Sequence[str]], qpos: np.ndarray) -> float:
    """Height of the base at home, by kinematics: it may be in the body's place, in the keyframe, or in both."""
    mujoco = load_mujoco()
    data, body = mujoco.MjData(model), model.body(base).id
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    tilt = float(np.arccos(np.clip(data.xmat[body, 8], -1, 1)))
    if tilt > UPRIGHT:
        raise TwinaxError(
            f"the z axis of the base '{base}' of {name} is tilted by {tilt:.2f} rad at home; it must point up, by less "
            f"than {UPRIGHT} rad"
        )
    points = [model.geom(geom).id for foot in feet for geom in foot]
    lowest = (data.geom_xpos[points, 2] - model.geom_size[points, 0]).min()
    return float(data.xpos[body, 2] - lowest)


def _constant(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x
