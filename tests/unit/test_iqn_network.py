"""Distributional networks against a slow reference: values, gradients by every parameter, sizes and names."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import tree
from twinax.errors import TwinaxError, UnknownName
from twinax.iqn._network import VARIANTS, Categorical, FixedQuantiles, QuantileNetwork, variant
from twinax.networks import KHot, Linear, NoisyLinear, as_torch_module, num_parameters

ROWS, N, INPUTS, WIDTH, ACTIONS = 3, 4, 5, 6, 3
SIZES = {"iqn": {"cosines": 7}, "qr": {"quantiles": N}, "c51": {"atoms": N, "low": -1.0, "high": 2.0}}
PARTS = ("weight", "bias", "weight_sigma", "bias_sigma")
CASES = [(name, both, both) for name in VARIANTS for both in (True, False)] + [
    ("iqn", True, False),
    ("qr", False, True),
]


def rng(seed=0):
    return np.random.default_rng(seed)


def numpy64(network):
    return jtu.tree_map(lambda x: np.asarray(x, np.float64), network)


def in_torch(network, gradient=False):
    return jtu.tree_map(lambda x: torch.tensor(np.asarray(x), requires_grad=gradient), network)


def in_jax(network):
    return jtu.tree_map(jnp.asarray, network)


def make(name="iqn", dueling=True, noisy=True, seed=0):
    """A small float64 network with large standard deviations, all different."""
    network = VARIANTS[name].init(rng(seed), INPUTS, WIDTH, ACTIONS, dueling=dueling, noisy=noisy, **SIZES[name])
    leaves, sigma = tree.named_leaves(numpy64(network)), rng(seed + 1)
    leaves = {n: sigma.random(x.shape) / 3 if n.endswith("sigma") else x for n, x in leaves.items()}
    return tree.with_leaves(network, leaves)


def inputs(network, seed=5):
    draw = rng(seed)
    return draw.normal(size=(ROWS, INPUTS)), draw.random((ROWS, N)), draw.normal(size=network.noise_size)


# The reference: one number at a time, from the arrays by name


def slow_linear(p, layer, x, noise):
    """One row through one layer; takes its draws from the front of the list `noise`."""
    weight, bias = p[f"{layer}.weight"].copy(), p[f"{layer}.bias"].copy()
    if f"{layer}.weight_sigma" in p and noise is not None:
        for o in range(weight.shape[0]):
            for i in range(weight.shape[1]):
                weight[o, i] += p[f"{layer}.weight_sigma"][o, i] * noise[o * weight.shape[1] + i]
            bias[o] += p[f"{layer}.bias_sigma"][o] * noise[weight.size + o]
    return [bias[o] + sum(weight[o, i] * x[i] for i in range(len(x))) for o in range(len(bias))]


def slow_layers(p, noise):
    """Each noisy layer's share of the draws: hidden, advantage, value."""
    shares, start = {}, 0
    for layer in ("hidden", "advantage", "value"):
        size = sum(p[n].size for n in (f"{layer}.weight_sigma", f"{layer}.bias_sigma") if n in p)
        shares[layer] = None if noise is None else noise[start : start + size]
        start += size
    return shares


def slow_heads(p, h, noise, numbers):
    shares = slow_layers(p, noise)
    h = [max(v, 0.0) for v in slow_linear(p, "hidden", h, shares["hidden"])]
    advantage = slow_linear(p, "advantage", h, shares["advantage"])
    value = slow_linear(p, "value", h, shares["value"]) if "value.weight" in p else None
    out = np.zeros((numbers, ACTIONS))
    for k in range(numbers):
        of_k = advantage[k * ACTIONS : (k + 1) * ACTIONS]
        for a in range(ACTIONS):
            out[k, a] = of_k[a] if value is None else value[k] + of_k[a] - sum(of_k) / ACTIONS
    return out


def slow(name, p, x, taus, noise):
    out = np.zeros((ROWS, N, ACTIONS))
    for b in range(ROWS):
        h = [max(v, 0.0) for v in slow_linear(p, "feature", x[b], None)]
        if name == "iqn":
            for k in range(N):
                cosines = [math.cos(math.pi * i * taus[b, k]) for i in range(1, 8)]
                phi = [max(v, 0.0) for v in slow_linear(p, "cosine", cosines, None)]
                out[b, k] = slow_heads(p, [u * v for u, v in zip(h, phi, strict=True)], noise, 1)[0]
        else:
            out[b] = slow_heads(p, h, noise, N)
        if name == "c51":
            out[b] -= [math.log(sum(math.exp(v) for v in out[b, :, a])) for a in range(ACTIONS)]
    return out


