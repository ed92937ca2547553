"""The servos of a model: which joints they move, how far, and that they are plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.envs.biped.mujoco_model import load_mujoco, names_of
from twinax.errors import TwinaxError, UnknownName


def driven_joints(name: str, model: Any) -> tuple[str, ...]:
    """The joint of each actuator, which must be a position servo."""
    mujoco = load_mujoco()
    if model.nu == 0:
        raise TwinaxError(f"{name} has 0 actuators; it needs a position actuator for each joint that moves by itself")
    if model.na:
        raise TwinaxError(f"{name} has {model.na} actuators with a state of their own; only plain servos are supported")
    joints, plain = [], (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE)
    for k in range(model.nu):
        kinds = (model.actuator_trntype[k], model.actuator_gaintype[k], model.actuator_biastype[k])
        shift, stiffness = model.actuator_biasprm[k, :2]
        if kinds != plain or shift != 0 or not stiffness == -model.actuator_gainprm[k, 0] != 0:
            raise TwinaxError(f"actuator '{model.actuator(k).name}' of {name} is not a position servo of a joint")
        if (gear := model.actuator_gear[k, 0]) != 1:
            raise TwinaxError(
                f"actuator '{model.actuator(k).name}' of {name} has gear {gear:g}; it must be 1, so that a target "
                "is the joint's own angle: put the gear into kp, kv and forcerange"
            )
        joints.append(model.joint(model.actuator_trnid[k, 0]).name)
    if len(set(joints)) < len(joints):
        raise TwinaxError(f"{name} has {len(joints)} actuators for {len(set(joints))} joints; give each joint one")
    return tuple(joints)


def require_joints(name: str, model: Any, wanted: tuple[str, ...], driven: tuple[str, ...]) -> None:
    known = names_of(model.joint, range(model.njnt))
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


def target_limits(model: Any, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where both the joint and its servo may go."""
    joint = np.where(model.jnt_limited[joints, None] > 0, model.jnt_range[joints], [-np.pi, np.pi])
    servo = np.where(model.actuator_ctrllimited[:, None] > 0, model.actuator_ctrlrange, [-np.inf, np.inf])
    return np.maximum(joint[:, 0], servo[:, 0]), np.minimum(joint[:, 1], servo[:, 1])
