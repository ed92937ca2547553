"""Style from reference motion: the discriminator's loss, agreement of the modes, and mismatches found beforehand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from twinax import ops, tree
from twinax.engines import make_engine
from twinax.envs import Pendulum
from twinax.envs._reference import Feature, Reference
from twinax.errors import TwinaxError
from twinax.networks import input_gradient
from twinax.optimizer import Optimizer
from twinax.ppo import LABELS, AmpOptions, amp, discriminator_loss, problem
from twinax.ppo._networks import make_mlp

pytestmark = pytest.mark.usefixtures("quick_compilation")


def small_net(act="elu", width=5):
    net = make_mlp(np.random.default_rng(0), width, (7, 6), 1, act, 1.0)
    return tree.map_leaves(lambda x: x.astype(np.float64), net)


@pytest.mark.parametrize("act", ["relu", "tanh", "elu", "silu"])
def test_the_gradient_at_an_input_is_the_one_of_differentiation(act, double_precision):
    import jax

    net, x = small_net(act), np.random.default_rng(1).normal(size=(9, 5))
    wanted = jax.vmap(jax.grad(lambda row: net(row[None])[0, 0]))(jax.numpy.asarray(x))
    np.testing.assert_allclose(input_gradient(net, x), wanted, atol=1e-12)


@pytest.mark.parametrize("labels", LABELS)
def test_the_loss_and_its_gradient_are_torchs(labels, double_precision):
    torch = pytest.importorskip("torch")
    import jax

    net, rng = small_net(), np.random.default_rng(2)
    real, fake = rng.normal(size=(2, 11, 5))
    kind = LABELS[labels]
    value, terms = discriminator_loss(net, real, fake, kind, 3.0)
    tensors = tree.map_leaves(lambda x: torch.tensor(x, requires_grad=True), net)
    x = torch.tensor(real, requires_grad=True)
    of_real, of_fake = tensors(x)[:, 0], tensors(torch.tensor(fake))[:, 0]
    slope = torch.autograd.grad(of_real.sum(), x, create_graph=True)[0]
    theirs = 0.5 * ((of_real - kind.real) ** 2).mean() + 0.5 * ((of_fake - kind.fake) ** 2).mean()
    theirs = theirs + 1.5 * (slope**2).sum(-1).mean()
    np.testing.assert_allclose(value, theirs.item(), rtol=1e-12)
    theirs.backward()
    ours = jax.grad(lambda n: discriminator_loss(n, real, fake, kind, 3.0)[0])(net)
    for name, wanted in tree.named_leaves(tensors).items():
        np.testing.assert_allclose(tree.named_leaves(ours)[name], wanted.grad, atol=1e-10, err_msg=name)
    assert 0 <= terms["style_accuracy"] <= 1


def test_the_reward_goes_by_the_labels():
    for kind in LABELS.values():
        at = np.array([kind.real, kind.fake, 5.0, -5.0])
        reward = kind.reward(at)
        assert reward[0] == 1 and reward[1] == 0 and 0 <= reward.min() and reward.max() <= 1


LAYOUT = (Feature("angle/pole", "rad"), Feature("speed/pole", "rad/s"))


def swing(frames=60, rate=20.0):
    """A pole that swings by half a radian, once in two seconds."""
    t = np.arange(frames) / rate
    angle = np.pi + 0.5 * np.sin(np.pi * t)
    return Reference(LAYOUT, np.stack([angle, 0.5 * np.pi * np.cos(np.pi * t)], 1), rate)


def pole_features(state):
    return ops.stack([state.angle, state.spin], -1)


def subject(**changes):
    options = AmpOptions(hidden=(6, 5), batch=8, updates=2, memory=20, kept=6, remembered=0.5)
    settings = {"hidden": (8, 8), "worlds": 6, "steps": 8, "epochs": 2, "minibatches": 3, "episodes": 3, "groups": 2}
    return problem(
        Pendulum(time_limit=6),
        optimizer=Optimizer(learning_rate=1e-3, separate=True, clip_norm=0.5, rates={"discriminator": 1e-4}),
        hooks=amp(swing(), pole_features, 0.05, options),
        normalise_rewards=True,
        **{**settings, **changes},
    )


def test_modes_agree_on_iterations_with_style():
    found = {}
    for mode in ("torch", "jax"):
        engine = make_engine(mode, subject(), dtype="float64", chunk=5)
        engine.start(0)
        logs = engine.run(5)
        found[mode] = {**logs, **tree.named_leaves(engine.state()), **engine.evaluate()}
    assert found["torch"].keys() == found["jax"].keys()
    for label, want in found["torch"].items():
        np.testing.assert_allclose(found["jax"][label], want, rtol=1e-9, atol=1e-10, err_msg=label)
    # Each network counts its own updates: two epochs of three minibatches, and two of the discriminator.
    counts = {name: int(found["jax"][f"optimizer.count.{name}"]) for name in ("agent", "discriminator")}
    assert counts == {"agent": 30, "discriminator": 10}
    # Memory of ten places for each group has met three rows five times.
    assert found["jax"]["carry.hooks.filled"].tolist() == [10, 10]
    assert found["jax"]["carry.hooks.next"].tolist() == [5, 5]


def test_the_reward_is_task_and_style():
    one = subject()
    state = one.init(0)
    from twinax.noise import numpy_draws

    _, happened = one.rollout(state, numpy_draws(one.draws(), 0, 0))
    reward, terms = one.hooks.reward(state.networks, happened.recorded, happened.reward)
    np.testing.assert_allclose(reward, happened.reward + 0.5 * 0.05 * terms["style_reward"], rtol=1e-5)
    assert happened.recorded.shape == (8, 6, 4)


def test_steps_stay_within_clips():
    reference = dataclasses.replace(swing(10), starts=(0, 4))
    steps = reference.steps()
    assert len(steps) == 8
    np.testing.assert_allclose(steps[3], np.concatenate([reference.frames[4], reference.frames[5]]), rtol=1e-6)


def test_a_reference_has_no_distance_from_itself_and_some_from_others():
    reference = swing(400)
    values = np.concatenate([reference.frames, reference.frames], 1)[:, None]
    alive = np.ones((400, 1), bool)
    assert reference.distance({"values": values, "alive": alive})["gait_distance"] < 1e-6
    assert reference.distance({"values": values + [1, 0, 0, 0], "alive": alive})["gait_distance"] > 1


def test_files_keep_everything(tmp_path):
    reference = dataclasses.replace(swing(10), starts=(0, 4))
    reference.save(tmp_path / "swing.npz")
    again = Reference.load(tmp_path / "swing.npz")
    assert again.layout == reference.layout and again.starts == (0, 4) and again.rate == 20
    np.testing.assert_array_equal(again.frames, reference.frames)
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    with pytest.raises(TwinaxError, match="not a file of reference motion"):
        Reference.load(tmp_path / "broken.npz")


def changed(**parts):
    return dataclasses.replace(swing(), **parts)


BAD_FRAMES = swing().frames.copy()
BAD_FRAMES[7, 1] = np.nan


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (changed(layout=LAYOUT[::-1]), "speed/pole at place 0, where the robot has angle/pole"),
        (changed(layout=(LAYOUT[0], Feature("speed/pole", "deg/s"))), "the unit 'deg/s'"),
        (changed(layout=(LAYOUT[0], Feature("speed/pole", "rad/s", "world"))), "the frame 'world'"),
        (changed(layout=(LAYOUT[0], Feature("speed/cart", "m/s"))), r"lacks the features \['speed/pole'\]"),
        (changed(rate=30.0), "30 frames a second and the robot 20"),
        (changed(frames=swing().frames * [1, 180 / np.pi]), "57.* times the change of angle/pole"),
        (changed(frames=swing().frames * [1, 0.1]), "0.10 times the change of angle/pole"),
        (changed(frames=BAD_FRAMES), "frame 7 of the reference has speed/pole = nan"),
        (changed(frames=swing().frames + [3, 0]), "goes from .* are its units or its zero others"),
        (changed(frames=swing().frames[:2]), "at least 3"),
    ],
)
def test_mismatches_are_found_before_training(reference, words):
    swing().check(LAYOUT, 20.0, {"pole": (2.0, 4.0)})
    with pytest.raises(TwinaxError, match=words):
        reference.check(LAYOUT, 20.0, {"pole": (2.0, 4.0)})


@pytest.fixture(scope="module")
def world():
    pytest.importorskip("mujoco")
    from twinax.envs.biped import make_biped

    return make_biped("walk")


class TestBiped:
    """The robot's own features and its scripted gait."""

    def test_the_scripted_gait_fits_the_robot(self, world):
        from twinax.envs.biped import check_reference, scripted_gait

        check_reference(world, scripted_gait(world))

    def test_its_features_are_those_of_states_in_its_pose(self, world):
        """Set the robot into the gait's frames: what is measured there is what the gait says."""
        from twinax.envs.biped import motion_features, scripted_gait
        from twinax.noise import numpy_draws

        gait = scripted_gait(world, seconds=0.64)
        joints = len(world.body.joints)
        state = world.reset(numpy_draws(world.reset_draws(len(gait.frames)), 0, 0))
        qpos = np.tile(world.body.home_qpos, (len(gait.frames), 1))
        qpos[:, world.body.columns] = gait.frames[:, :joints]
        qvel = np.zeros((len(gait.frames), world.body.model.nv))
        qvel[:, world.body.speeds] = gait.frames[:, joints : 2 * joints]
        qvel[:, 0] = 0.2
        state = dataclasses.replace(state, qpos=qpos, qvel=qvel)
        np.testing.assert_allclose(motion_features(world, state), gait.frames, atol=1e-6)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ("swap", "at place 0, where the robot has angle/left_hip_pitch"),
            ("contacts", "contact/left is 0 in all frames"),
            ("slow", "goes ahead at 0.80 m/s"),
        ],
    )
    def test_known_mistakes_are_found(self, world, change, words):
        from twinax.envs.biped import check_reference, scripted_gait

        gait = scripted_gait(world)
        names = [feature.name for feature in gait.layout]
        if change == "swap":
            order = list(range(len(names)))
            order[0], order[5] = order[5], order[0]
            gait = dataclasses.replace(gait, layout=tuple(gait.layout[k] for k in order), frames=gait.frames[:, order])
        else:
            frames = gait.frames.copy()
            column = "contact/left" if change == "contacts" else "velocity/ahead"
            frames[:, names.index(column)] = 0.0 if change == "contacts" else 0.8
            gait = dataclasses.replace(gait, frames=frames)
        with pytest.raises(TwinaxError, match=words):
            check_reference(world, gait)
