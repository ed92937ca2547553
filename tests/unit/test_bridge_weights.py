"""Weights by name and in files."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from twinax import bridge
from twinax.errors import TwinaxError
from twinax.networks import MLP, as_torch_module
from twinax.tree import named_leaves


def network(seed: int = 0) -> MLP:
    return MLP.init(np.random.default_rng(seed), inputs=5, hidden=(7, 7), outputs=3)


def test_a_torch_module_takes_the_state_dict_and_gives_it_back():
    net = network(3)
    module = as_torch_module(network(4))
    module.load_state_dict(bridge.to_torch(bridge.state_dict(net)))
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), net(x), atol=1e-6)
    plain = torch.nn.Sequential(torch.nn.Linear(5, 7))
    assert list(bridge.state_dict(net))[:2] == [f"layers.{name}" for name in plain.state_dict()]
    back = bridge.load_state_dict(bridge.to_jax(network(5)), module.state_dict())
    assert isinstance(back, MLP) and isinstance(back.layers[0].weight, jax.Array)
    np.testing.assert_array_equal(back.layers[1].weight, net.layers[1].weight)


def test_weights_survive_a_file_whatever_their_layout(tmp_path):
    path = tmp_path / "deep" / "net.safetensors"
    tree = {
        "transposed": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
        "scalar": jnp.asarray(2.5),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "trained": torch.nn.Parameter(torch.ones(2)),
        "activation": jnp.tanh,
    }
    bridge.save_weights(path, tree)
    blank = {**tree, "transposed": np.zeros((3, 2), np.float32), "scalar": jnp.asarray(0.0)}
    out = bridge.load_weights(path, like=blank)
    np.testing.assert_array_equal(out["transposed"], tree["transposed"])
    assert float(out["scalar"]) == 2.5 and out["scalar"].shape == ()
    assert out["half"].dtype == torch.bfloat16 and out["half"].item() == 1.5
    assert isinstance(out["trained"], torch.nn.Parameter) and out["trained"] is not tree["trained"]
    assert out["activation"] is jnp.tanh
    assert [p.name for p in path.parent.iterdir()] == ["net.safetensors"]


@pytest.mark.parametrize("names", [named_leaves, bridge.state_dict])
def test_two_leaves_of_one_name_are_refused(names):
    assert list(names({"a": {"b": np.zeros(1), "c": np.zeros(1)}})) == ["a.b", "a.c"]
    with pytest.raises(TwinaxError, match="two leaves .* called 'a.b'"):
        names({"a.b": np.zeros(1), "a": {"b": np.ones(1)}})


def test_weights_that_do_not_fit_say_why(tmp_path):
    net = {"layers": [{"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}]}
    good = bridge.state_dict(net)
    with pytest.raises(TwinaxError, match=r"missing \['layers.0.bias'\], unexpected \['b'\]"):
        bridge.load_state_dict(net, {"layers.0.weight": good["layers.0.weight"], "b": np.zeros(2)})
    with pytest.raises(TwinaxError, match=r"\(3, 2\) but the network needs \(2, 3\); it looks transposed"):
        bridge.load_state_dict(net, {**good, "layers.0.weight": np.zeros((3, 2))})
    with pytest.raises(TwinaxError, match="'layers.0.bias' is a builtins.str"):
        bridge.load_state_dict(net, {**good, "layers.0.bias": "zero"})
    with pytest.raises(TwinaxError, match="cannot read the weights from .*none.safetensors: No such file"):
        bridge.load_weights(tmp_path / "none.safetensors", like=net)
    path = tmp_path / "net.safetensors"
    bridge.save_weights(path, net)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(TwinaxError, match="net.safetensors is not a whole safetensors file"):
        bridge.load_weights(path, like=net)
    (tmp_path / "taken").mkdir()
    with pytest.raises(TwinaxError, match="cannot write the weights to .*taken: Is a directory"):
        bridge.save_weights(tmp_path / "taken", net)
    assert not [p for p in tmp_path.iterdir() if p.name.endswith(".partial")]
    (tmp_path / "file").write_text("")
    with pytest.raises(TwinaxError, match="cannot write the weights to .*file/net.safetensors"):
        bridge.save_weights(tmp_path / "file" / "net.safetensors", net)
