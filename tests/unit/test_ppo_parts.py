"""Advantages, losses, distributions and statistics against slow loops, PyTorch's distributions and Brax itself."""

import importlib
import math

import numpy as np
import pytest

from twinax import ops
from twinax.networks import Categorical, Normal
from twinax.ppo import ADVANTAGES, RunningMoments, Scaling, brax, gae, policy_loss, standardised, value_loss

GAMMA, TRACE = 0.97, 0.9

pytestmark = pytest.mark.usefixtures("double_precision")


def given(framework, x):
    """An array in a framework."""
    if framework == "numpy":
        return np.asarray(x)
    return ops.like(np.asarray(x), importlib.import_module({"torch": "torch", "jax": "jax.numpy"}[framework]).zeros(()))


def random_rollout(seed, steps=23, worlds=5):
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, steps, worlds))
    terminated = rng.uniform(size=(steps, worlds)) < 0.15
    truncated = (rng.uniform(size=(steps, worlds)) < 0.15) & ~terminated
    # Where an episode goes on, the next value is that of the next step.
    going = ~(terminated | truncated)[:-1]
    next_value[:-1][going] = value[1:][going]
    return reward, value, next_value, terminated, truncated


def slow(kind, reward, value, next_value, terminated, truncated):
    """One world after the other, one step after the other, from the definitions in words."""
    steps, worlds = reward.shape
    advantage, target = np.zeros((2, steps, worlds))
    for w in range(worlds):
        later = later_target = 0.0
        for t in reversed(range(steps)):
            r, v, n = reward[t, w], value[t, w], next_value[t, w]
            d, u = terminated[t, w], truncated[t, w]
            if kind == "gae":
                delta = r - v if d else r + GAMMA * n - v
                later = delta if d or u else delta + GAMMA * TRACE * later
                advantage[t, w], target[t, w] = later, later + v
            elif kind == "cleanrl":
                delta = r - v if d or u else r + GAMMA * n - v
                later = delta if d or u else delta + GAMMA * TRACE * later
                advantage[t, w], target[t, w] = later, later + v
            elif kind == "rsl_rl":
                delta = r + GAMMA * v - v if u else (r - v if d else r + GAMMA * n - v)
                later = delta if d or u else delta + GAMMA * TRACE * later
                advantage[t, w], target[t, w] = later, later + v
            else:
                delta = 0.0 if u else (r - v if d else r + GAMMA * n - v)
                last = t == steps - 1
                advantage[t, w] = delta if d or u or last else delta + GAMMA * later_target
                later_target = delta if d or u else delta + GAMMA * TRACE * later_target
                target[t, w] = later_target + v
    return advantage, target


@pytest.mark.parametrize("kind", ADVANTAGES)
@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_advantages_are_those_of_a_slow_loop(kind, framework):
    rollout = random_rollout(3)
    found = ADVANTAGES[kind](*(given(framework, x) for x in rollout), GAMMA, TRACE)
    for ours, loop in zip(found, slow(kind, *rollout), strict=True):
        np.testing.assert_allclose(np.asarray(ours), loop, rtol=1e-12, atol=1e-12)


def test_brax_advantages_are_those_of_brax():
    losses = pytest.importorskip("brax.training.agents.ppo.losses")
    import jax.numpy as jnp

    reward, value, next_value, terminated, truncated = random_rollout(4)
    targets, advantages = losses.compute_gae(
        truncation=jnp.asarray(truncated.astype(float)),
        termination=jnp.asarray(terminated.astype(float)),
        rewards=jnp.asarray(reward),
        values=jnp.asarray(value),
        bootstrap_value=jnp.asarray(next_value[-1]),
        lambda_=TRACE,
        discount=GAMMA,
    )
    ours, target = brax(reward, value, next_value, terminated, truncated, GAMMA, TRACE)
    np.testing.assert_allclose(ours, advantages, atol=1e-12)
    np.testing.assert_allclose(target, targets, atol=1e-12)


