"""Convolutions, pools and encoders: against loops, against both frameworks' own, and the same in each framework."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from jax import lax

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import MLP, Encoded, Ensemble, Impala, Linear, ResNet, num_parameters
from twinax.offline import ENCODERS, agents, encoder, make_encoder
from twinax.offline._encoders import StateEncoder
from twinax.offline.networks import Actor, Metric, Value
from twinax.ops.windows import same_padding

# Continuous random numbers: no two entries of a window are equal.
RNG = np.random.default_rng(3)
SIZES = [(8, 8), (9, 7), (6, 5), (1, 2)]


def places(size, window, stride):
    """First entries of the windows along an axis, and how many there are: the definition of SAME, in other words."""
    number = math.ceil(size / stride)
    covered = (number - 1) * stride + window
    before = max(covered - size, 0) // 2
    return [i * stride - before for i in range(number)]


def slow_windows(x, window, stride):
    """Each window of each image as a list of the entries inside of it: (image, row, column, its place, entry)."""
    for row, top in enumerate(places(x.shape[1], window[0], stride)):
        for column, left in enumerate(places(x.shape[2], window[1], stride)):
            inside = [
                (i, j, x[:, top + i, left + j])
                for i in range(window[0])
                for j in range(window[1])
                if 0 <= top + i < x.shape[1] and 0 <= left + j < x.shape[2]
            ]
            yield row, column, inside


def slow_conv(x, weight, bias, stride):
    y = np.zeros((len(x), *(math.ceil(n / stride) for n in x.shape[1:3]), len(weight)))
    for row, column, inside in slow_windows(x, weight.shape[2:], stride):
        y[:, row, column] = bias + sum(entry @ weight[:, :, i, j].T for i, j, entry in inside)
    return y


def slow_pool(x, window, stride):
    y = np.zeros((len(x), *(math.ceil(n / stride) for n in x.shape[1:3]), x.shape[3]))
    for row, column, inside in slow_windows(x, (window, window), stride):
        y[:, row, column] = np.max([entry for _, _, entry in inside], 0)
    return y


def wide(tree):
    return jtu.tree_map(lambda x: np.asarray(x, np.float64), tree)


def shaken(network, rng=RNG):
    """In float64, away from biases of zero."""
    return jtu.tree_map(lambda x: x + 0.1 * rng.normal(size=x.shape), wide(network))


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize(("window", "stride"), [((3, 3), 1), ((3, 3), 2), ((2, 5), 1), ((1, 1), 2), ((4, 3), 3)])
def test_a_convolution_is_what_a_loop_gives(height, width, window, stride):
    x, weight = RNG.normal(size=(2, height, width, 3)), RNG.normal(size=(4, 3, *window))
    bias = RNG.normal(size=4)
    wanted = slow_conv(x, weight, bias, stride)
    np.testing.assert_allclose(ops.conv2d(x, weight, bias, stride), wanted, atol=1e-12)
    got = ops.conv2d(*map(torch.from_numpy, (x, weight, bias)), stride)
    np.testing.assert_allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize(("window", "stride"), [(3, 2), (2, 2), (3, 1), (2, 3)])
def test_a_pool_is_what_a_loop_gives(height, width, window, stride):
    x = RNG.normal(size=(2, height, width, 3)) - 5  # a border of zeros would win
    wanted = slow_pool(x, window, stride)
    np.testing.assert_array_equal(ops.max_pool(x, window, stride), wanted)
    np.testing.assert_array_equal(ops.max_pool(torch.from_numpy(x), window, stride), wanted)


def in_jax_by_hand(x, weight, bias):
    """Both operations as Flax calls them, at a few strides."""
    axes = ("NHWC", "HWIO", "NHWC")
    for stride in (1, 2):
        kernel = jnp.transpose(weight, (2, 3, 1, 0))
        yield lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=axes) + bias
    yield lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def by_ops(x, weight, bias):
    return [ops.conv2d(x, weight, bias, 1), ops.conv2d(x, weight, bias, 2), ops.max_pool(x, 3, 2)]


def test_against_the_frameworks_own(double_precision):
    x, weight, bias = (RNG.normal(size=s) for s in ((2, 9, 6, 3), (4, 3, 3, 3), (4,)))
    results = by_ops(x, weight, bias)
    for got, hand in zip(results, in_jax_by_hand(*map(jnp.asarray, (x, weight, bias))), strict=True):
        np.testing.assert_allclose(got, hand, atol=1e-12)
    for got, same in zip(results, jax.jit(by_ops)(x, weight, bias), strict=True):
        np.testing.assert_allclose(got, same, atol=1e-12)
    # PyTorch's border is even, which SAME is at stride 1, and for odd sizes at stride 2.
    square, kernel = x[:, :, :5], torch.from_numpy(weight)
    there = torch.from_numpy(square).permute(0, 3, 1, 2)
    for stride in (1, 2):
        wanted = torch.nn.functional.conv2d(there, kernel, torch.from_numpy(bias), stride, 1).permute(0, 2, 3, 1)
        np.testing.assert_allclose(ops.conv2d(square, weight, bias, stride), wanted, atol=1e-12)
    wanted = torch.nn.functional.max_pool2d(there, 3, 2, 1).permute(0, 2, 3, 1)
    np.testing.assert_array_equal(ops.max_pool(square, 3, 2), wanted)


def test_the_border_of_even_sizes_comes_after():
    assert same_padding((64, 64), (3, 3), 2) == ((0, 1), (0, 1))
    assert same_padding((64, 9), (3, 3), 1) == ((1, 1), (1, 1))
    assert same_padding((9, 64), (7, 7), 2) == ((3, 3), (2, 3))
    ramp = np.arange(4.0).reshape(1, 1, 4, 1)
    np.testing.assert_array_equal(ops.max_pool(ramp, 3, 2)[0, 0, :, 0], [2, 3])
    weight = np.ones((1, 1, 1, 3))
    np.testing.assert_array_equal(ops.conv2d(ramp, weight, stride=2)[0, 0, :, 0], [3, 5])
    np.testing.assert_array_equal(ops.conv2d(ramp, weight, None, 2, ((0, 0), (1, 1)))[0, 0, :, 0], [1, 6])


def test_the_first_of_equal_entries_gets_the_gradient():
    x = np.zeros((1, 6, 5, 2))
    x[0, 2, 2] = x[0, 2, 3] = x[0, 3, 2] = 1.0
    weight = RNG.normal(size=(1, 3, 3, 2))
    there = torch.tensor(x, requires_grad=True)
    (ops.max_pool(there, 3, 2) * torch.from_numpy(weight)).sum().backward()
    here = jax.jit(jax.grad(lambda x: (ops.max_pool(x, 3, 2) * weight).sum()))(x)
    np.testing.assert_allclose(here, there.grad, atol=1e-6)
    assert there.grad[0, 2, 2].abs().sum() > 0 and not there.grad[0, 3, 2].any()


def test_the_gradient_of_a_pool_is_that_of_xla():
    x = np.random.default_rng(0).integers(0, 3, (2, 7, 6, 2)).astype(np.float32)  # many are equal

    def loss(x, pool):
        y = pool(x)
        return (y * np.arange(y.size).reshape(y.shape)).sum()

    def both(x):
        for window, stride in ((3, 2), (3, 1), (2, 3)):
            sizes = (1, window, window, 1), (1, stride, stride, 1)
            yield jax.grad(loss)(x, lambda x, sizes=sizes: lax.reduce_window(x, -jnp.inf, lax.max, *sizes, "SAME"))
            yield jax.grad(loss)(x, lambda x, window=window, stride=stride: ops.max_pool(x, window, stride))

    gradients = jax.jit(lambda x: list(both(x)))(x)
    for wanted, got in zip(gradients[::2], gradients[1::2], strict=True):
        np.testing.assert_array_equal(got, wanted)


NETWORKS = {
    "impala": lambda rng: Impala.init(rng, (9, 6, 2), (3,), 1, (5,), norm=True),
    "resnet": lambda rng: ResNet.init(rng, (9, 6, 2), (0, 1), 4),
    "mlp": lambda rng: StateEncoder.init(rng, (6,), (7, 5)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_encoders_and_their_gradients_are_the_same_everywhere(name, double_precision):
    rng = np.random.default_rng(5)
    network = shaken(NETWORKS[name](rng), rng)
    shape = getattr(network, "shape", (6,))
    x = rng.integers(0, 256, (3, *shape)).astype(np.uint8) if len(shape) == 3 else rng.normal(size=(3, *shape))
    wanted = network(x)
    assert wanted.shape == (3, network.width) and wanted.dtype == np.float64
    weight = rng.normal(size=wanted.shape)

    leaves = jtu.tree_map(lambda leaf: torch.tensor(leaf, requires_grad=True), network)
    there = leaves(torch.from_numpy(x))
    np.testing.assert_allclose(there.detach(), wanted, rtol=1e-10, atol=1e-12)
    (there * torch.from_numpy(weight)).sum().backward()

    def loss(network):
        y = network(jnp.asarray(x))
        return (y * weight).sum(), y

    (_, here), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(jtu.tree_map(jnp.asarray, network))
    np.testing.assert_allclose(here, wanted, rtol=1e-10, atol=1e-12)
    for leaf, gradient in zip(jtu.tree_leaves(leaves), jtu.tree_leaves(gradients), strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, rtol=1e-10, atol=1e-10)
        assert leaf.grad.abs().max() > 0


def test_impala_by_loops():
    rng = np.random.default_rng(1)
    network = shaken(Impala.init(rng, (5, 6, 2), (3, 4), 1, (7,), norm=True), rng)
    pixels = rng.integers(0, 256, (2, 5, 6, 2)).astype(np.uint8)
    x = pixels / 255.0
    for stack in network.stacks:
        first, a, b = (lambda x, c=c: slow_conv(x, c.weight, c.bias, 1) for c in stack.convs)
        x = slow_pool(first(x), 3, 2)
        x = x + b(np.maximum(a(np.maximum(x, 0)), 0))

    def normed(x, norm):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * norm.weight + norm.bias

    x = normed(np.maximum(x, 0), network.norm).reshape(2, -1)
    layer = network.dense.layers[0]
    x = x @ layer.weight.T + layer.bias
    x = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(network(pixels), normed(x, network.dense.norms[0]), rtol=1e-10)


def test_group_norm_and_the_residual_network_against_torch():
    rng = np.random.default_rng(2)
    network = shaken(ResNet.init(rng, (18, 15, 2), (1, 1), 4), rng)
    pixels = rng.integers(0, 256, (2, 18, 15, 2)).astype(np.uint8)
    F = torch.nn.functional

    def conv(layer, x, border):
        return F.conv2d(F.pad(x, border), torch.from_numpy(layer.weight), stride=layer.stride)

    def norm(layer, x):
        return F.group_norm(x, 4, torch.from_numpy(layer.weight), torch.from_numpy(layer.bias), 1e-5)

    down = np.broadcast_to(np.linspace(-1, 1, 18)[:, None], (2, 1, 18, 15))
    across = np.broadcast_to(np.linspace(-1, 1, 15), (2, 1, 18, 15))
    x = torch.from_numpy(np.concatenate([pixels.transpose(0, 3, 1, 2) / 127.5 - 1, down, across], 1))
    x = F.silu(norm(network.first_norm, conv(network.first, x, (3, 3, 3, 3))))  # 9 x 8
    x = F.max_pool2d(F.pad(x, (0, 1, 1, 1), value=-math.inf), 3, 2)  # 5 x 4
    for block, borders in zip(network.blocks, [(1, 1, 1, 1), (0, 1, 1, 1)], strict=True):
        y = F.silu(norm(block.norms[0], conv(block.convs[0], x, borders)))
        y = norm(block.norms[1], conv(block.convs[1], y, (1, 1, 1, 1)))
        if block.projection is not None:
            x = norm(block.projection_norm, conv(block.projection, x, (0, 0, 0, 0)))
        x = F.silu(x + y)
    np.testing.assert_allclose(network(pixels), x.mean((2, 3)), rtol=1e-9)
    assert [block.projection is None for block in network.blocks] == [True, False]


def test_first_weights():
    rng = np.random.default_rng(0)
    conv = Impala.init(rng, (8, 8, 16), (32,), 1, (5,)).stacks[0].convs[0]
    bound = math.sqrt(6 / (9 * (16 + 32)))
    assert conv.weight.shape == (32, 16, 3, 3) and conv.weight.dtype == np.float32
    assert bound * 0.99 < np.abs(conv.weight).max() <= bound and not conv.bias.any()
    kaiming = ResNet.init(rng, (9, 9, 3), (1, 1), 32).blocks[1].convs[0]
    assert kaiming.bias is None and kaiming.stride == 2
    assert kaiming.weight.std() == pytest.approx(math.sqrt(2 / 288), rel=0.03)
    assert np.abs(kaiming.weight).max() <= 2 * math.sqrt(2 / 288) / 0.8796
    network = make_encoder("impala_small", rng, (64, 64, 9))
    assert [len(stack.convs) for stack in network.stacks] == [3, 3, 3]
    for stack in network.stacks:
        for conv in stack.convs:
            out, inputs = conv.weight.shape[:2]
            assert np.abs(conv.weight).max() <= math.sqrt(6 / (9 * (out + inputs)))
    dense = network.dense.layers[0]
    assert np.abs(dense.weight).max() <= math.sqrt(6 / (2048 + 512)) and not dense.bias.any()


def test_equal_generators_give_equal_encoders():
    one, other, third = (make_encoder("impala_debug", np.random.default_rng(s), (9, 7, 3)) for s in (0, 0, 1))
    for a, b in zip(jtu.tree_leaves(one), jtu.tree_leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.dense.layers[0].weight, third.dense.layers[0].weight)


@pytest.mark.parametrize(
    ("name", "shape", "width", "places"),
    [
        ("impala_small", (64, 64, 9), 512, 64 * 32),
        ("impala", (64, 64, 3), 512, 64 * 32),
        ("impala", (9, 7, 3), 512, 2 * 32),
        ("impala_debug", (9, 7, 3), 512, 6 * 4),
        ("impala_large", (16, 16, 3), 1024, 4 * 128),
    ],
)
def test_shapes_of_impala(name, shape, width, places):
    network = make_encoder(name, np.random.default_rng(0), shape)
    assert network.width == width
    assert network.dense.layers[0].weight.shape == (width, places)
    blocks = {"impala": 2, "impala_large": 2}.get(name, 1)
    assert all(len(stack.convs) == 1 + 2 * blocks for stack in network.stacks)
    leading = (2,) if max(shape) < 64 else (1,)
    pixels = np.random.default_rng(1).integers(0, 256, (*leading, *shape)).astype(np.uint8)
    y = network(pixels)
    assert y.shape == (*leading, width) and y.dtype == np.float32
    # More leading axes, or none
    np.testing.assert_allclose(network(pixels[None]), y[None], rtol=1e-5)
    np.testing.assert_allclose(network(pixels[0]), y[0], rtol=1e-5, atol=1e-6)
    assert network(pixels[:0]).shape == (0, width)


def test_shapes_of_the_other_encoders():
    network = make_encoder("resnet_34", np.random.default_rng(0), (9, 7, 3))
    assert network.width == 512 and len(network.blocks) == 16
    # torchvision's without its last layer, and two more channels
    assert num_parameters(network) == 21_797_672 - 513_000 + 2 * 64 * 49
    state = make_encoder("mlp", np.random.default_rng(0), (17,))
    assert state.width == 512 and [w.weight.shape[0] for w in state.net.layers] == [512] * 4
    assert len(state.net.norms) == 3
    assert state(np.zeros((2, 3, 17))).shape == (2, 3, 512)


def test_brightness_counts_in_255ths():
    network = wide(Impala.init(np.random.default_rng(0), (4, 4, 1), (3,), 1, (5,)))
    pixels = RNG.integers(0, 256, (2, 4, 4, 1))
    np.testing.assert_array_equal(network(pixels.astype(np.uint8)), network(pixels.astype(np.float64)))


def test_unknown_names_list_the_known_ones():
    with pytest.raises(
        UnknownName, match="unknown encoder 'impala_smal'; known: impala, .* Did you mean 'impala_small'"
    ):
        encoder("impala_smal")
    assert encoder("mlp") is ENCODERS["mlp"]
    assert set(ENCODERS) == {"impala", "impala_small", "impala_debug", "impala_large", "resnet_34", "mlp"}


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("impala_small", (17,), r"reads \(height, width, channels\), but .* shape \(17,\); for vectors take .*'mlp'"),
        ("resnet_34", (3, 64, 64, 3), r"but an observation has shape \(3, 64, 64, 3\)"),
        ("impala", (0, 4, 3), r"shape \(0, 4, 3\)"),
        ("mlp", (64, 64, 9), r"'mlp' reads vectors, but .* shape \(64, 64, 9\); for images take 'impala_small'"),
        ("mlp", (), r"shape \(\)"),
    ],
)
def test_observations_that_an_encoder_cannot_read(name, shape, message):
    with pytest.raises(TwinaxError, match=message):
        make_encoder(name, np.random.default_rng(0), shape)


def test_observations_of_another_shape():
    images = make_encoder("impala_debug", np.random.default_rng(0), (8, 8, 9))
    with pytest.raises(TwinaxError, match=r"images of shape \(8, 8, 9\), but .* have shape \(2, 8, 8, 3\)"):
        images(np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(TwinaxError, match=r"images of shape \(8, 8, 9\), but .* have shape \(5, 17\)"):
        images(np.zeros((5, 17), np.float32))
    states = make_encoder("mlp", np.random.default_rng(0), (3,))
    with pytest.raises(TwinaxError, match=r"vectors of width 3, but the observations have shape \(5, 4\)"):
        states(np.zeros((5, 4)))
    with pytest.raises(TwinaxError, match="10 channels cannot be parted into 4 equal groups"):
        ResNet.init(np.random.default_rng(0), (8, 8, 3), (1,), 10)


def test_heads_share_an_encoder():
    rng = np.random.default_rng(0)
    images = make_encoder("impala_debug", rng, (8, 8, 3))
    critic = Encoded(images, Value.init(rng, images.width + 2, (8,), members=2))
    assert isinstance(critic.net.body, Ensemble)
    pixels, actions = RNG.integers(0, 256, (5, 8, 8, 3)).astype(np.uint8), RNG.normal(size=(5, 2)).astype(np.float32)
    got = critic(pixels, actions)
    assert got.shape == (2, 5)
    np.testing.assert_allclose(got, critic.net(images(pixels), actions))
    assert num_parameters(critic) == num_parameters(images) + num_parameters(critic.net)
    there = jtu.tree_map(jnp.asarray, critic)
    np.testing.assert_allclose(jax.jit(lambda n: n(pixels, actions))(there), got, rtol=1e-4, atol=1e-5)


def test_what_an_encoder_can_stand_before():
    rng = np.random.default_rng(0)
    states = StateEncoder.init(rng, (3,), (8, 4))
    x, goals = RNG.normal(size=(2, 5, 3)).astype(np.float32)
    actor = Encoded(states, Actor.init(rng, 4, (8,), 2))
    assert actor(x, None).mean.shape == (5, 2)
    metric = Encoded(states, Metric.init(rng, 4, (8,), 6), arguments=2)
    np.testing.assert_allclose(metric(x, goals), metric.net(states(x), states(goals)))
    plain = Encoded(states, MLP.xavier(rng, 4, (8,), 2))
    assert plain(x).shape == (5, 2)


class Halves:
    """Two numbers of each observation: a network of one's own, by a class that makes it."""

    def __call__(self, rng, spec):
        return Linear.init(rng, spec.observation.shape[-1], 2)


class First(eqx.Module):
    def __call__(self, observations):
        return observations[0]


def narrow(rng, spec):
    return First()


def test_an_encoder_of_ones_own():
    agent = agents.IQL(hidden=(8,), encoder=f"{__name__}:Halves")
    sizes = agent.sizes((5,), 3, 4)
    assert sizes.observation == 2
    made = agent.build(np.random.default_rng(0), sizes)
    assert made["actor"].encoder.net.weight.shape == (2, 5) and made["value"].encoder.width == 2
    with pytest.raises(TwinaxError, match="narrow gives the shape .* as encoder it needs a row of numbers for each"):
        make_encoder(f"{__name__}:narrow", np.random.default_rng(0), (5,))
