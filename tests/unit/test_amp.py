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
from twinax.ppo._playing import roll_out

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
    assert 0 <= terms.shown["style_accuracy"] <= 1


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
    settings = {
        "hidden": (8, 8),
        "num_envs": 6,
        "num_steps": 8,
        "num_epochs": 2,
        "num_minibatches": 3,
        "episodes": 3,
        "groups": 2,
    }
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
        engine = make_engine(subject(), mode=mode, dtype="float64", chunk=5)
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
    assert found["jax"]["carry.hooks.written"].tolist() == [15, 15]


def test_the_reward_is_task_and_style():
    one = subject()
    state = one.init(0)
    from twinax.noise import numpy_draws

    _, happened = roll_out(one, state, numpy_draws(one.draws(), 0, 0))
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


def stored(**changes):
    """A file's arrays, some of them changed."""
    layout = {part: np.array([getattr(f, part) for f in LAYOUT]) for part in ("name", "unit", "frame")}
    return {"frames": swing(10).frames, "rate": 20.0, "starts": np.array([0]), **layout, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit": np.array(["rad"])}, "has 2, 1, 2 entries of name, unit and frame"),
        ({"rate": np.array([20.0, 30.0])}, r"the rate in .* shape \(2,\); it must be one number"),
        ({"rate": 0.0}, "the rate of a reference is 0.0; it must be one number above 0"),
        ({"rate": "fast"}, "the rate in .*it must be one number"),
        ({"starts": np.array([0, 10])}, r"start at frames \[0, 10\]; .* below its 10 frames"),
        ({"starts": np.array([4, 0])}, r"start at frames \[4, 0\]"),
        ({"starts": np.array([], int)}, r"start at frames \[\]"),
        ({"starts": np.array([0.5])}, "must be a row of whole numbers"),
        ({"frames": swing(10).frames[:, 0]}, r"float64 of shape \(10,\); they must be numbers of shape \(frames, 2\)"),
        ({"frames": swing(10).frames[:, :1]}, r"of shape \(10, 1\); they must be"),
        ({"frames": np.array([["a", "b"]] * 4)}, "they must be numbers"),
        ({"frames": np.array([[None, 1]] * 4)}, "holds Python objects"),
    ],
)
def test_broken_files_are_one_sentence(tmp_path, changes, words):
    np.savez(tmp_path / "swing.npz", **stored())
    assert Reference.load(tmp_path / "swing.npz").rate == 20
    np.savez(tmp_path / "swing.npz", **stored(**changes))
    with pytest.raises(TwinaxError, match=words) as found:
        Reference.load(tmp_path / "swing.npz")
    assert "\n" not in str(found.value)