def test_values_that_are_right_have_no_advantage_even_at_a_time_limit():
    # One for each step for ever is worth 1 / (1 - gamma), also where a limit cuts it off.
    value = np.full((6, 1), 1 / (1 - GAMMA))
    cut = np.zeros((6, 1), bool)
    cut[3] = True
    advantage, target = gae(np.ones((6, 1)), value, value, np.zeros((6, 1), bool), cut, GAMMA, TRACE)
    np.testing.assert_allclose(advantage, 0, atol=1e-12)
    np.testing.assert_allclose(target, value)
    ended, _ = ADVANTAGES["cleanrl"](np.ones((6, 1)), value, value, np.zeros((6, 1), bool), cut, GAMMA, TRACE)
    assert ended[3, 0] < -30


def test_policy_loss_and_its_monitors():
    rng = np.random.default_rng(0)
    log_ratio, advantage = 0.3 * rng.normal(size=50), rng.normal(size=50)
    loss, terms = policy_loss(log_ratio, advantage, 0.2)
    each, kl, clipped = [], [], []
    for x, a in zip(log_ratio, advantage, strict=True):
        ratio = math.exp(x)
        each.append(-min(ratio * a, min(max(ratio, 0.8), 1.2) * a))
        kl.append(ratio - 1 - x)
        clipped.append(abs(ratio - 1) > 0.2)
    np.testing.assert_allclose([loss, terms["approx_kl"], terms["clip_fraction"]], np.mean([each, kl, clipped], 1))


@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_value_loss(clip):
    rng = np.random.default_rng(1)
    value, old, target = rng.normal(size=(3, 40))
    each = []
    for v, o, t in zip(value, old, target, strict=True):
        near = o + min(max(v - o, -clip), clip)
        each.append(0.5 * (max((v - t) ** 2, (near - t) ** 2) if clip else (v - t) ** 2))
    np.testing.assert_allclose(value_loss(value, old, target, clip), np.mean(each))


def test_a_step_beyond_the_clip_has_no_gradient():
    import jax

    def loss(x):
        return policy_loss(x, np.array([1.0, 1.0, -1.0, -1.0]), 0.2)[0]

    found = jax.grad(loss)(np.array([0.5, -0.5, 0.5, -0.5]))
    # Only steps that would undo too large a change are taken: gains are cut off above, losses below.
    np.testing.assert_allclose(np.array(found) != 0, [False, True, True, False])


def test_standardised_rows():
    x = np.random.default_rng(2).normal(3, 5, 64)
    y = standardised(x)
    np.testing.assert_allclose([y.mean(), y.std(ddof=1)], [0, 1], atol=1e-7)
    np.testing.assert_allclose(standardised(x, "population").std(), 1, atol=1e-7)


def test_categorical_is_torchs():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    logits, actions = rng.normal(size=(30, 4)), rng.integers(0, 4, 30)
    ours, theirs = Categorical(logits), torch.distributions.Categorical(logits=torch.from_numpy(logits))
    np.testing.assert_allclose(ours.log_prob(actions), theirs.log_prob(torch.from_numpy(actions)), atol=1e-12)
    np.testing.assert_allclose(ours.entropy(), theirs.entropy(), atol=1e-12)
    np.testing.assert_array_equal(ours.mode, logits.argmax(-1))


def test_categorical_samples_by_its_probabilities():
    logits = np.log([[0.2, 0.5, 0.3]])
    uniform = np.random.default_rng(4).uniform(size=(20_000, 3))
    drawn = Categorical(np.broadcast_to(logits, uniform.shape)).sample(uniform)
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, [0.2, 0.5, 0.3], atol=0.012)