@pytest.mark.parametrize(("name", "dueling", "noisy"), CASES)
def test_values_in_every_framework(name, dueling, noisy, double_precision):
    network = make(name, dueling, noisy)
    x, taus, noise = inputs(network)
    wanted = slow(name, tree.named_leaves(network), x, taus, noise)
    outputs = [
        network(x, taus, noise),
        in_torch(network)(*map(torch.tensor, (x, taus, noise))),
        jax.jit(lambda n, *given: n(*given))(in_jax(network), *map(jnp.asarray, (x, taus, noise))),
    ]
    for out in outputs:
        assert out.shape == (ROWS, N, ACTIONS)
        np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_by_every_parameter(name, double_precision):
    network = make(name)
    x, taus, noise = inputs(network)
    weights = rng(9).normal(size=(ROWS, N, ACTIONS))
    parameters = in_torch(network, gradient=True)
    (parameters(*map(torch.tensor, (x, taus, noise))) * torch.tensor(weights)).sum().backward()
    by_torch = {n: p.grad.numpy() for n, p in tree.named_leaves(parameters).items()}
    by_jax = tree.named_leaves(
        jax.jit(jax.grad(lambda n: (n(*map(jnp.asarray, (x, taus, noise))) * jnp.asarray(weights)).sum()))(
            in_jax(network)
        )
    )
    p, step, pick = tree.named_leaves(network), 1e-6, rng(11)

    def loss(leaves):
        return (slow(name, leaves, x, taus, noise) * weights).sum()

    for n, value in p.items():
        assert np.any(by_torch[n])  # everything learns, the deviations too
        np.testing.assert_allclose(by_torch[n], by_jax[n], rtol=1e-12, atol=1e-12)
        # Against differences of the reference, along a random direction of this array alone
        direction = pick.normal(size=value.shape)
        change = loss(p | {n: value + step * direction}) - loss(p | {n: value - step * direction})
        np.testing.assert_allclose((by_torch[n] * direction).sum(), change / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", VARIANTS)
def test_without_noise_it_is_its_means(name):
    network = make(name)
    x, taus, noise = inputs(network)
    quiet = network(x, taus)
    np.testing.assert_array_equal(network(x, taus, 0 * noise), quiet)
    np.testing.assert_allclose(quiet, slow(name, tree.named_leaves(network), x, taus, None), rtol=1e-12)
    assert np.abs(network(x, taus, noise) - quiet).max() > 0.1


@pytest.mark.parametrize(("features", "parameters"), [(150, 332_010), (125, 300_760)])
def test_parameter_counts(features, parameters):
    network = QuantileNetwork.init(rng(), 5 * features, 250, 4)
    assert num_parameters(network) == parameters
    # hidden 250 x 250, advantage 4 x 250, value 1 x 250, each with its bias
    assert network.noise_size == 62_750 + 1_004 + 251
    plain = QuantileNetwork.init(rng(), 5 * features, 250, 4, noisy=False)
    assert plain.noise_size == 0 and num_parameters(plain) == parameters - 64_005
    assert QuantileNetwork.init(rng(), 6, 250, 4, dueling=False).noise_size == 62_750 + 1_004


def test_names_layers_and_precision_at_the_start():
    network = QuantileNetwork.init(rng(), 6, 8, 4)
    noisy = [f"{layer}.{part}" for layer in ("hidden", "advantage", "value") for part in PARTS]
    assert list(tree.named_leaves(network)) == [
        "feature.weight",
        "feature.bias",
        *noisy,
        "cosine.weight",
        "cosine.bias",
    ]
    assert list(as_torch_module(network).state_dict()) == list(tree.named_leaves(network))
    assert network.cosine.weight.shape == (8, 64) and network.value.weight.shape == (1, 8)
    assert all(leaf.dtype == np.float32 for leaf in jtu.tree_leaves(network))
    assert isinstance(network.feature, Linear) and isinstance(network.hidden, NoisyLinear)
    # PyTorch's bound for plain layers, sqrt(3 / fan in) for noisy ones
    large = QuantileNetwork.init(rng(), 100, 300, 4)
    assert 0.98 < np.abs(large.feature.weight).max() * np.sqrt(100) <= 1
    assert 0.98 < np.abs(large.cosine.weight).max() * np.sqrt(64) <= 1 + 1e-6
    assert 0.98 < np.abs(large.hidden.weight).max() / np.sqrt(3 / 300) <= 1 + 1e-6
    twin = QuantileNetwork.init(rng(), 6, 8, 4)
    for a, b in zip(jtu.tree_leaves(network), jtu.tree_leaves(twin), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", VARIANTS)
def test_rows_of_ones_need_not_be_written_out(name, double_precision):
    network = make(name)
    _, taus, noise = inputs(network)
    khot = KHot(np.array([[0, 2], [1, 4], [2, 3]], np.int32), INPUTS)
    dense = network(khot.dense("float64"), taus, noise)
    np.testing.assert_allclose(network(khot, taus, noise), dense, rtol=1e-12)
    np.testing.assert_allclose(in_torch(network)(*in_torch((khot, taus, noise))), dense, rtol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("convert", [lambda t: t, in_torch, in_jax], ids=["numpy", "torch", "jax"])
def test_the_weights_decide_the_precision(name, convert, double_precision):
    single = jtu.tree_map(lambda w: w.astype(np.float32), make(name))

    def dtypes(network, x, taus, noise):
        out = network(x, taus, noise)
        return out, network.mean(out)

    # Abstractly in JAX: nothing is compiled
    call = jax.eval_shape if convert is in_jax else lambda function, *given: function(*given)
    wide = inputs(make(name))
    narrow = tuple(x.astype(np.float32) for x in wide)
    for network, given, wanted in ((single, wide, "float32"), (make(name), narrow, "float64")):
        assert all(wanted in str(out.dtype) for out in call(dtypes, convert(network), *convert(given)))


@pytest.mark.parametrize("name", ["iqn", "c51"])
def test_members_on_a_leading_axis(name, double_precision):
    nets = [make(name, seed=i) for i in range(3)]
    given = [np.stack(leaves) for leaves in zip(*(inputs(net, seed=i) for i, net in enumerate(nets)), strict=True)]
    wanted = np.stack([net(*(g[i] for g in given)) for i, net in enumerate(nets)])
    members = jtu.tree_map(lambda *leaves: np.stack(leaves), *nets)
    assert members.noise_size == nets[0].noise_size

    def loss(nets, x, taus, noise):
        out = jax.vmap(lambda n, *each: n(*each))(nets, x, taus, noise)
        return (out**2).sum(), out

    grads, out = jax.jit(jax.grad(loss, has_aux=True))(in_jax(members), *map(jnp.asarray, given))
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)
    # The gradient of all members at once is that of each
    alone = in_torch(nets[1], gradient=True)
    (alone(*(torch.tensor(g[1]) for g in given)) ** 2).sum().backward()
    for a, b in zip(jtu.tree_leaves(grads), jtu.tree_leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b.grad, rtol=1e-11, atol=1e-11)
    # PyTorch's vmap takes the leaves as a list
    structure = jtu.tree_structure(members)
    out = torch.func.vmap(lambda leaves, *each: jtu.tree_unflatten(structure, leaves)(*each))(
        jtu.tree_leaves(in_torch(members)), *map(torch.tensor, given)
    )
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "dueling", "noisy"), CASES)
def test_laid_out_for_acting_it_is_its_means(name, dueling, noisy, double_precision):
    network = make(name, dueling, noisy)
    x, taus, _ = inputs(network)
    wanted = network(x, taus)
    np.testing.assert_array_equal(network.acting()(x, taus), wanted)
    out, mean = jax.jit(lambda n, *given: (n.acting()(*given), n.acting().mean(wanted)))(in_jax(network), x, taus)
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mean, network.mean(wanted), rtol=1e-12, atol=1e-12)
    assert in_jax(network).acting().noise_size == network.acting().noise_size == 0


