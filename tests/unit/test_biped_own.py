"""A robot of one's own: ordinary contacts, dry friction, servos, where its base is, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_robot import DESCRIPTION, write_robot

from twinax import conf
from twinax.envs.biped import Biped, Ranges, load_robot, mirror_motion
from twinax.envs.biped._physics_c import physics_model
from twinax.envs.checking_control import check_world
from twinax.errors import TwinaxError
from twinax.noise import numpy_draws

CALM = {"reset_joints": 0.0, "reset_tilt": 0.0, "threads": 1}
FREE = '<body name="trunk" pos="0 0 .35"><freejoint/>'
QPOS = 'qpos="0 0 .35 1 0 0 0 0 0 0 0"'


def begin(world, worlds=2):
    draws = numpy_draws(world.reset_draws(worlds), 0, 0)
    return world.reset({name: np.asarray(x, np.float64) for name, x in draws.items()})


def stand(world, state, steps, action=0.0):
    """After some control steps with the same action."""
    worlds, joints = state.action.shape
    draws = {name: np.zeros(draw.shape) for name, draw in world.step_draws(worlds).items()}
    for _ in range(steps):
        state = world.step(state, np.full((worlds, joints), action), draws).state
    return state


# Friction


def slides(path, runner="c", **settings):
    """Two worlds, one with friction and one almost without, moving ahead with their feet on the floor."""
    world = Biped(robot=path, runner=runner, ranges=Ranges(friction=(0.05, 1.0)), substeps=1, **CALM, **settings)
    state = begin(world)
    variation = replace(state.variation, friction=np.array([1.0, 0.05]))
    push = np.array([0.3] + [0.0] * (world.body.model.nv - 1))
    return world, replace(
        state, qpos=state.qpos - 0.001 * (np.arange(11) == 2), qvel=state.qvel + push, variation=variation
    )


def test_friction_varies_without_pairs(tmp_path):
    path = write_robot(tmp_path)
    assert load_robot(path).model.npair == 0
    world, state = slides(path)
    after = stand(world, state, 10)
    # Feet that do not hold go on; feet that do stop, and the trunk with them.
    assert after.qpos[1, 0] > after.qpos[0, 0] + 5e-4
    alone = stand(replace(world, ranges=Ranges()), state, 10)
    np.testing.assert_allclose(alone.qpos[0], after.qpos[0], atol=1e-12)


@pytest.mark.slow
def test_friction_without_pairs_is_the_same_in_mjx(tmp_path, double_precision, quick_compilation):
    world, state = slides(write_robot(tmp_path))
    wanted = stand(world, state, 10)
    other = replace(world, runner="mjx")
    draws = {name: jnp.zeros(draw.shape) for name, draw in world.step_draws(2).items()}
    step = jax.jit(lambda state: other.step(state, jnp.zeros((2, 4)), draws).state)
    found = jax.tree.map(jnp.asarray, state)
    for _ in range(10):
        found = step(found)
    np.testing.assert_allclose(np.asarray(found.qpos), wanted.qpos, atol=1e-9)
    np.testing.assert_allclose(np.asarray(found.qvel), wanted.qvel, atol=1e-9)


def test_dry_friction_is_the_files_unless_a_number_is_given(tmp_path):
    path = write_robot(tmp_path, ('<joint damping=".1"', '<joint frictionloss="1" damping=".1"'))
    robot = load_robot(path)
    assert (physics_model(robot).dof_frictionloss[robot.speeds] == 1).all()
    assert (physics_model(robot, 0.0).dof_frictionloss == 0).all()
    assert (physics_model(robot, 0.1).dof_frictionloss[robot.speeds] == 0.1).all()
    moved = [
        np.abs(stand(world, begin(world), 1, 0.5).qvel[:, 6:]).sum()
        for world in (Biped(robot=path, **CALM), Biped(robot=path, frictionloss=0.0, **CALM))
    ]
    assert moved[0] < 0.9 * moved[1]
    with pytest.raises(TwinaxError, match="frictionloss is -1; it must be at least 0, or none for the MJCF's own"):
        Biped(frictionloss=-1)


def test_dry_friction_in_a_configuration():
    def build(*words):
        config = conf.compose(["experiment=biped", *words])
        return conf.build_problem(conf.restore(conf.as_dict(config))).world.frictionloss

    assert build() is None and build("task.frictionloss=null") is None and build("task.frictionloss=0.02") == 0.02


# Servos


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('joint="left_hip" gear="2"/>', "actuator 'left_hip' of duck has gear 2; it must be 1"),
        (
            'joint="left_hip" ctrlrange=".1 1"/>',
            "'left_hip' of duck is at 0 rad at home, but its servo reaches 0.1 to 1",
        ),
        ('joint="left_hip" ctrlrange="-2 -1.5"/>', "at 0 rad at home, but its servo reaches -1 to -1.5"),
    ],
)
def test_servos_that_are_not_plain_are_refused(tmp_path, change, message):
    path = write_robot(tmp_path, ('joint="left_hip"/>', change))
    with pytest.raises(TwinaxError, match=message):
        load_robot(path)


@pytest.mark.parametrize("bias", ['biastype="affine" biasprm="1 -5"', 'biastype="none" biasprm="0 -5"'])
def test_a_servo_pulls_towards_its_target_and_nowhere_else(tmp_path, bias):
    servo = '<position name="left_hip" joint="left_hip"/>'
    path = write_robot(tmp_path, (servo, f'<general name="left_hip" joint="left_hip" gainprm="5" {bias}/>'))
    with pytest.raises(TwinaxError, match="actuator 'left_hip' of duck is not a position servo of a joint"):
        load_robot(path)


def test_targets_stay_within_the_servos_range(tmp_path):
    path = write_robot(
        tmp_path,
        ('joint="left_hip"/>', 'joint="left_hip" ctrlrange="-.2 3"/>'),
        ('joint="left_knee"/>', 'joint="left_knee" ctrlrange="-.00001 .3"/>'),
    )
    world = Biped(robot=path, action_scale=5.0, **CALM)
    assert world.body.low.tolist() == [-0.2, 0, -1, 0] and world.body.high.tolist() == [1, 0.3, 1, 2]
    np.testing.assert_array_equal(world.target(np.ones((1, 4)))[0], [1, 0.3, 1, 2])
    np.testing.assert_array_equal(world.target(np.zeros((1, 4)))[0], world.body.home)


def test_an_angle_that_was_rounded_is_at_its_limit(tmp_path):
    path = write_robot(tmp_path, (QPOS, 'qpos="0 0 .35 1 0 0 0 0 -.00005 0 0"'))
    assert load_robot(path).home[1] == -0.00005
    path = write_robot(tmp_path, (QPOS, 'qpos="0 0 .35 1 0 0 0 0 -.01 0 0"'))
    with pytest.raises(TwinaxError, match="joint 'left_knee' of duck is at -0.01 rad at home"):
        load_robot(path)


# Where the base is


def test_the_height_may_stand_in_the_keyframe_alone(tmp_path):
    slides = '<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>'
    plane = f'<body name="trunk">{slides}<joint name="y" axis="0 1 0"/>'
    path = write_robot(tmp_path, (FREE, plane), (QPOS, 'qpos="0 .35 0 0 0 0 0"'))
    world = Biped(robot=path, **CALM)
    assert not world.body.free and world.body.height == pytest.approx(0.35)
    state = begin(world)
    assert not world.fallen(world.see(state)).any()
    assert not world.fallen(world.see(stand(world, state, 5))).any()
    pose = world.see(state).pose
    np.testing.assert_allclose(pose.foot_height, 1e-6, atol=1e-9)
    np.testing.assert_allclose(pose.position[:, 2], 0.35, atol=1e-5)


def test_a_robot_that_hangs_in_the_air_in_its_keyframe_is_as_high_as_its_legs(tmp_path):
    path = write_robot(tmp_path, (QPOS, 'qpos="0 0 .75 1 0 0 0 0 0 0 0"'))
    assert load_robot(path).height == pytest.approx(0.35)


def test_a_loose_body_before_the_robot_stays_where_it_is(tmp_path):
    ball = '<body name="ball" pos="1 1 1"><freejoint/><geom size=".05" contype="0" conaffinity="0"/></body>'
    with_ball = write_robot(tmp_path, (FREE, ball + FREE), ('qpos="', 'qpos="1 2 3 0 1 0 0 '), name="with_ball")
    world, plain = (Biped(robot=path, threads=1) for path in (with_ball, write_robot(tmp_path)))
    assert world.body.root == (7, 6) and world.body.height == plain.body.height
    a, b = begin(world), begin(plain)
    np.testing.assert_array_equal(a.qpos[:, :7], [[1, 2, 3, 0, 1, 0, 0]] * 2)
    np.testing.assert_allclose(a.qpos[:, 7:], b.qpos, atol=1e-12)
    np.testing.assert_allclose(world.observe(a), plain.observe(b), atol=1e-12)
    there = mirror_motion(world.body, a.qpos, a.qvel)[0]
    np.testing.assert_allclose(there[:, 7:], mirror_motion(plain.body, b.qpos, b.qvel)[0], atol=1e-12)


def test_resets_tilt_about_the_way_that_the_robot_looks_at_home(tmp_path):
    turned = write_robot(tmp_path, (QPOS, 'qpos="0 0 .35 .7071067811865476 0 0 .7071067811865476 0 0 0 0"'))
    world, plain = Biped(robot=turned, **CALM), Biped(robot=write_robot(tmp_path, name="plain"), threads=1)
    np.testing.assert_allclose(begin(world).qpos[:, 3:7], [[0.5**0.5, 0, 0, 0.5**0.5]] * 2, atol=1e-12)
    a, b = begin(replace(world, reset_joints=0.05, reset_tilt=0.1)), begin(plain)
    assert np.abs(b.qpos[:, 4:6]).min() > 1e-4
    # Gravity as the trunk feels it does not know which way the robot looks.
    np.testing.assert_allclose(world.observe(a), plain.observe(b), atol=1e-12)


def test_a_base_that_lies_at_home_is_refused(tmp_path):
    path = write_robot(tmp_path, (QPOS, 'qpos="0 0 .35 1 1 0 0 0 0 0 0"'))
    with pytest.raises(TwinaxError, match="z axis of the base 'trunk' of duck is tilted by 1.57 rad at home"):
        load_robot(path)


# Descriptions


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("feet: 3", "'feet' in the description of duck has 3; it must be two lists of names of spheres"),
        ("feet:", "'feet' in the description of duck is empty; it must be two lists of names of spheres"),
        ("feet: [left_heel, right_heel]", "'feet' .* has 'left_heel'; it must hold a list of names .* for each foot"),
        ("feet: [[left_heel]]", "the description of duck has 1 feet; there must be 2, the left one first"),
        ("feet: [[left_heel], [left_toe], [right_heel], [right_toe]]", "has 4 feet; there must be 2"),
        ("feet: [[left_heel], [4]]", r"'feet' .* has \[4\]; it must hold a list of names"),
        ("feet: [[left_heel], []]", "the feet of duck have 1, 0 points; give as many for each"),
        ("feet: [[left_heel], [paw]]", "unknown geom of duck 'paw'; known: floor, left_heel"),
        ("base:", "'base' in the description of duck is empty; it must be a name"),
        ("push_body: 1", "'push_body' in the description of duck has 1; it must be a name"),
        ("keyframe: [home]", r"'keyframe' .* has \['home'\]; it must be a name"),
        ("joints:", "'joints' in the description of duck is empty; it must be a list of names"),
        ("joints: left_hip", "'joints' in the description of duck has 'left_hip'; it must be a list of names"),
        ("joints: [knee]", "unknown joint of duck 'knee'; known: left_hip, left_knee, right_hip"),
    ],
)
def test_a_wrong_description_is_one_sentence(tmp_path, entries, message):
    lines = [line for line in DESCRIPTION.splitlines() if line.partition(":")[0] != entries.partition(":")[0]]
    path = write_robot(tmp_path, description="\n".join([*lines, entries]))
    with pytest.raises(TwinaxError, match=message) as found:
        load_robot(path)
    assert "\n" not in str(found.value)


# Seeing


def test_a_class_that_sees_otherwise_is_asked_after_each_step():
    class Nearsighted(Biped):
        def observe(self, state):
            return super().observe(state) * 0.5

    for kind, knows in ((Biped, True), (Nearsighted, False)):
        world = kind(threads=1)
        check_world(world)
        state = begin(world)
        draws = {name: np.zeros(draw.shape) for name, draw in world.step_draws(2).items()}
        assert (world.step(state, np.zeros_like(state.action), draws).seen is not None) == knows
