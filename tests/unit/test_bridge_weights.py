"""Weights by name and in files."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from twinax import batches, bridge
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


def torch_network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def test_a_torch_module_has_weights(tmp_path):
    module, other = torch_network(0), torch_network(1)
    found = bridge.state_dict(module)
    assert list(found) == list(module.state_dict()) and "1.running_mean" in found
    assert found["0.weight"].data_ptr() == module[0].weight.data_ptr()
    bridge.save_weights(tmp_path / "net.safetensors", module)
    loaded = bridge.load_weights(tmp_path / "net.safetensors", like=other)
    assert isinstance(loaded, torch.nn.Sequential) and loaded is not other
    for name, value in module.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    assert not torch.equal(other[0].weight, module[0].weight), "the one that it is like stays as it was"
    assert loaded[0].weight.requires_grad
    # In a tree, and as the mapping itself.
    tree = {"policy": module, "log_z": np.zeros(1)}
    assert list(bridge.state_dict(tree))[:2] == ["log_z", "policy.0.weight"]
    both = bridge.load_state_dict({"policy": other, "log_z": np.ones(1)}, bridge.state_dict(tree))
    assert torch.equal(both["policy"][2].bias, module[2].bias) and both["log_z"][0] == 0
    assert torch.equal(bridge.load_state_dict(other, module)[0].bias, module[0].bias)
    assert list(bridge.state_dict(module.state_dict())) == list(module.state_dict())
    with pytest.raises(TwinaxError, match=r"missing .*'0.weight'"):
        bridge.load_state_dict(module, bridge.state_dict(torch.nn.Linear(3, 4)))


class Holder:
    """Somebody's class that hides its arrays."""

    weight = np.zeros(3)


@pytest.mark.parametrize("nothing", [{}, None, torch.nn.Tanh(), 3.5, "net", [jnp.tanh], Holder(), {"net": Holder()}])
def test_what_has_no_arrays_has_no_weights(nothing, tmp_path):
    path = tmp_path / "net.safetensors"
    for call in (
        lambda: bridge.state_dict(nothing),
        lambda: bridge.save_weights(path, nothing),
        lambda: bridge.load_state_dict(nothing, {"weight": np.zeros(3)}),
    ):
        with pytest.raises(TwinaxError, match="has no arrays|neither an array nor a number"):
            call()
    assert not path.exists()


def test_a_module_is_exchanged_by_its_state_dict(unchecked):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4))
    for exchange in (bridge.to_jax, bridge.to_numpy, bridge.to_torch):
        with pytest.raises(TwinaxError, match=r"for a torch.nn.Module pass its state_dict\(\)"):
            exchange(module)
        assert sorted(exchange(bridge.state_dict(module))) == ["0.bias", "0.weight"]
    with pytest.raises(TwinaxError, match="a mapping from names to arrays, not a Sequential"):
        batches.check_batch(module)
    with pytest.raises(TwinaxError, match="a mapping from names to arrays, not a list"):
        bridge.load_state_dict(module, [np.zeros(3)])


def test_equal_weights_are_equal_files(tmp_path):
    for k in range(8):
        bridge.save_weights(tmp_path / f"{k}.safetensors", network(3))
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
