"""The robot's world with MuJoCo in C: rules, rewards, ends, disturbances, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from twinax import tree
from twinax.envs.biped import ROBOTS, VARIED, Biped, Ranges, load_robot, make_biped, mirror_joints, mirror_motion
from twinax.envs.biped._rewards import TERMS, wanted_heights
from twinax.errors import TwinaxError, UnknownName
from twinax.noise import numpy_draws

CALM = {"reset_joints": 0.0, "reset_tilt": 0.0, "threads": 1}


def wide(draws):
    """Draws in float64, so that states are as well."""
    return {name: np.asarray(x, np.float64) for name, x in draws.items()}


def begin(world, worlds=4, seed=0):
    return world.reset(wide(numpy_draws(world.reset_draws(worlds), seed, 0)))


def moves(world, worlds, step, seed=0):
    return wide(numpy_draws(world.step_draws(worlds), seed, step + 1))


def play(world, state, actions, seed=0):
    """Steps after each other; what each did."""
    found = []
    for k, action in enumerate(actions):
        found.append(world.step(state, action, moves(world, action.shape[0], k, seed)))
        state = found[-1].state
    return found


@cache
def shaken():
    """A state after some wild steps, with feet in and out of contact."""
    world = make_biped(
        "stand", threads=1, history=2, ranges=VARIED, push_every=3, command_zero=0.3, command_ahead=(0.1, 0.3)
    )
    rng = np.random.default_rng(3)
    state = begin(world, 6)
    state = play(world, state, rng.uniform(-1, 1, (12, 6, 10)))[-1].state
    return world, state, rng.uniform(-1.5, 1.5, (6, 10))


# Standing


@pytest.mark.parametrize("name", ROBOTS)
def test_zero_action_stands_for_two_seconds(name):
    world = Biped(robot=name, **CALM)
    state = begin(world, 1)
    still = np.zeros((1, world.actions.size))
    found = play(world, state, [still] * 100)
    assert not any(moved.terminated.any() for moved in found)
    last = world.see(found[-1].state)
    assert abs(last.pose.position[0, 2] - 0.4558) < 0.005
    assert np.abs(last.pose.velocity).max() < 0.02 and last.pose.rotation[0, 2, 2] > 0.999
    assert last.contacts.tolist() == [[1.0, 1.0]]


def test_nothing_is_remembered_between_calls():
    world, state, action = shaken()
    first = world.step(state, action, moves(world, 6, 0))
    world.step(begin(world, 6), action * 0, moves(world, 6, 1))
    again = world.step(state, action, moves(world, 6, 0))
    for a, b in zip(tree.named_leaves(first).values(), tree.named_leaves(again).values(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads):
    world, state, action = shaken()
    one = world.step(state, action, moves(world, 6, 0))
    more = replace(world, threads=threads).step(state, action, moves(world, 6, 0))
    np.testing.assert_array_equal(one.state.qpos, more.state.qpos)


# The same everywhere


def test_what_is_seen_and_earned_is_the_same_in_every_framework(double_precision, quick_compilation):
    world, state, action = shaken()
    draws = moves(world, 6, 0)

    def everything(state, action, draws):
        moved = world.step(state, action, draws)
        return moved, world.observe(moved.state), world.observe_critic(moved.state)

    wanted = tree.named_leaves(everything(state, action, draws))
    torch_found = everything(*tree.map_leaves(torch.from_numpy, (state, action, draws)))
    jax_found = jax.jit(everything)(state, action, draws)
    for found in (tree.named_leaves(torch_found), tree.named_leaves(jax_found)):
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            np.testing.assert_allclose(np.asarray(found[name]), value, rtol=1e-9, atol=1e-9, err_msg=name)
            assert str(found[name].dtype).removeprefix("torch.") == str(value.dtype), name


def test_float32_stays_float32():
    for task in ("walk", "stand"):
        world = make_biped(task, threads=1, ranges=VARIED, history=1)
        state = world.reset(numpy_draws(world.reset_draws(2), 0, 0))
        moved = world.step(state, np.zeros((2, 10), np.float32), numpy_draws(world.step_draws(2), 0, 1))
        for name, value in tree.named_leaves((state, moved, world.observe_critic(moved.state))).items():
            assert value.dtype in (np.float32, np.int32, np.bool_), name
            assert value.shape[0] == 2, name


def test_sizes_are_what_they_say():
    for name in ROBOTS:
        for history in (0, 3):
            world = Biped(robot=name, history=history, threads=1)
            state = begin(world, 2)
            assert world.observe(state).shape == (2, world.observation_size)
            assert world.observe_critic(state).shape == (2, world.critic_size)


# Rewards and ends


def test_the_reward_is_the_sum_of_its_terms():
    world, state, action = shaken()
    world = replace(world, rewards=dict.fromkeys(TERMS, 0.7))
    moved = world.step(state, action, moves(world, 6, 0))
    parts = [value for name, value in moved.terms.items() if name.startswith("reward_")]
    assert len(parts) == len(TERMS)
    np.testing.assert_allclose(sum(parts), moved.reward, atol=1e-12)
    np.testing.assert_allclose(moved.terms["reward_alive"], 0.7 * 0.02)


def test_terms_against_a_slow_calculation():
    world, state, action = shaken()
    world = replace(world, rewards=dict.fromkeys(TERMS, 1 / 0.02))
    moved = world.step(state, action, moves(world, 6, 0))
    after, robot, model = moved.state, world.body, world.body.model
    import mujoco

    data = mujoco.MjData(model)
    for k in range(6):
        data.qpos[:], data.qvel[:] = after.qpos[k], after.qvel[k]
        mujoco.mj_forward(model, data)
        q, v = after.qpos[k][robot.columns], after.qvel[k][robot.speeds]
        target = np.clip(robot.home + 0.5 * np.clip(action[k], -1, 1), robot.low, robot.high)
        torque = np.clip(21.1 * (target - q) - 0.5 * v, -4, 4)
        rotation = data.body("pelvis").xmat.reshape(3, 3)
        yaw = math.atan2(rotation[1, 0], rotation[0, 0])
        ahead = np.cos(yaw) * after.qvel[k, 0] + np.sin(yaw) * after.qvel[k, 1]
        left = np.cos(yaw) * after.qvel[k, 1] - np.sin(yaw) * after.qvel[k, 0]
        wanted = {
            "velocity": np.exp(-((ahead - state.command[k, 0]) ** 2 + (left - state.command[k, 1]) ** 2) / 0.1**2),
            "orientation": np.sin(np.arccos(rotation[2, 2])) ** 2,
            "height": (after.qpos[k, 2] - robot.height) ** 2,
            "action_rate": ((np.clip(action[k], -1, 1) - state.action[k]) ** 2).sum(),
            "torque": (torque**2).sum(),
            "energy": np.abs(torque * v).sum(),
            "pose": ((q - robot.home) ** 2).sum(),
        }
        for name, value in wanted.items():
            assert moved.terms[f"reward_{name}"][k] == pytest.approx(value, rel=1e-9), name


def test_the_clock_lifts_one_foot_after_the_other():
    world = Biped(threads=1, swing_height=0.05)
    state = replace(begin(world, 4), phase=np.array([0.5, 1.5, 0.5, 0.0]) * math.pi)
    state = replace(state, command=np.array([[0.1, 0, 0], [0.1, 0, 0], [0, 0, 0], [0.1, 0, 0]]))
    np.testing.assert_allclose(wanted_heights(world, state), [[0.05, 0], [0, 0.05], [0, 0], [0, 0]], atol=1e-12)
    assert (world.observe(state)[2, -2:] == 0).all() and world.observe(state)[0, -2] == 1


def test_the_clock_comes_round():
    world = Biped(threads=1, gait_period=0.2)
    state = begin(world, 3)
    after = play(world, state, np.zeros((10, 3, 10)))[-1].state
    turned = np.exp(1j * after.phase) / np.exp(1j * state.phase)
    np.testing.assert_allclose(turned, 1, atol=1e-9)
    assert (after.phase < 2 * math.pi).all() and (after.time == 10).all()


@pytest.mark.parametrize(
    ("change", "fallen"),
    [
        ({}, False),
        ({2: 0.28}, True),
        ({2: 0.72}, True),
        ({3: math.cos(0.39), 4: math.sin(0.39)}, False),
        ({3: math.cos(0.41), 4: math.sin(0.41)}, True),
        ({3: math.cos(0.41), 5: -math.sin(0.41)}, True),
        ({3: math.cos(0.41), 6: math.sin(0.41)}, False),
    ],
)
def test_it_has_fallen_when_low_high_or_tilted(change, fallen):
    world = Biped(**CALM)
    state = begin(world, 1)
    qpos = state.qpos.copy()
    for column, value in change.items():
        qpos[0, column] = value
    assert world.fallen(world.see(replace(state, qpos=qpos)))[0] == fallen


def test_a_robot_without_power_falls_and_is_terminated():
    world = Biped(action_scale=1.0, **CALM)
    crouch = np.tile([1.0, 0, -1.0, 1.0, 0], 2)[None]
    found = play(world, begin(world, 1), [crouch] * 60)
    assert found[-1].terminated.all() or any(moved.terminated.any() for moved in found)
    assert not found[0].terminated.any()


def test_energy_is_not_made_from_nothing():
    # Without servos, damping and contact, the energy of a robot thrown into the air stays what it is.
    import copy

    import mujoco

    robot = load_robot("biped")
    model = copy.copy(robot.model)
    model.actuator_gainprm[:] = model.actuator_biasprm[:] = 0
    model.dof_damping[:] = 0
    model.opt.timestep = 0.0002
    model.jnt_limited[:] = 0
    world = Biped(robot=replace(robot, model=model), substeps=100, threads=1)
    rng = np.random.default_rng(0)
    qpos, qvel = np.tile(robot.home_qpos, (3, 1)), rng.normal(size=(3, 16))
    qpos[:, 2] += 2
    after = world.physics(qpos, qvel, np.zeros((3, 10)), np.zeros((3, 2)), begin(world, 3).variation)
    data = mujoco.MjData(model)

    def energy(qpos, qvel):
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_forward(model, data)
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        return data.energy.sum()

    for k in range(3):
        assert energy(after[0][k], after[1][k]) == pytest.approx(energy(qpos[k], qvel[k]), rel=2e-3)
        assert not np.allclose(after[0][k], qpos[k], atol=1e-3)


# Actions


def test_actions_move_targets_about_home_within_the_joints_range():
    world = Biped(action_scale=2.0, **CALM)
    robot = world.body
    np.testing.assert_array_equal(world.target(np.zeros((1, 10)))[0], robot.home)
    np.testing.assert_array_equal(world.target(np.ones((1, 10)))[0], np.minimum(robot.home + 2, robot.high))
    state, rng = begin(world, 2), np.random.default_rng(0)
    action = rng.uniform(1, 3, (2, 10)) * rng.choice([-1, 1], (2, 10))
    a, b = (world.step(state, x, moves(world, 2, 0)) for x in (action, np.clip(action, -1, 1)))
    np.testing.assert_array_equal(a.state.qpos, b.state.qpos)
    np.testing.assert_array_equal(a.state.action, np.sign(action))


def test_scales_by_joint():
    world = Biped(action_scale=0.3, action_scales={"knee": 0.6, "left_hip_roll": 0.1}, **CALM)
    assert world.scale.tolist() == [0.3, 0.1, 0.6, 0.3, 0.3, 0.3, 0.3, 0.6, 0.3, 0.3]
    target = world.target(np.full((1, 10), 0.5))[0]
    np.testing.assert_allclose(target, world.body.home + 0.5 * world.scale)
    with pytest.raises(UnknownName, match="unknown joint of biped 'elbow'"):
        _ = Biped(action_scales={"elbow": 1.0}).scale


def test_the_filter_and_the_delay():
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (3, 2, 10))
    plain, slow, late = (Biped(**CALM, **more) for more in ({}, {"action_filter": 0.6}, {"action_delay": True}))
    found = play(slow, begin(slow, 2), actions)
    wanted = np.zeros((2, 10))
    for moved, action in zip(found, actions, strict=True):
        wanted = 0.6 * wanted + 0.4 * action
        np.testing.assert_allclose(moved.state.applied, wanted, atol=1e-12)
    delayed = play(late, begin(late, 2), actions)
    np.testing.assert_array_equal(delayed[0].state.applied, 0)
    np.testing.assert_array_equal(delayed[2].state.applied, actions[1])
    shifted = play(plain, begin(plain, 2), np.concatenate([np.zeros((1, 2, 10)), actions[:2]]))
    np.testing.assert_array_equal(delayed[2].state.qpos, shifted[2].state.qpos)


# What is seen


def test_history_holds_the_frames_before():
    world = Biped(history=2, threads=1)
    rng = np.random.default_rng(0)
    states = [begin(world, 3)]
    states += [moved.state for moved in play(world, states[0], rng.uniform(-1, 1, (4, 3, 10)))]
    frames = [world.sense(state) for state in states]
    np.testing.assert_array_equal(states[0].history, np.stack([frames[0]] * 2, 1))
    np.testing.assert_array_equal(states[1].history, np.stack([frames[0]] * 2, 1))
    np.testing.assert_array_equal(states[4].history, np.stack([frames[2], frames[3]], 1))
    seen = world.observe(states[4])
    np.testing.assert_array_equal(seen[:, : world.frame_size], frames[4])
    np.testing.assert_array_equal(seen[:, -2 * world.frame_size :], np.concatenate(frames[2:4], 1))


def test_what_is_seen_at_home():
    world = Biped(**CALM)
    seen = world.observe(begin(world, 1))[0]
    np.testing.assert_allclose(seen[:3], [0, 0, -1], atol=1e-12)
    np.testing.assert_allclose(seen[3:26], 0, atol=1e-12)
    assert seen[26:28].tolist() == [1, 1] and (seen[28:38] == 0).all()


def test_sensor_noise_and_joint_offsets_change_what_is_seen():
    ranges = Ranges(gyro_noise=0.5, joint_offset=0.1)
    world, plain = Biped(ranges=ranges, **CALM), Biped(**CALM)
    state = begin(world, 200)
    exact = replace(state, variation=replace(state.variation, offset=np.zeros((200, 10))))
    difference = world.observe(state) - plain.observe(exact)
    assert difference[:, 3:6].std() == pytest.approx(0.5 * 0.25, rel=0.1)
    np.testing.assert_allclose(difference[:, 6:16], -state.variation.offset, atol=1e-12)
    assert 0.09 < np.abs(state.variation.offset).max() <= 0.1
    assert (difference[:, [0, 1, 2]] == 0).all() and (difference[:, 16:] == 0).all()
    other = world.step(state, np.zeros((200, 10)), moves(world, 200, 0)).state
    assert (other.noise[:, 3:6] != state.noise[:, 3:6]).all()


# Beginnings, commands and disturbances


@pytest.mark.parametrize("name", ROBOTS)
def test_beginnings_are_near_home_with_a_foot_on_the_floor(name):
    world = Biped(robot=name, threads=1)
    state = begin(world, 500)
    robot, pose = world.body, world.see(state).pose
    away = state.qpos[:, robot.columns] - robot.home
    assert 0.045 < np.abs(away).max() <= 0.05
    np.testing.assert_allclose(pose.foot_height.min(1), 1e-6, atol=1e-9)
    tilt = np.arccos(pose.rotation[:, 2, 2])
    assert 0.09 < tilt.max() < 0.1 * math.sqrt(2) + 1e-9 and (state.qvel == 0).all()
    calm = begin(Biped(robot=name, **CALM), 2)
    np.testing.assert_allclose(calm.qpos, np.stack([robot.home_qpos] * 2), atol=2e-6)
    assert not world.fallen(world.see(state)).any()


def test_commands_are_drawn_again_from_time_to_time():
    world = Biped(
        threads=1,
        command_every=3,
        command_ahead=(0.1, 0.3),
        command_left=(-0.1, 0.1),
        command_turn=(-0.5, -0.2),
        command_zero=0.25,
    )
    state = begin(world, 400)
    moved = play(world, state, np.zeros((4, 400, 10)))
    commands = [state.command, *(each.state.command for each in moved)]
    for k in (1, 2, 4):
        np.testing.assert_array_equal(commands[k], commands[k - 1])
    assert (commands[3] != commands[2]).any(1).mean() > 0.9
    still = (commands[3] == 0).all(1)
    assert 0.18 < still.mean() < 0.32
    going = commands[3][~still]
    assert (going >= [0.1, -0.1, -0.5]).all() and (going <= [0.3, 0.1, -0.2]).all()
    assert (going.std(0) > [0.05, 0.05, 0.07]).all()


def test_the_reward_is_for_the_command_that_was_seen():
    world = Biped(threads=1, command_every=1, rewards={"velocity": 1.0})
    state = begin(world, 50)
    moved = world.step(state, np.zeros((50, 10)), moves(world, 50, 0))
    assert (moved.state.command != state.command).any()
    seen = world.see(replace(moved.state, command=state.command))
    np.testing.assert_array_equal(moved.reward, world.reward_terms(seen)["velocity"])


def test_pushes_move_it_and_end():
    world = make_biped("stand", push_every=1, push_force=(5.0, 5.0), push_steps=4, **CALM)
    state, still = begin(world, 8), np.zeros((8, 10))
    draws = {**moves(world, 8, 0), "push": np.stack([np.full(8, 1e-3), np.arange(8) / 8, np.full(8, 0.5)], -1)}
    none = {**draws, "push": np.full((8, 3), 0.9999999)}
    quiet = Biped(**CALM)
    pushed = [world.step(state, still, draws)]
    for _ in range(6):
        pushed.append(world.step(pushed[-1].state, still, {**none, "push": none["push"] + 1}))
    forces = np.stack([moved.state.push for moved in pushed])
    np.testing.assert_allclose(np.linalg.norm(forces[:4], axis=-1), 5)
    np.testing.assert_allclose(forces[:4], forces[:1].repeat(4, 0))
    assert (forces[4:] == 0).all() and [int(moved.state.push_left[0]) for moved in pushed] == [3, 2, 1, 0, 0, 0, 0]
    alone = play(quiet, begin(quiet, 8), [still] * 4)[-1].state
    way = (pushed[3].state.qvel - alone.qvel)[:, :2]
    along = (way * forces[0]).sum(1) / 5
    assert (along > 0.02).all() and (np.linalg.norm(way - along[:, None] * forces[0] / 5, axis=1) < along).all()


def test_pushes_come_about_as_often_as_they_should():
    world = make_biped("stand", push_every=20, push_steps=5, threads=1)
    state = begin(world, 200)
    begun = 0
    for k in range(60):
        push, left = world._push(state, moves(world, 200, k))
        begun += (left == 4).sum()
        size = np.linalg.norm(push[left > 0], axis=1)
        assert ((size >= world.push_force[0]) & (size <= world.push_force[1])).all()
        state = replace(state, push=push, push_left=left)
    # A world waits 20 steps on average, and is then pushed for 5 of which the first is the 20th.
    assert begun / 200 / 60 == pytest.approx(1 / 24, rel=0.1)


@pytest.mark.parametrize("name", ROBOTS)
def test_what_happens_in_a_mirror_is_the_mirror_of_what_happens(name):
    world = Biped(robot=name, threads=1, reset_joints=0.2)
    rng = np.random.default_rng(5)
    state = begin(world, 20)
    action = rng.uniform(-1, 1, (20, world.actions.size))
    push = rng.normal(size=(20, 2)) * 3
    flat = world.body.free
    for _ in range(5):
        ahead = world.physics(state.qpos, state.qvel, world.target(action), push, state.variation)
        there = mirror_motion(world.body, state.qpos, state.qvel)
        target = world.target(mirror_joints(world.body, action))
        back = push * [1, -1] if flat else push
        swapped = world.physics(*there, target, back, state.variation)
        for a, b in zip(mirror_motion(world.body, *swapped), ahead, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-7)
        state = replace(state, qpos=ahead[0], qvel=ahead[1])


# Domain randomisation


@pytest.mark.parametrize(
    "change", [{"friction": (0.1, 0.11)}, {"mass": (1.5, 1.6)}, {"gain": (0.5, 0.6)}, {"joint_offset": 0.1}]
)
def test_each_variation_changes_the_physics(change):
    plain, varied = Biped(**CALM), Biped(ranges=Ranges(**change), **CALM)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (6, 3, 10))
    a, b, again = (play(world, begin(world, 3), actions)[-1].state for world in (plain, varied, varied))
    assert (np.abs(a.qpos - b.qpos).max(1) > 1e-4).all()
    np.testing.assert_array_equal(b.qpos, again.qpos)
    assert np.ptp(b.qpos[:, 2]) > 0


def test_worlds_keep_their_own_variation():
    # Models are kept from call to call; each world must be stepped with its own, whatever came before.
    world = Biped(ranges=VARIED, **CALM)
    state = begin(world, 6)
    action = np.random.default_rng(0).uniform(-1, 1, (6, 10))
    together = world.step(state, action, moves(world, 6, 0)).state.qpos
    order = np.array([3, 0, 5, 1, 4, 2])
    shuffled = tree.map_leaves(lambda x: x[order], state)
    np.testing.assert_array_equal(world.step(shuffled, action[order], moves(world, 6, 0)).state.qpos, together[order])
    some = tree.map_leaves(lambda x: x[4:], state)
    np.testing.assert_array_equal(world.step(some, action[4:], moves(world, 2, 0)).state.qpos, together[4:])
    assert Biped().ranges == Ranges() and not Ranges().physical and not Ranges().sensed


def test_seeds_that_take_turns_do_not_rewrite_each_other(monkeypatch):
    from twinax.envs.biped import _physics_c

    world, written = Biped(ranges=VARIED, **CALM), []
    fields = _physics_c.varied_fields
    monkeypatch.setattr(_physics_c, "varied_fields", lambda *args: written.append(1) or fields(*args))
    one, other = begin(world, 4, seed=1), begin(world, 4, seed=2)
    action = np.zeros((4, 10))
    first = [world.step(state, action, moves(world, 4, 0)).state.qpos for state in (one, other)]
    assert len(written) == 8
    again = [world.step(state, action, moves(world, 4, 0)).state.qpos for state in (one, other)]
    assert len(written) == 8
    np.testing.assert_array_equal(first, again)


def test_dry_friction_holds_joints_back():
    plain, rough = (Biped(frictionloss=f, **CALM) for f in (0.0, 0.5))
    action = np.random.default_rng(0).uniform(-1, 1, (4, 10))
    fast, slow = (np.abs(play(world, begin(world), [action])[-1].state.qvel[:, 6:]).sum() for world in (plain, rough))
    assert slow < 0.9 * fast


# What goes wrong


def test_broken_physics_ends_the_world_and_is_told():
    world = Biped(**CALM)
    state = begin(world, 3)
    qvel = state.qvel.copy()
    qvel[1, 0] = np.nan
    moved = world.step(replace(state, qvel=qvel), np.zeros((3, 10)), moves(world, 3, 0))
    assert moved.terminated.tolist() == [False, True, False] and moved.terms["broken"].tolist() == [0, 1, 0]
    np.testing.assert_array_equal(moved.state.qpos[1], state.qpos[1])
    alone = world.step(state, np.zeros((3, 10)), moves(world, 3, 0))
    np.testing.assert_array_equal(moved.state.qpos[0], alone.state.qpos[0])


def test_physics_that_blows_up_on_the_way_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = Biped(**CALM)
    state = begin(world, 2)
    qvel = state.qvel.copy()
    qvel[0, 6:] = 1e8
    moved = world.step(replace(state, qvel=qvel), np.zeros((2, 10)), moves(world, 2, 0))
    assert moved.terms["broken"].tolist() == [1, 0] and moved.terminated.tolist() == [True, False]
    assert np.isfinite(world.observe(moved.state)[1]).all()
    assert not list(tmp_path.iterdir()), "MuJoCo wrote a log"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runner": "warp"}, "unknown runner 'warp'; known: c, callback, mjx"),
        ({"substeps": 0}, "substeps is 0; it must be at least 1"),
        ({"history": -1}, "history is -1; it must be at least 0"),
        ({"gait_period": 0.0}, "gait_period is 0.0; it must be above 0"),
        ({"action_filter": 1.0}, "action_filter is 1.0; it must be at least 0 and below 1"),
        ({"command_zero": 2.0}, "command_zero is 2.0; it must be between 0 and 1"),
        ({"push_force": (5.0, 2.0)}, r"push_force is \(5.0, 2.0\); the smaller one must come first"),
        ({"command_ahead": (0.1,)}, "command_ahead needs two numbers, lowest and highest, but was given 1"),
        ({"height_band": (1, 2, 3)}, "height_band needs two numbers, lowest and highest, but was given 3"),
        ({"push_force": 2.0}, "push_force needs two numbers, lowest and highest, but was given 2.0"),
        ({"rewards": {"allive": 1.0}}, "unknown term of the reward 'allive'.*Did you mean 'alive'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(TwinaxError, match=message):
        Biped(**settings)


def test_other_refusals():
    world = Biped(**CALM)
    state = begin(world, 2)
    with pytest.raises(TwinaxError, match=r"the action has shape \(2, 9\); 2 worlds of biped need \(2, 10\)"):
        world.step(state, np.zeros((2, 9)), moves(world, 2, 0))
    with pytest.raises(TwinaxError, match="there are 0 worlds; there must be at least 1"):
        world.reset_draws(0)
    with pytest.raises(UnknownName, match="unknown task 'run'; known: stand, walk"):
        make_biped("run")
    with pytest.raises(TwinaxError, match=r"friction is \(1.0, 0.4\); it must be two factors above 0"):
        Ranges(friction=(1.0, 0.4))
    with pytest.raises(TwinaxError, match="mass needs two numbers, lowest and highest, but was given 1"):
        Ranges(mass=(1.0,))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TwinaxError, match="gyro_noise is -1; it must be at least 0"):
        Ranges(gyro_noise=-1)


def test_a_world_can_be_compared_and_hashed():
    assert Biped() == Biped() and hash(Biped()) == hash(Biped()) and Biped() != make_biped("stand")


# Within JAX


def test_a_jitted_scan_of_200_steps_of_256_worlds(quick_compilation):
    world = Biped(runner="callback", substeps=1)
    state = jax.tree.map(jnp.asarray, world.reset(numpy_draws(world.reset_draws(256), 0, 0)))
    draws = jax.tree.map(jnp.asarray, numpy_draws(world.step_draws(256), 0, 0))

    @jax.jit
    def run(state):
        def body(state, _):
            return world.step(state, jnp.zeros((256, 10)), draws).state, None

        return jax.lax.scan(body, state, length=200)[0]

    after = run(state)
    assert (np.asarray(after.time) == 200).all() and (np.asarray(after.qpos[:, 2]) > 0.4).all()
    assert world.frameworks == ("jax",)


def test_seeds_side_by_side_are_one_call(double_precision, quick_compilation):
    world, state, action = shaken()
    calls = []
    rows = world.physics._rows
    physics = world.physics

    class Counting(type(physics)):
        def __init__(self):
            self.__dict__.update(physics.__dict__)

        def _rows(self, given):
            calls.append(given.shape[:-1])
            return rows(given)

    counting = Counting()
    arguments = (state.qpos, state.qvel, world.target(action), state.push, state.variation)
    wanted = physics(*arguments)
    seeds = jax.tree.map(lambda x: jnp.asarray(np.stack([x, x[::-1]])), arguments)
    found = jax.jit(jax.vmap(counting))(*seeds)
    assert calls == [(2, 6)]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a[0]), b, atol=1e-12)
        np.testing.assert_allclose(np.asarray(a[1]), b[::-1], atol=1e-12)
    # One world, mapped: the same one call.
    single = jax.jit(jax.vmap(lambda *x: jax.tree.map(lambda y: y[0], counting(*jax.tree.map(lambda y: y[None], x)))))
    one = single(*jax.tree.map(jnp.asarray, arguments))
    assert calls[1:] == [(6, 1)]
    np.testing.assert_allclose(np.asarray(one[0]), wanted[0], atol=1e-12)