def test_one_compilation_for_all_draws():
    network, compiled = in_jax(QuantileNetwork.init(rng(), 6, 8, 4)), []

    @jax.jit
    def call(net, x, taus, noise):
        compiled.append(1)
        return net(x, taus, noise)

    for i in range(3):
        x, taus = rng(i).random((2, 6), np.float32), rng(i).random((2, 5), np.float32)
        assert call(network, x, taus, rng(i).normal(size=network.noise_size).astype(np.float32)).shape == (2, 5, 4)
    assert len(compiled) == 1


# What the outputs mean


def test_dueling_leaves_the_mean_to_the_value():
    network = make()
    x, taus, noise = inputs(network)
    out = network(x, taus, noise)
    leaves = tree.named_leaves(network)
    shifted = tree.with_leaves(network, leaves | {"advantage.bias": leaves["advantage.bias"] + 3.0})
    np.testing.assert_allclose(shifted(x, taus, noise), out, rtol=1e-12)
    raised = tree.with_leaves(network, leaves | {"value.bias": leaves["value.bias"] + 3.0})
    np.testing.assert_allclose(raised(x, taus, noise), out + 3.0, rtol=1e-12)


def test_implicit_quantiles_depend_on_their_own_tau_only():
    network = make()
    x, taus, noise = inputs(network)
    moved = taus.copy()
    moved[1, 2] = 1 - moved[1, 2]
    same = np.isclose(network(x, moved, noise), network(x, taus, noise), rtol=1e-12).all(-1)
    assert same.sum() == ROWS * N - 1 and not same[1, 2]
    few = network(x, taus[:, 1:3], noise)  # any number of fractions
    np.testing.assert_allclose(few, network(x, taus, noise)[:, 1:3], rtol=1e-12)
    np.testing.assert_allclose(network.mean(few), few.mean(1))