def test_what_is_no_file_of_motion_is_one_sentence(tmp_path):
    path = tmp_path / "swing.npz"
    with pytest.raises(TwinaxError, match="cannot be read: No such file"):
        Reference.load(path)
    with pytest.raises(TwinaxError, match="cannot be read: Is a directory"):
        Reference.load(tmp_path)
    for content in (b"", b"nothing", b"PK\x03\x04 nothing"):
        path.write_bytes(content)
        with pytest.raises(TwinaxError, match="not a file of reference motion"):
            Reference.load(path)
    swing().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TwinaxError, match="it is cut off, damaged, or holds Python objects"):
        Reference.load(path)
    path.write_bytes(whole[:300] + b"?" * 40 + whole[340:])
    with pytest.raises(TwinaxError, match="it is cut off, damaged, or holds Python objects"):
        Reference.load(path)
    with open(path, "wb") as file:
        np.save(file, swing().frames)
    with pytest.raises(TwinaxError, match="it is no npz"):
        Reference.load(path)
    np.savez(path, frames=swing().frames)
    with pytest.raises(TwinaxError, match="it has no rate, starts, name, unit, frame"):
        Reference.load(path)


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
        (changed(frames=swing().frames[:2]), "2 frames in 1 clips; it needs at least 3"),
        (changed(frames=swing().frames[:3], starts=(0, 1)), "3 frames in 2 clips; it needs at least 3"),
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

    @pytest.mark.parametrize("robot", ["biped", "humanoid", "planar"])
    @pytest.mark.parametrize("speed", [0.0, 0.065, 0.2, 0.35])
    def test_scripted_gaits_fit_every_robot_and_so_they_do_with_noise(self, robot, speed):
        from twinax.envs.biped import check_reference, make_biped, scripted_gait

        world = make_biped("walk", robot=robot)
        gait = scripted_gait(world, speed)
        check_reference(world, gait)
        noise = np.random.default_rng(0).normal(size=gait.frames.shape)
        sizes = {"angle": 0.01, "velocity": 0.02}
        noise *= [sizes.get(feature.name.partition("/")[0], 0.0) for feature in gait.layout]
        check_reference(world, dataclasses.replace(gait, frames=gait.frames + noise))

    def test_a_mirrored_gait_is_a_gait(self, world):
        """Half a period later the scripted gait is its own mirror image."""
        from twinax.envs.biped import check_reference, scripted_gait

        gait = scripted_gait(world, 0.2)
        check_reference(world, exchanged(gait, ("angle", "speed", "contact"), "left", "right"))

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
            (lambda g: reordered(g, 0, 5), "at place 0, where the robot has angle/left_hip_pitch"),
            (lambda g: set_to(g, "contact/left", 0.0), "contact/left is 0 in all frames"),
            (lambda g: exchanged(g, ("angle", "speed"), "hip_pitch", "knee"), "joints of the leg exchanged"),
            (lambda g: exchanged(g, ("angle", "speed"), "left_hip_pitch", "left_knee"), "the reference's left foot is"),
            (lambda g: exchanged(g, ("angle", "speed"), "knee", "ankle_pitch"), "goes from .* but the joint from"),
            (lambda g: exchanged(g, ("angle", "speed"), "left", "right"), "in 0% .* left and right exchanged"),
            (lambda g: exchanged(g, ("angle", "speed"), "left_knee", "right_knee"), "in 0% .* is the lower one"),
            (lambda g: exchanged(g, ("contact",), "left", "right"), "in 0% .* left and right exchanged"),
            (lambda g: scaled(g, "contact/", -1.0, 1.0), "in 0% .* contacts inverted"),
            (lambda g: scaled(g, "contact/", 40.0), "contact/left of the reference is 40, .* is it a force"),
            (lambda g: scaled(g, "height", 100.0), "height of the reference is 45.58 m, .* 45.13 m above the floor"),
            (lambda g: set_to(g, "height", 0.0), "-0.46 m above the floor"),
            (
                lambda g: exchanged(g, ("velocity",), "ahead", "left"),
                "velocity/left .* is 0.20 m/s .* walks at -?0.00 m/s",
            ),
            (lambda g: scaled(g, "velocity/left", 1.0, 5.0), "velocity/left of the reference is 5.00 m/s"),
            (lambda g: scaled(g, "velocity/ahead", -1.0), "velocity/ahead of the reference is -0.20 m/s"),
            (lambda g: scaled(g, "velocity/", 100.0), "velocity/ahead of the reference is 20.00 m/s"),
            (lambda g: swaying(g, 180 / np.pi), "spin/ahead .* rad within a second, more than 0.80; is it in deg/s"),
            (lambda g: set_to(g, "spin/up", 14.3), "spin/up .* by 14.30 rad within a second, more than 3.14"),
            (lambda g: scaled(g, "angle/", 180 / np.pi), "times the change of angle"),
            (lambda g: scaled(g, "speed/", -1.0), "-0.98 times the change of angle"),
        ],
    )
    def test_known_mistakes_are_found(self, world, change, words):
        from twinax.envs.biped import check_reference, scripted_gait

        with pytest.raises(TwinaxError, match=words) as found:
            check_reference(world, change(scripted_gait(world)))
        assert "\n" not in str(found.value)

    def test_a_base_that_sways_is_no_mistake(self, world):
        from twinax.envs.biped import check_reference, scripted_gait

        check_reference(world, swaying(scripted_gait(world), 1.0))

    def test_feet_that_land_together_have_contacts_too(self, world):
        """A hop has no frame with one foot on the floor; its contacts go by the height of the feet."""
        from twinax.envs.biped import check_reference, scripted_gait

        gait = scripted_gait(world, 0.0)
        names = [feature.name for feature in gait.layout]
        frames = gait.frames.copy()
        for place, name in enumerate(names):
            if "right" in name:
                frames[:, place] = frames[:, names.index(name.replace("right", "left"))]
        lift = np.maximum(np.sin(2 * np.pi * (np.arange(len(frames)) + 0.5) / 32), 0.0)
        frames[:, names.index("height")] += 0.03 * lift
        hop = dataclasses.replace(gait, frames=frames)
        check_reference(world, hop)
        with pytest.raises(TwinaxError, match="left foot of the reference is .* high in contact"):
            check_reference(world, scaled(hop, "contact/", -1.0, 1.0))

    def test_a_style_at_another_speed_than_the_task_is_for_training_alone(self, world):
        from twinax.envs.biped import check_reference, scripted_gait

        gait = scripted_gait(world, 0.4)
        check_reference(world, gait, commanded=False)
        with pytest.raises(TwinaxError, match="goes ahead at 0.40 m/s, but 0.07 to 0.26 m/s are commanded"):
            check_reference(world, gait)


def exchanged(reference, kinds, one, other):
    """With features of one name under the other, and the other way round."""
    names = [feature.name for feature in reference.layout]

    def partner(name):
        kind, _, rest = name.partition("/")
        if kind not in kinds:
            return name
        if one in rest:
            return f"{kind}/{rest.replace(one, other)}"
        return f"{kind}/{rest.replace(other, one)}"

    return dataclasses.replace(reference, frames=reference.frames[:, [names.index(partner(name)) for name in names]])


def scaled(reference, prefix, factor, offset=0.0):
    meant = np.array([feature.name.startswith(prefix) for feature in reference.layout])
    frames = np.where(meant, factor * reference.frames + offset, reference.frames)
    return dataclasses.replace(reference, frames=frames)


def set_to(reference, name, value):
    return scaled(reference, name, 0.0, value)


def swaying(reference, factor):
    """The base rolls by 0.06 rad in each step, as a robot's does."""
    names = [feature.name for feature in reference.layout]
    frames = reference.frames.copy()
    frames[:, names.index("spin/ahead")] = factor * 0.3 * np.sin(2 * np.pi * np.arange(len(frames)) / 32)
    return dataclasses.replace(reference, frames=frames)


def reordered(reference, one, other):
    order = list(range(len(reference.layout)))
    order[one], order[other] = order[other], order[one]
    layout = tuple(reference.layout[place] for place in order)
    return dataclasses.replace(reference, layout=layout, frames=reference.frames[:, order])