@pytest.mark.parametrize("squashed", [False, True])
def test_normal_is_torchs(squashed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    mean, log_std, noise = rng.normal(size=(3, 20, 6))
    ours = Normal(mean, 0.3 * log_std, squashed)
    theirs = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(np.exp(0.3 * log_std)))
    point = ours.point(noise)
    np.testing.assert_allclose(point, mean + np.exp(0.3 * log_std) * noise)
    # An action is what comes of a point, and its density is the same.
    action = np.tanh(point) if squashed else point
    np.testing.assert_allclose(ours.sample(noise), action)
    np.testing.assert_allclose(ours.mode, np.tanh(mean) if squashed else mean)
    np.testing.assert_array_equal(ours.point(), mean)
    np.testing.assert_allclose(ours.log_prob(action), ours.log_prob_at(point), rtol=1e-6)
    one = Normal(mean, None, squashed)
    np.testing.assert_allclose(one.entropy(noise), Normal(mean, 0 * mean, squashed).entropy(noise))
    entropy = theirs.entropy().sum(-1).numpy()
    if squashed:
        moved = torch.distributions.TransformedDistribution(theirs, [torch.distributions.TanhTransform()])
        expected = moved.log_prob(torch.from_numpy(np.tanh(point))).sum(-1)
        slope = np.log1p(-(np.tanh(point) ** 2)).sum(-1)
        np.testing.assert_allclose(ours.log_prob_at(point), expected, atol=1e-5)
        np.testing.assert_allclose(ours.entropy(noise), entropy + slope, atol=1e-9)
    else:
        np.testing.assert_allclose(
            ours.log_prob_at(point), theirs.log_prob(torch.from_numpy(point)).sum(-1), atol=1e-12
        )
        np.testing.assert_allclose(ours.entropy(), entropy, atol=1e-12)


def test_a_squashed_density_stays_finite_far_out():
    far = Normal(np.array([[30.0, -30.0]]), np.zeros((1, 2)), True)
    assert np.isfinite(far.log_prob_at(np.array([[30.0, -30.0]]))).all()


def test_running_moments_are_those_of_all_rows():
    rng = np.random.default_rng(6)
    parts = [rng.normal(k, 1 + k, (n, 3)) for k, n in enumerate((5, 40, 17))]
    moments = RunningMoments.empty(3)
    assert np.allclose(moments.scaled(parts[0], Scaling(limit=0)), parts[0])  # before the first row nothing changes
    for part in parts:
        moments = moments.with_rows(part)
    rows = np.concatenate(parts)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-6)
    assert moments.count == len(rows)
    scaled = moments.scaled(rows)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-4)
    assert np.abs(moments.scaled(1e6 + rows)).max() == 10


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_moments_agree_over_frameworks(framework):
    rows = np.random.default_rng(7).normal(size=(12, 3))
    moments = RunningMoments(*(given(framework, x) for x in (np.zeros(3), np.ones(3), np.zeros(()))))
    found = moments.with_rows(given(framework, rows)).scaled(given(framework, rows))
    np.testing.assert_allclose(np.asarray(found), RunningMoments.empty(3).with_rows(rows).scaled(rows), rtol=1e-6)


def test_means_over_shards_are_those_of_the_whole():
    """Two parts of a batch, side by side under one named axis, as devices see them."""
    import jax

    x = np.random.default_rng(8).normal(2, 3, size=(10, 3))

    def part(rows):
        with ops.shards("parts", 2):
            moments = RunningMoments.empty(3).with_rows(rows)
            return standardised(rows[:, 0]), moments.mean, moments.variance, moments.count, ops.shard_index(rows)

    rows, mean, variance, count, index = jax.vmap(part, axis_name="parts")(x.reshape(2, 5, 3))
    assert index.tolist() == [0, 1] and ops.shard_index(x) == 0
    whole = RunningMoments.empty(3).with_rows(x)
    np.testing.assert_allclose(rows.ravel(), standardised(x[:, 0]), rtol=1e-6)
    np.testing.assert_allclose(mean, np.stack([whole.mean] * 2), rtol=1e-6)
    np.testing.assert_allclose(variance, np.stack([whole.variance] * 2), rtol=1e-6)
    assert (count == 10).all()


def test_draws_of_shards_are_parts_of_the_whole():
    from twinax.noise import Draw, numpy_draws, shard_draws

    spec = {
        "rows": Draw((3, 4, 2), divided=1),
        "starts": Draw((6, 2), "normal", divided=0),
        "places": Draw((2, 4), "integers", 9, divided=1),
        "all": Draw((5,)),
    }
    whole = numpy_draws(spec, 7, 3)
    parts = [{name: np.asarray(x) for name, x in shard_draws(spec, 7, 3, k, 2).items()} for k in range(2)]
    for name, draw in spec.items():
        if draw.divided is None:
            for part in parts:
                np.testing.assert_array_equal(part[name], whole[name])
        else:
            joined = np.concatenate([part[name] for part in parts], draw.divided)
            np.testing.assert_array_equal(joined, whole[name])