def test_the_embedding_is_accurate_in_single_precision():
    # 64 half turns of a float32 fraction; the reference is in double precision.
    network = QuantileNetwork.init(rng(), 6, 8, 4)
    x, taus = rng(1).random((3, 6), np.float32), np.linspace(0, 1, 33, dtype=np.float32)[None].repeat(3, 0)
    wanted = numpy64(network)(x, taus)
    for out in (in_torch(network)(*in_torch((x, taus))), jax.jit(lambda n, *g: n(*g))(in_jax(network), x, taus)):
        np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_fixed_quantiles_have_the_middles_as_fractions(double_precision):
    network = FixedQuantiles.init(rng(), 6, 8, 4, quantiles=4)
    for convert in (lambda t: t, in_torch, in_jax):
        taus = convert(network).taus(2)
        np.testing.assert_array_equal(taus, [[0.125, 0.375, 0.625, 0.875]] * 2)
        assert "float32" in str(taus.dtype) and type(taus) is type(convert(network).feature.weight)
    x, _, noise = inputs(make("qr"))
    np.testing.assert_array_equal(make("qr")(x, None, noise), make("qr")(x, np.zeros((ROWS, 9)), noise))


def test_atoms_are_a_distribution(double_precision):
    network = make("c51")
    x, _, noise = inputs(network)
    log_probs = network(x, None, noise)
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(network.support(), [-1.0, 0.0, 1.0, 2.0])
    wanted = np.zeros((ROWS, ACTIONS))
    for k, z in enumerate((-1.0, 0.0, 1.0, 2.0)):
        wanted += z * np.exp(log_probs[:, k])
    for convert in (lambda t: t, in_torch, in_jax):
        np.testing.assert_allclose(convert(network).mean(convert(log_probs)), wanted, rtol=1e-12, atol=1e-14)
    ends = Categorical.init(rng(), 6, 8, 4, low=-0.1, high=7.3).support()
    assert ends.dtype == np.float32 and ends[0] == np.float32(-0.1) and ends[-1] == np.float32(7.3) and len(ends) == 51


# Mistakes


def test_unknown_variants_are_refused():
    assert set(VARIANTS) == {"iqn", "qr", "c51"}
    assert variant("iqn") is QuantileNetwork and variant("qr") is FixedQuantiles and variant("c51") is Categorical
    with pytest.raises(UnknownName, match="'iqm'; known: c51, iqn, qr. Did you mean 'iqn'"):
        variant("iqm")


@pytest.mark.parametrize("name", VARIANTS)
def test_sizes_are_checked(name):
    with pytest.raises(TwinaxError, match="actions=0"):
        VARIANTS[name].init(rng(), 4, 8, 0)
    with pytest.raises(TwinaxError, match="width=-1"):
        VARIANTS[name].init(rng(), 4, -1, 2)
    network = make(name)
    x, taus, noise = inputs(network)
    with pytest.raises(TwinaxError, match=rf"\({noise.size - 1},\), the network takes \({noise.size},\)"):
        network(x, taus, noise[1:])


def test_supports_are_checked():
    with pytest.raises(TwinaxError, match="51 atoms from 2.0 to 2.0"):
        Categorical.init(rng(), 4, 8, 2, low=2.0, high=2.0)
    with pytest.raises(TwinaxError, match="1 atoms"):
        Categorical.init(rng(), 4, 8, 2, atoms=1)
