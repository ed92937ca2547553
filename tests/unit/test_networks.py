"""Networks: PyTorch's initial distribution, names and layout, and one output in three frameworks."""

from __future__ import annotations

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import ops, tree
from twinax.envs import Hypergrid
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet._policy import PolicyOptions, init_networks
from twinax.networks import (
    ACTIVATIONS,
    MLP,
    Ensemble,
    KHot,
    Linear,
    acting,
    activation,
    as_torch_module,
    ema,
    frozen,
    num_parameters,
    perceptron,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def wide(network):
    """The network in float64."""
    return jtu.tree_map(lambda x: np.asarray(x, np.float64), network)


def in_torch(network, gradient=False):
    return jtu.tree_map(lambda x: torch.tensor(np.asarray(x), requires_grad=gradient), network)


def in_jax(network):
    return jtu.tree_map(jnp.asarray, network)


def mlp(act="relu", inputs=6, hidden=(8, 5), outputs=3, seed=0):
    return MLP.init(rng(seed), inputs, hidden, outputs, act)


def khot(batch=9, dim=2, side=3):
    return KHot(
        rng(1).integers(0, side, (batch, dim)).astype(np.int32) + np.arange(dim, dtype=np.int32) * side, dim * side
    )


# Initial distribution


@pytest.mark.parametrize("inputs", [3, 80, 256])
def test_initial_distribution_is_that_of_pytorch(inputs):
    layer = Linear.init(rng(), inputs, 400)
    torch.manual_seed(0)
    reference = torch.nn.Linear(inputs, 400)
    bound = 1 / np.sqrt(inputs)
    for ours, theirs in ((layer.weight, reference.weight), (layer.bias, reference.bias)):
        theirs = theirs.detach().numpy()
        assert ours.shape == theirs.shape and ours.dtype == np.float32
        assert np.abs(ours).max() <= bound + 1e-7 and np.abs(theirs).max() <= bound + 1e-7
        assert np.abs(ours).max() > 0.98 * bound
        assert ours.std() == pytest.approx(theirs.std(), rel=0.1)
        assert ours.std() == pytest.approx(bound / np.sqrt(3), rel=0.08)
        assert abs(ours.mean()) < 5 * bound / np.sqrt(3 * ours.size)


def test_weights_are_a_function_of_the_seed():
    a, b, c = mlp(seed=1), mlp(seed=1), mlp(seed=2)
    for x, y, z in zip(*(jtu.tree_leaves(n) for n in (a, b, c)), strict=True):
        np.testing.assert_array_equal(x, y)
        assert not np.array_equal(x, z)
    assert not np.array_equal(a.layers[0].weight.ravel()[:8], a.layers[1].weight.ravel()[:8])


def test_sizes_and_names_are_checked():
    with pytest.raises(TwinaxError, match=r"\(4, 0, 2\)"):
        MLP.init(rng(), 4, (0,), 2)
    with pytest.raises(UnknownName, match="unknown activation 'rellu'.*Did you mean 'relu'"):
        MLP.init(rng(), 4, (3,), 2, "rellu")
    with pytest.raises(UnknownName, match="elu, gelu, gelu_tanh, leaky_relu, relu, silu, tanh"):
        activation("swish")
    with pytest.raises(TwinaxError, match="has 0 members"):
        Ensemble.init(rng(), 0, lambda r: Linear.init(r, 2, 2))


# One output in three frameworks


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_equal_outputs_in_every_framework(act, double_precision):
    network, x = wide(mlp(act)), rng(1).normal(size=(4, 6))
    wanted = network(x)
    np.testing.assert_allclose(in_torch(network)(torch.from_numpy(x)), wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(in_jax(network)(jnp.asarray(x)), wanted, rtol=1e-12, atol=1e-12)
    # By hand
    act_by_hand = {
        "relu": lambda v: np.where(v > 0, v, 0),
        "leaky_relu": lambda v: np.where(v > 0, v, 0.01 * v),
        "tanh": np.tanh,
        "elu": lambda v: np.where(v > 0, v, np.exp(v) - 1),
        "silu": lambda v: v / (1 + np.exp(-v)),
        "gelu": lambda v: torch.nn.GELU()(torch.from_numpy(v)).numpy(),
        "gelu_tanh": lambda v: torch.nn.GELU("tanh")(torch.from_numpy(v)).numpy(),
    }[act]
    h = x
    for k, layer in enumerate(network.layers):
        h = h @ layer.weight.T + layer.bias
        h = act_by_hand(h) if k < 2 else h
    np.testing.assert_allclose(wanted, h, rtol=1e-12, atol=1e-12)


def test_equal_gradients(double_precision):
    network, x = wide(mlp()), rng(1).normal(size=(4, 6))
    parameters = in_torch(network, gradient=True)
    (parameters(torch.from_numpy(x)) ** 2).sum().backward()
    grads = jax.grad(lambda n: (n(jnp.asarray(x)) ** 2).sum())(in_jax(network))
    for a, b in zip(jtu.tree_leaves(parameters), jtu.tree_leaves(grads), strict=True):
        np.testing.assert_allclose(a.grad, b, rtol=1e-12, atol=1e-12)


def test_khot_is_the_same_as_dense(double_precision):
    network, x = wide(mlp()), khot()
    dense = x.dense("float64")
    assert dense.shape == (9, 6) and dense.sum() == 18
    wanted = network(dense)
    np.testing.assert_allclose(network(x), wanted, rtol=1e-12)
    np.testing.assert_allclose(in_torch(network)(KHot(torch.from_numpy(x.indices), 6)), wanted, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda n, k: n(k))(in_jax(network), in_jax(x)), wanted, rtol=1e-12)
    # Gradients too, in both frameworks
    by_dense = jax.grad(lambda n: (n(jnp.asarray(dense)) ** 2).sum())(in_jax(network))
    by_khot = jax.grad(lambda n: (n(in_jax(x)) ** 2).sum())(in_jax(network))
    parameters = in_torch(network, gradient=True)
    (parameters(KHot(torch.from_numpy(x.indices), 6)) ** 2).sum().backward()
    for a, b, c in zip(*(jtu.tree_leaves(t) for t in (by_dense, by_khot, parameters)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(a, c.grad, rtol=1e-12, atol=1e-12)


def test_observations_take_the_precision_of_the_weights(double_precision):
    # A world gives float32 observations whatever the precision of a run.
    network, x = wide(mlp()), rng(1).normal(size=(4, 6)).astype(np.float32)
    wanted = network(x.astype(np.float64))
    for convert in (lambda t: t, in_torch, in_jax):
        y = convert(network)(convert(x))
        assert "float64" in str(y.dtype)
        np.testing.assert_allclose(y, wanted, rtol=1e-12)
        assert "float32" in str(convert(mlp())(convert(x.astype(np.float64))).dtype)


def test_a_layer_without_bias():
    layer = Linear.init(rng(), 4, 3, bias=False)
    assert layer.bias is None and num_parameters(layer) == 12
    np.testing.assert_allclose(layer(np.eye(4, dtype=np.float32)), layer.weight.T)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "khot"])
def test_layers_laid_out_for_acting_are_the_same(dense, double_precision):
    network, x = wide(mlp()), khot()
    x = x.dense("float64") if dense else x
    wanted = network(x)
    for convert in (lambda t: t, in_torch, in_jax):
        there = convert(network)
        with torch.no_grad():
            got = perceptron(acting(there.layers), there.activation, convert(x))
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


# As a PyTorch module


class Reference(torch.nn.Module):
    """What a PyTorch user would write."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 8), torch.nn.Linear(8, 5), torch.nn.Linear(5, 3)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def test_torch_module_has_the_names_and_layout_of_pytorch():
    network = mlp()
    module, reference = as_torch_module(network), Reference()
    assert isinstance(module, torch.nn.Module)
    assert list(module.state_dict()) == list(reference.state_dict())
    assert [p.shape for p in module.parameters()] == [p.shape for p in reference.parameters()]
    reference.load_state_dict(module.state_dict())
    x = torch.from_numpy(rng(1).normal(size=(4, 6)).astype(np.float32))
    torch.testing.assert_close(module(x), reference(x), rtol=0, atol=0)
    np.testing.assert_allclose(module(x).detach(), network(x.numpy()), rtol=1e-5, atol=1e-6)
    # And back: PyTorch's fresh weights into ours
    module.load_state_dict(Reference().state_dict())
    torch.testing.assert_close(module(x).shape, torch.Size([4, 3]))


def test_a_sequential_takes_the_weights():
    module = as_torch_module(mlp())
    sequential = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    )
    renamed = {f"{2 * int(n.split('.')[1])}.{n.split('.')[2]}": p for n, p in module.state_dict().items()}
    sequential.load_state_dict(renamed)
    x = torch.ones(2, 6)
    torch.testing.assert_close(module(x), sequential(x), rtol=0, atol=0)


def test_torch_module_trains_moves_and_copies():
    network = mlp()
    before = copy.deepcopy(network.layers[0].weight)
    module = as_torch_module(network)
    x, y = torch.ones(4, 6), torch.zeros(4, 3)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    twin = copy.deepcopy(module)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((module(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    np.testing.assert_array_equal(network.layers[0].weight, before)  # the weights were copied
    np.testing.assert_allclose(((twin(x) - y) ** 2).mean().item(), losses[0], rtol=1e-6)
    assert as_torch_module(network).to(torch.float64)(x.double()).dtype == torch.float64
    seen = []
    module.register_forward_hook(lambda *arguments: seen.append(arguments[-1].shape))
    module(x)
    assert seen == [(4, 3)]


def test_torch_module_takes_jax_weights_and_keeps_parameters():
    network = mlp()
    x = torch.ones(2, 6)
    from_jax = as_torch_module(in_jax(network))
    torch.testing.assert_close(from_jax(x), as_torch_module(network)(x))
    parameters = jtu.tree_map(lambda w: torch.nn.Parameter(torch.from_numpy(np.array(w))), network)
    module = as_torch_module(parameters)
    assert module.get_parameter("layers.0.weight") is parameters.layers[0].weight
    assert module.network().layers[2].bias is parameters.layers[2].bias


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
def test_policies_are_torch_modules_too(shared):
    env = Hypergrid(2, 3)
    options = PolicyOptions(hidden=(8,), shared=shared)
    policy = init_networks(rng(), env, options, flow=True, log_z=None).policy
    module = as_torch_module(policy)
    assert list(module.state_dict()) == list(tree.named_leaves(policy))
    states = ops.like(env.reset(4), torch.zeros(()))
    out, wanted = module(env.observe(states)), policy(env.observe(env.reset(4)))
    for a, b in zip(out, wanted, strict=True):
        np.testing.assert_allclose(a.detach(), b, rtol=1e-5, atol=1e-6)
    twin = as_torch_module(policy)
    twin.load_state_dict({name: 0 * value for name, value in module.state_dict().items()})
    assert float(twin(env.observe(states)).log_flow.detach().abs().sum()) == 0


def test_torch_module_of_one_array():
    module = as_torch_module(np.ones(3, np.float32))
    assert list(module.state_dict()) == ["value"]
    assert module.network().shape == (3,)


# Whole-network operations


def test_frozen_networks_pass_gradients_to_inputs_only():
    network = mlp()
    x = rng(1).normal(size=(4, 6)).astype(np.float32)

    def loss(network, x):
        return (frozen(network)(x) ** 2).sum()

    by_network, by_input = jax.grad(loss, (0, 1))(in_jax(network), jnp.asarray(x))
    assert all((np.asarray(g) == 0).all() for g in jtu.tree_leaves(by_network))
    assert np.abs(by_input).sum() > 0
    parameters, inputs = in_torch(network, gradient=True), torch.tensor(x, requires_grad=True)
    loss(parameters, inputs).backward()
    assert all(p.grad is None for p in jtu.tree_leaves(parameters))
    np.testing.assert_allclose(inputs.grad, by_input, rtol=1e-4, atol=1e-5)
    assert isinstance(frozen(network), MLP)


@pytest.mark.parametrize("rate", [0.0, 0.05, 1.0])
def test_ema(rate):
    target, online = mlp(seed=1), mlp(seed=2)
    for convert in (lambda t: t, lambda t: in_torch(t, gradient=True), in_jax):
        moved = ema(convert(target), convert(online), rate)
        for t, o, m in zip(*(jtu.tree_leaves(n) for n in (target, online, moved)), strict=True):
            assert not getattr(m, "requires_grad", False)
            np.testing.assert_allclose(m, (1 - rate) * t + rate * o, rtol=1e-5, atol=1e-7)
            if rate in (0.0, 1.0):
                np.testing.assert_array_equal(m, o if rate else t)  # a copy is exact


def test_ema_keeps_single_precision(double_precision):
    moved = ema(in_jax(mlp(seed=1)), in_jax(mlp(seed=2)), 0.05)
    assert all(leaf.dtype == jnp.float32 for leaf in jtu.tree_leaves(moved))


def test_ensembles_are_their_members(double_precision):
    ensemble = wide(Ensemble.init(rng(3), 3, lambda r: MLP.init(r, 6, (8,), 2)))
    generator = rng(3)
    members = [wide(MLP.init(generator, 6, (8,), 2)) for _ in range(3)]
    assert ensemble.number == 3
    for x in (rng(1).normal(size=(4, 6)), khot()):
        wanted = np.stack([member(x) for member in members])
        np.testing.assert_allclose(ensemble(x), wanted, rtol=1e-12)
        np.testing.assert_allclose(in_torch(ensemble)(in_torch(x)), wanted, rtol=1e-12)
        np.testing.assert_allclose(in_jax(ensemble)(in_jax(x)), wanted, rtol=1e-12)


def test_ensembles_of_policies(double_precision):
    env = Hypergrid(2, 3)

    def make(r):
        return init_networks(r, env, PolicyOptions(hidden=(8,)), flow=True, log_z=None).policy

    ensemble = Ensemble.init(rng(3), 2, make)
    seen = env.observe(env.reset(4))
    outputs = [convert(ensemble)(convert(seen)) for convert in (lambda t: t, in_torch, in_jax)]
    for out in outputs:
        assert out.forward_logits.shape == (2, 4, 3) and out.log_flow.shape == (2, 4)
        np.testing.assert_allclose(out.log_flow, outputs[0].log_flow, rtol=1e-5)


def test_num_parameters():
    assert num_parameters(mlp()) == 6 * 8 + 8 + 8 * 5 + 5 + 5 * 3 + 3
    assert num_parameters({"log_z": np.zeros(()), "none": None}) == 1


def test_networks_are_ordinary_equinox_modules():
    network = in_jax(mlp())
    assert isinstance(network, eqx.Module)
    doubled = eqx.tree_at(lambda n: n.layers[0].weight, network, replace_fn=lambda w: 2 * w)
    np.testing.assert_allclose(doubled.layers[0].weight, 2 * network.layers[0].weight)
    assert list(tree.named_leaves(network))[:2] == ["layers.0.weight", "layers.0.bias"]
