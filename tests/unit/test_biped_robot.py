"""The robots and their kinematics, against MuJoCo's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest
import torch

import twinax.envs.biped
from twinax.envs.biped import ROBOTS, Kinematics, load_robot, mirror_joints, mirror_motion
from twinax.envs.biped._mjcf import PLANS, mjcf
from twinax.errors import TwinaxError, UnknownName

HOPPER = """<mujoco><compiler angle="radian"/><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="trunk" pos="0 .1 .5" quat=".9 .1 .2 .3"><joint name="lift" type="slide" axis="0 .6 .8" pos=".1 0 0"/>
<joint name="turn" axis="0 0 1" pos="0 .2 .1"/><geom size=".1"/>
<body name="mount" pos="0 0 -.1" quat="1 1 0 0"><geom size=".05"/>
<body name="leg" pos=".1 0 -.2"><joint name="hip" axis="1 2 0" pos="0 .03 .02" ref=".3" range="-1 1" limited="true"/>
<geom name="toe" pos="0 .1 -.3" size=".04"/><geom name="heel" pos=".1 .1 -.2" size=".03"/></body></body></body>
</worldbody>
<actuator><position name="hip" joint="hip" kp="5"/></actuator>
<keyframe><key name="home" qpos="0 0 .1"/></keyframe></mujoco>"""


@pytest.fixture
def hopper(tmp_path: Path) -> Path:
    """Another robot: offsets and turns everywhere, two joints in a body, and a reference angle."""
    path = tmp_path / "hopper.xml"
    path.write_text(HOPPER)
    (tmp_path / "hopper.json").write_text(json.dumps({"base": "trunk", "feet": [["toe"], ["heel"]]}))
    return path


def test_the_files_are_those_of_the_generator():
    folder = Path(twinax.envs.biped.__file__).parent
    assert sorted(plan.name for plan in PLANS) == sorted(ROBOTS)
    for plan in PLANS:
        assert (folder / f"{plan.name}.xml").read_text() == mjcf(plan)


@pytest.mark.parametrize(
    ("name", "sizes"), [("biped", (17, 16, 10)), ("humanoid", (24, 23, 17)), ("planar", (9, 9, 6))]
)
def test_the_robots_are_those_of_the_specification(name, sizes):
    robot = load_robot(name)
    model = robot.model
    assert (model.nq, model.nv, model.nu) == sizes and model.npair == 8
    assert model.body_mass.sum() == pytest.approx(4.125)
    assert not model.geom_contype.any() and not model.geom_conaffinity.any()
    assert (robot.kp == 21.1).all() and (robot.kv == 0.5).all() and (robot.force == 4).all()
    assert (
        model.opt.timestep == 0.004 and model.opt.iterations == 4 and model.opt.solver == mujoco.mjtSolver.mjSOL_NEWTON
    )
    assert ((robot.low < robot.home) & (robot.home < robot.high)).all()
    order, sign = robot.mirror
    np.testing.assert_array_equal(robot.home[order] * sign, robot.home)
    assert sum(sign < 0) == (name == "humanoid")
    sensors = {model.sensor(k).name for k in range(model.nsensor)}
    assert sensors == {"gyro", "accelerometer", "orientation", "velocity"}


@pytest.mark.parametrize("name", ROBOTS)
def test_the_sensors_measure_what_a_policy_sees(name):
    robot = load_robot(name)
    data = mujoco.MjData(robot.model)
    rng = np.random.default_rng(0)
    data.qpos[:] = robot.home_qpos
    data.qpos[robot.columns] += rng.normal(size=len(robot.joints)) * 0.2  # the waist as well
    data.qvel[:] = rng.normal(size=robot.model.nv)
    mujoco.mj_forward(robot.model, data)
    pose = Kinematics(robot)(data.qpos[None].copy(), data.qvel[None].copy())
    np.testing.assert_allclose(data.sensor("gyro").data, pose.rotation[0].T @ pose.spin[0], atol=1e-12)
    assert robot.model.body(robot.model.site("imu").bodyid[0]).name == robot.base


def velocity(model, data, kind, number):
    found = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, kind, number, found, 0)
    return found[3:], found[:3]


def check_kinematics(robot, seed=0, worlds=40):
    model, data = robot.model, mujoco.MjData(robot.model)
    rng = np.random.default_rng(seed)
    qpos, qvel = rng.normal(size=(worlds, model.nq)), rng.normal(size=(worlds, model.nv))
    pose = Kinematics(robot)(qpos, qvel)
    base = model.body(robot.base).id
    for k in range(worlds):
        data.qpos[:], data.qvel[:] = qpos[k], qvel[k]
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_forward(model, data)
        moving, spin = velocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, base)
        np.testing.assert_allclose(pose.position[k], data.xpos[base], atol=1e-12)
        np.testing.assert_allclose(pose.rotation[k].ravel(), data.xmat[base], atol=1e-12)
        np.testing.assert_allclose(pose.velocity[k], moving, atol=1e-12)
        np.testing.assert_allclose(pose.spin[k], spin, atol=1e-12)
        for foot, names in enumerate(robot.feet):
            for point, name in enumerate(names):
                geom = model.geom(name).id
                lowest = data.geom_xpos[geom] - [0, 0, model.geom_size[geom, 0]]
                moving, _ = velocity(model, data, mujoco.mjtObj.mjOBJ_GEOM, geom)
                np.testing.assert_allclose(pose.points[k, foot, point], lowest, atol=1e-12)
                np.testing.assert_allclose(pose.point_velocity[k, foot, point], moving, atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_kinematics_are_those_of_mujoco(name):
    check_kinematics(load_robot(name))


def test_kinematics_of_another_robot(hopper):
    check_kinematics(load_robot(hopper))


def test_kinematics_are_the_same_in_every_framework(double_precision, quick_compilation):
    robot = load_robot("biped")
    walk = Kinematics(robot)
    rng = np.random.default_rng(1)
    qpos, qvel = rng.normal(size=(5, 17)), rng.normal(size=(5, 16))
    wanted = walk(qpos, qvel)
    for found in (jax.jit(walk)(qpos, qvel), walk(torch.from_numpy(qpos), torch.from_numpy(qvel))):
        for name in ("position", "rotation", "velocity", "spin", "points", "point_velocity", "foot_height"):
            np.testing.assert_allclose(np.asarray(getattr(found, name)), getattr(wanted, name), atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_mirror_swaps_the_feet(name):
    robot = load_robot(name)
    rng = np.random.default_rng(2)
    qpos, qvel = rng.normal(size=(6, robot.model.nq)), rng.normal(size=(6, robot.model.nv))
    there = mirror_motion(robot, qpos, qvel)
    a, b = Kinematics(robot)(qpos, qvel), Kinematics(robot)(*there)
    flip = np.array([1.0, -1.0, 1.0])
    np.testing.assert_allclose(b.points[:, ::-1] * flip, a.points, atol=1e-12)
    np.testing.assert_allclose(b.point_velocity[:, ::-1] * flip, a.point_velocity, atol=1e-12)
    np.testing.assert_allclose(b.spin * -flip, a.spin, atol=1e-12)
    for before, twice in zip((qpos, qvel), mirror_motion(robot, *there), strict=True):
        np.testing.assert_array_equal(before, twice)
    action = rng.normal(size=(3, len(robot.joints)))
    np.testing.assert_array_equal(mirror_joints(robot, mirror_joints(robot, action)), action)


def test_a_description_may_be_given_in_the_call(hopper):
    (hopper.with_suffix(".json")).unlink()
    robot = load_robot(hopper, base="trunk", feet=[["toe"], ["heel"]], joints=["hip"], push_body="leg")
    assert robot.joints == ("hip",) and robot.push_body == "leg" and not robot.free
    assert load_robot(robot) is robot


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feet": [["toe"], []]}, "the feet of hopper have 1, 0 points"),
        ({"feet": [["paw"], ["toe"]]}, "unknown geom of hopper 'paw'; known: floor, heel, toe"),
        ({"feet": [["toe"], ["floor"]]}, "geom 'floor' of hopper is no sphere"),
        ({"base": "chest"}, "unknown body of hopper 'chest'"),
        ({"base": "mount"}, "the base 'mount' of hopper has no joint.*freejoint"),
        ({"base": "leg"}, "the base 'leg' of hopper hangs on another body"),
        ({"joints": ["knee"]}, "unknown joint of hopper 'knee'; known: hip, lift, turn"),
        ({"joints": ["hip", "turn"]}, "names 2 joints, but its MJCF has 1 servos"),
        ({"joints": ["turn"]}, "names joint 0 'turn', but actuator 0 of its MJCF moves 'hip'"),
        ({"keyframe": "rest"}, "unknown keyframe of hopper 'rest'; known: home"),
        ({"colour": "red"}, "unknown entry of a robot's description 'colour'"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(hopper, change, message):
    with pytest.raises(TwinaxError, match=message):
        load_robot(hopper, **change)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<mujoco>", "<mujoco", "MuJoCo cannot read hopper.xml: .*XML"),
        ('joint="hip"', 'joint="knee"', "MuJoCo cannot read hopper.xml: .*unknown"),
        ('<key name="home" qpos="0 0 .1"/>', "", "hopper has no keyframe with a name; add <keyframe>"),
        ('<position name="hip" joint="hip" kp="5"/>', "", "hopper has 0 actuators"),
        ("position name", "motor name", "MuJoCo cannot read hopper.xml"),
        (
            '<position name="hip" joint="hip" kp="5"/>',
            '<motor name="hip" joint="hip"/>',
            "'hip' of hopper is not a position",
        ),
        ("</actuator>", '<position joint="hip" kp="5"/></actuator>', "hopper has 2 actuators for 1 joints"),
        ('kp="5"', 'kp="5" timeconst=".1"', "hopper has 1 actuators with a state"),
    ],
)
def test_a_wrong_mjcf_is_refused_in_one_sentence(hopper, old, new, message):
    assert old in HOPPER
    hopper.write_text(HOPPER.replace(old, new))
    with pytest.raises(TwinaxError, match=message) as found:
        load_robot(hopper)
    assert "\n" not in str(found.value)


def test_a_ball_joint_is_refused(hopper):
    hopper.write_text(
        HOPPER.replace('<joint name="turn" axis="0 0 1"', '<joint name="turn" type="ball"').replace(
            "0 0 .1", "0 1 0 0 0 .1"
        )
    )
    with pytest.raises(TwinaxError, match="joint 'turn' is a ball"):
        Kinematics(load_robot(hopper))


def test_missing_files_and_entries(hopper, tmp_path):
    with pytest.raises(
        UnknownName, match="unknown robot 'bipde'; known: biped, humanoid, planar. Did you mean 'biped'"
    ):
        load_robot("bipde")
    with pytest.raises(TwinaxError, match=re.escape(f"there is no MJCF file {tmp_path / 'none.xml'}")):
        load_robot(tmp_path / "none.xml")
    beside = hopper.with_suffix(".json")
    beside.write_text("{base")
    with pytest.raises(TwinaxError, match="hopper.json is neither YAML nor JSON"):
        load_robot(hopper)
    beside.write_text("3")
    with pytest.raises(TwinaxError, match="hopper.json holds a int; it must map names to values"):
        load_robot(hopper)
    beside.unlink()
    with pytest.raises(TwinaxError, match="the description of hopper has no 'base'; write it into hopper.yaml"):
        load_robot(hopper)
