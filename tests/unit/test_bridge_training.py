"""Parameters and Adam's memory between PyTorch and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from twinax import bridge
from twinax.errors import TwinaxError
from twinax.networks import MLP, as_torch_module
from twinax.optimizer import Moments, Optimizer
from twinax.tree import named_leaves

RATE = 0.05


def network(seed: int = 0) -> MLP:
    return MLP.init(np.random.default_rng(seed), inputs=5, hidden=(7, 7), outputs=3)


def test_one_push_updates_every_tensor_and_a_pull_reads_them_back():
    module = as_torch_module(network(0))
    optimizer = torch.optim.Adam(module.parameters())
    sync = bridge.ParameterSync(module)
    wanted = network(1)
    sync.push(bridge.to_jax(wanted))
    for name, parameter in module.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), named_leaves(wanted)[name])
    module(torch.ones(2, 5)).sum().backward()
    optimizer.step()  # the optimizer still trains the same tensors, and pull sees what it did
    pulled = sync.pull()
    for name, parameter in module.named_parameters():
        np.testing.assert_array_equal(pulled[name], parameter.detach().numpy())
        assert not np.array_equal(pulled[name], named_leaves(wanted)[name])


def test_push_takes_a_flat_vector_made_inside_a_compiled_step():
    tree = jax.tree.map(lambda x: torch.nn.Parameter(torch.from_numpy(x)), network(0))
    sync = bridge.ParameterSync(tree)
    step = jax.jit(lambda net: sync.ravel(jax.tree.map(lambda x: x + 1, net)))
    sync.push(step(bridge.to_jax(network(0))))
    for name, leaf in named_leaves(network(0)).items():
        np.testing.assert_array_equal(named_leaves(tree)[name].detach().numpy(), leaf + 1)
    assert sync.size == sync.flat.numel() == 5 * 7 + 7 + 7 * 7 + 7 + 7 * 3 + 3


def test_bfloat16_parameters_are_synchronised_too():
    tree = {"a": torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))}
    sync = bridge.ParameterSync(tree)
    sync.push({"a": jnp.asarray([1.5, -2.0], jnp.bfloat16)})
    assert tree["a"].tolist() == [1.5, -2.0] and sync.pull()["a"].dtype == jnp.bfloat16


def test_backward_through_a_graph_older_than_a_push_raises():
    tree = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))]
    sync = bridge.ParameterSync(tree)
    loss = (tree[0] * tree[1]).sum()
    sync.push([jnp.zeros(3), jnp.zeros(3)])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_parameter_sync_that_does_not_fit_says_why():
    def parameters(**kinds):
        return {name: torch.nn.Parameter(torch.zeros(3, dtype=kind)) for name, kind in kinds.items()}

    tied = torch.nn.Parameter(torch.zeros(3))
    for tree, message in [
        ({}, "without tensors"),
        ({"a": np.zeros(3)}, "'a' is a ndarray"),
        ({"a": tied, "b": tied}, "'a' and 'b' are the same tensor"),
        ({"a": torch.zeros(3, dtype=torch.int32)}, "'a' is torch.int32"),
        (parameters(a=torch.float32, b=torch.float64), "'a' is torch.float32 .* 'b' is torch.float64"),
    ]:
        with pytest.raises(TwinaxError, match=message):
            bridge.ParameterSync(tree)
    tree = parameters(a=torch.float32, b=torch.float32)
    sync = bridge.ParameterSync(tree)
    with pytest.raises(TwinaxError, match=r"'b' has shape \(4,\) in JAX but \(3,\) in PyTorch"):
        sync.push({"a": jnp.zeros(3), "b": jnp.zeros(4)})
    with pytest.raises(TwinaxError, match=r"missing \['b'\], unexpected \['c'\]"):
        sync.push({"a": jnp.zeros(3), "c": jnp.zeros(3)})
    with pytest.raises(TwinaxError, match="float16 but the PyTorch tensors float32"):
        sync.push(jnp.zeros(6, jnp.float16))
    with pytest.raises(TwinaxError, match="float16 but the PyTorch tensors float32"):
        sync.push({"a": jnp.ones(3), "b": jnp.ones(3, jnp.float16)})
    assert not sync.flat.any()
    tree["b"].data = torch.zeros(3)
    with pytest.raises(TwinaxError, match="'b' was moved away from the flat buffer"):
        sync.push(jnp.zeros(6))


def _target(name: str) -> np.ndarray:
    return np.linspace(-1, 1, {"weight": 6, "log_z": 1}[name])


def _start() -> dict[str, np.ndarray]:
    return {"log_z": np.zeros(1), "weight": np.ones(6)}


def _gradient(value, name, step):
    return (value - _target(name)) * (1 + 0.3 * np.cos(step))


def _torch_steps(tree, optimizer, steps):
    for step in steps:
        for name, parameter in tree.items():
            parameter.grad = torch.from_numpy(_gradient(parameter.detach().numpy(), name, step))
        optimizer.step()


def _optax_steps(tree, optimizer, state, steps):
    for step in steps:
        gradients = {name: _gradient(np.asarray(value), name, step) for name, value in tree.items()}
        updates, state = optimizer.update(gradients, state, tree)
        tree = optax.apply_updates(tree, updates)
    return tree, state


def _torch_parameters(values):
    return {name: torch.nn.Parameter(torch.from_numpy(np.array(value))) for name, value in values.items()}


def _grouped():
    """Adam with one group for each parameter, as for a step size of log Z's own."""
    groups = {"a": optax.adam(RATE), "b": optax.adam(optax.constant_schedule(RATE))}
    return optax.multi_transform(groups, {"log_z": "a", "weight": "b"})


