"""A robot: its MJCF, read by MuJoCo, and the little that MJCF does not say."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName, require

ROBOTS = ("biped", "humanoid", "planar")
"""Robots that come with the package: 10 and 17 joints and a free base, or 6 joints in a plane."""
KEYS = ("base", "push_body", "feet", "joints", "keyframe")


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
    """Range of each joint; rad."""
    kp: np.ndarray
    """N m / rad."""
    kv: np.ndarray
    """N m s / rad."""
    force: np.ndarray
    """Largest torque; N m."""
    free: bool
    """Whether the base hangs on a free joint, and not on slides and hinges."""

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


def load_mujoco(part: str = "mujoco") -> Any:
    """MuJoCo or a part of it; it comes without types."""
    require("mujoco", "mujoco", "a robot")
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that it goes without Warp
        return importlib.import_module(part)


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
    return make_robot(path.stem, _read(path), {**_described(path), **description})


def _read(path: Path) -> Any:
    mujoco = load_mujoco()
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise TwinaxError(f"MuJoCo cannot read {path.name}: {' '.join(str(error).split())}") from None


def _described(path: Path) -> dict[str, Any]:
    import yaml

    for suffix in (".yaml", ".yml", ".json"):
        beside = path.with_suffix(suffix)
        if beside.is_file():
            try:
                found = yaml.safe_load(beside.read_text())  # JSON is YAML
            except yaml.YAMLError as error:
                raise TwinaxError(f"{beside.name} is neither YAML nor JSON: {' '.join(str(error).split())}") from None
            if not isinstance(found, dict):
                raise TwinaxError(f"{beside.name} holds a {type(found).__name__}; it must map names to values")
            return found
    return {}


def make_robot(name: str, model: Any, description: Mapping[str, Any]) -> Robot:
    """A robot from a model that is loaded already."""
    for key in description:
        if key not in KEYS:
            raise UnknownName("entry of a robot's description", key, KEYS)
    for key in ("base", "feet"):
        if key not in description:
            raise TwinaxError(f"the description of {name} has no '{key}'; write it into {name}.yaml or pass {key}=...")
    base = description["base"]
    bodies = [model.body(k).name for k in range(model.nbody)]
    for body in (base, description.get("push_body", base)):
        if body not in bodies:
            raise UnknownName(f"body of {name}", body, bodies[1:])
    joints = _driven(name, model)
    if "joints" in description:
        _require_joints(name, model, tuple(description["joints"]), joints)
    numbers = np.array([model.joint(joint).id for joint in joints], np.int32)
    columns, speeds = model.jnt_qposadr[numbers], model.jnt_dofadr[numbers]
    limits = np.where(model.jnt_limited[numbers, None] > 0, model.jnt_range[numbers], [-np.pi, np.pi])
    force = np.where(model.actuator_forcelimited > 0, model.actuator_forcerange[:, 1], np.inf)
    qpos = _keyframe(name, model, description.get("keyframe", "home"))
    return Robot(
        name=name,
        model=model,
        base=base,
        push_body=description.get("push_body", base),
        feet=_feet(name, model, description["feet"]),
        joints=joints,
        home_qpos=_constant(qpos),
        home=_constant(qpos[columns]),
        columns=_constant(columns.astype(np.int32)),
        speeds=_constant(speeds.astype(np.int32)),
        low=_constant(limits[:, 0].copy()),
        high=_constant(limits[:, 1].copy()),
        kp=_constant(model.actuator_gainprm[:, 0].copy()),
        kv=_constant(-model.actuator_biasprm[:, 2]),
        force=_constant(force),
        free=_moves_freely(name, model, base),
    )


def _driven(name: str, model: Any) -> tuple[str, ...]:
    """The joint of each actuator, which must be a position servo."""
    mujoco = load_mujoco()
    if model.nu == 0:
        raise TwinaxError(f"{name} has 0 actuators; it needs a position actuator for each joint that moves by itself")
    if model.na:
        raise TwinaxError(f"{name} has {model.na} actuators with a state of their own; only plain servos are supported")
    found = []
    for k in range(model.nu):
        servo = model.actuator_biasprm[k, 1] == -model.actuator_gainprm[k, 0] != 0
        if model.actuator_trntype[k] != mujoco.mjtTrn.mjTRN_JOINT or not servo:
            raise TwinaxError(f"actuator '{model.actuator(k).name}' of {name} is not a position servo of a joint")
        found.append(model.joint(model.actuator_trnid[k, 0]).name)
    if len(set(found)) < len(found):
        raise TwinaxError(f"{name} has {len(found)} actuators for {len(set(found))} joints; give each joint one")
    return tuple(found)


def _require_joints(name: str, model: Any, wanted: tuple[str, ...], driven: tuple[str, ...]) -> None:
    known = [model.joint(k).name for k in range(model.njnt)]
    for joint in wanted:
        if joint not in known:
            raise UnknownName(f"joint of {name}", joint, known)
    if len(wanted) != len(driven):
        raise TwinaxError(
            f"the description of {name} names {len(wanted)} joints, but its MJCF has {len(driven)} servos"
        )
    for k, (a, b) in enumerate(zip(wanted, driven, strict=True)):
        if a != b:
            raise TwinaxError(
                f"the description of {name} names joint {k} '{a}', but actuator {k} of its MJCF moves '{b}'"
            )


def _keyframe(name: str, model: Any, wanted: str) -> np.ndarray:
    keys = [model.key(k).name for k in range(model.nkey)]
    if not keys:
        raise TwinaxError(f"{name} has no keyframe; add <keyframe><key name='{wanted}' qpos='...'/></keyframe>")
    if wanted not in keys:
        raise UnknownName(f"keyframe of {name}", wanted, keys)
    return model.key(wanted).qpos.copy()


def _feet(name: str, model: Any, feet: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    mujoco = load_mujoco()
    found = tuple(tuple(foot) for foot in feet)
    known = [model.geom(k).name for k in range(model.ngeom) if model.geom(k).name]
    for geom in (geom for foot in found for geom in foot):
        if geom not in known:
            raise UnknownName(f"geom of {name}", geom, known)
        if model.geom(geom).type != mujoco.mjtGeom.mjGEOM_SPHERE:
            raise TwinaxError(f"geom '{geom}' of {name} is no sphere; the points of a foot must be spheres")
    sizes = {len(foot) for foot in found}
    if len(sizes) != 1 or 0 in sizes:
        numbers = ", ".join(str(len(foot)) for foot in found) or "no"
        raise TwinaxError(f"the feet of {name} have {numbers} points; give as many for each")
    return found


def _moves_freely(name: str, model: Any, base: str) -> bool:
    mujoco = load_mujoco()
    body = model.body(base)
    if body.jntnum[0] == 0:
        raise TwinaxError(f"the base '{base}' of {name} has no joint, so it cannot move; give it a <freejoint/>")
    if body.parentid[0] != 0:
        raise TwinaxError(f"the base '{base}' of {name} hangs on another body; it must be a child of the worldbody")
    return bool(model.jnt_type[body.jntadr[0]] == mujoco.mjtJoint.mjJNT_FREE)


def _constant(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x