def _reference() -> dict[str, np.ndarray]:
    """Fifty steps of Adam written out in NumPy."""
    out = {}
    for name, value in _start().items():
        first = second = np.zeros_like(value)
        for step in range(50):
            gradient = _gradient(value, name, step)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            debiased = np.sqrt(second / (1 - 0.999 ** (step + 1)))
            value = value - RATE * first / (1 - 0.9 ** (step + 1)) / (debiased + 1e-8)
        out[name] = value
    return out


@pytest.mark.parametrize("make", [lambda: optax.adam(RATE), _grouped], ids=["one", "grouped"])
@pytest.mark.parametrize("direction", ["torch to jax", "jax to torch"])
def test_adam_goes_on_after_a_transplant_as_if_nothing_happened(double_precision, make, direction):
    optimizer, tree = make(), _torch_parameters(_start())
    adam = torch.optim.Adam(tree.values(), lr=RATE)
    values: Any = bridge.to_jax(_start())
    state = optimizer.init(values)
    if direction == "torch to jax":
        _torch_steps(tree, adam, range(23))
        moments = bridge.moments_from_torch(adam, tree)
        state = bridge.optax_from_moments(moments, like=state)
        values, _ = _optax_steps(bridge.to_jax(tree), optimizer, state, range(23, 50))
    else:
        values, state = _optax_steps(values, optimizer, state, range(23))
        moments = bridge.moments_from_optax(state)
        tree = _torch_parameters(values)
        adam = torch.optim.Adam(tree.values(), lr=RATE)
        bridge.load_moments_into_torch(adam, tree, moments)
        _torch_steps(tree, adam, range(23, 50))
        values = bridge.to_numpy(tree)
    assert int(moments.count) == 23
    for name, wanted in _reference().items():
        np.testing.assert_allclose(np.asarray(values[name]), wanted, rtol=0, atol=1e-12)


def test_a_schedule_goes_on_from_the_transplanted_count():
    optimizer = optax.adam(optax.linear_schedule(1.0, 0.0, 100))
    tree = {"w": jnp.ones(2)}
    moments = Moments(np.asarray(40, np.int32), {"w": np.ones(2, np.float32)}, {"w": np.ones(2, np.float32)})
    state: Any = bridge.optax_from_moments(moments, like=optimizer.init(tree))
    assert [int(part.count) for part in state] == [40, 40]


def test_an_adam_that_has_not_begun_has_zero_moments():
    tree = _torch_parameters(_start())
    moments = bridge.moments_from_torch(torch.optim.AdamW(tree.values()), tree)
    assert int(moments.count) == 0 and moments.count.dtype == np.int32
    assert not moments.first["weight"].any() and moments.second["weight"].shape == (6,)


def test_optimizer_states_that_do_not_fit_say_why():
    tree = _torch_parameters(_start())
    moments = Optimizer().init(_start())
    with pytest.raises(TwinaxError, match="not of SGD"):
        bridge.moments_from_torch(torch.optim.SGD(tree.values(), lr=1.0), tree)
    with pytest.raises(TwinaxError, match="does not train 'weight'"):
        bridge.moments_from_torch(torch.optim.Adam([tree["log_z"]]), tree)
    with pytest.raises(TwinaxError, match="amsgrad"):
        bridge.load_moments_into_torch(torch.optim.Adam(tree.values(), amsgrad=True), tree, moments)
    adam = torch.optim.Adam(tree.values())
    tree["weight"].grad = torch.ones(6, dtype=torch.float64)
    adam.step()
    with pytest.raises(TwinaxError, match="'log_z' has had 0 updates but 'weight' 1"):
        bridge.moments_from_torch(adam, tree)
    short = Optimizer().init({"log_z": np.zeros(1), "weight": np.zeros(5)})
    with pytest.raises(TwinaxError, match=r"'weight' has shape \(5,\) but the parameter \(6,\)"):
        bridge.load_moments_into_torch(adam, tree, short)
    with pytest.raises(TwinaxError, match=r"\['bias'\].* parameters are \['log_z', 'weight'\]"):
        bridge.load_moments_into_torch(adam, tree, Optimizer().init({"bias": np.zeros(1)}))
    for state in (optax.sgd(1.0).init({}), ()):
        with pytest.raises(TwinaxError, match="no Adam moments"):
            bridge.moments_from_optax(state)
        with pytest.raises(TwinaxError, match="no Adam moments"):
            bridge.optax_from_moments(moments, like=state)
