"""Flax files read without Flax, and Flax parameters in this project's networks."""

from __future__ import annotations

import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import offline_small as few
import pytest
import torch

from twinax import bridge
from twinax.errors import MissingExtra, TwinaxError, UnknownName
from twinax.networks import MLP, Encoded, Ensemble, Impala, Linear, ResNet
from twinax.offline import make_encoder
from twinax.offline.networks import Actor, Bilinear, Intention, Metric, Value
from twinax.tree import named_leaves

REAL = Path(__file__).parent / "data" / "flax.msgpack"
"""Written by Flax itself: see make_flax.py beside it."""
RNG = np.random.default_rng(0)


@pytest.fixture
def msgpack():
    return pytest.importorskip("msgpack")


# Files


def flax_bytes(msgpack, tree):
    """A tree as Flax packs it."""

    def extension(x):
        if isinstance(x, np.ndarray):
            return msgpack.ExtType(1, msgpack.packb((x.shape, x.dtype.name, x.tobytes())))
        if isinstance(x, np.generic):
            x = np.asarray(x)
            return msgpack.ExtType(3, msgpack.packb((x.shape, x.dtype.name, x.tobytes())))
        if isinstance(x, complex):
            return msgpack.ExtType(2, msgpack.packb((x.real, x.imag)))
        raise TypeError(type(x))

    return msgpack.packb(tree, default=extension, strict_types=True)


def test_everything_that_flax_packs_is_read(msgpack, tmp_path):
    kernel = RNG.normal(size=(2, 3)).astype(np.float32)
    halves = kernel.astype(ml_dtypes.bfloat16)
    tree = {
        "params": {"Dense_0": {"kernel": kernel, "bias": np.zeros(3)}},
        "half": halves,
        "scalar": np.float32(2.5),
        "complex": 1 + 2j,
        "step": 7,
        "flag": True,
        "rate": 0.5,
        "nothing": None,
        "name": "iql",
        "list": [np.arange(3), {"a": np.ones((0, 2))}],
        "empty": {},
        "whole": np.array(3, np.int64),
    }
    path = tmp_path / "agent.msgpack"
    path.write_bytes(flax_bytes(msgpack, tree))
    got = bridge.read_flax(path)
    np.testing.assert_array_equal(got["params"]["Dense_0"]["kernel"], kernel)
    assert got["params"]["Dense_0"]["bias"].dtype == np.float64
    assert got["half"].dtype == ml_dtypes.bfloat16 and (got["half"] == halves).all()
    assert got["scalar"] == 2.5 and got["scalar"].dtype == np.float32 and got["complex"] == 1 + 2j
    assert got["step"] == 7 and got["flag"] == True and got["rate"] == 0.5  # noqa: E712
    assert got["nothing"] is None and got["name"] == "iql" and got["empty"] == {}
    np.testing.assert_array_equal(got["list"]["0"], np.arange(3))
    assert got["list"]["1"]["a"].shape == (0, 2) and got["whole"].shape == ()
    got["params"]["Dense_0"]["kernel"][0] = 0  # an array of one's own


@pytest.mark.parametrize("listed", [False, True])
def test_chunks_are_joined(msgpack, tmp_path, listed):
    array = np.arange(12.0).reshape(3, 4)
    shape, chunks = list(array.shape), [array.reshape(-1)[:5], array.reshape(-1)[5:]]
    if not listed:
        shape, chunks = ({str(i): x for i, x in enumerate(parts)} for parts in (shape, chunks))
    large = {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}
    path = tmp_path / "large"
    path.write_bytes(flax_bytes(msgpack, {"a": {"kernel": large}}))
    np.testing.assert_array_equal(bridge.read_flax(path)["a"]["kernel"], array)


def test_npz_files_are_read(tmp_path):
    path = tmp_path / "params.npz"
    np.savez(path, **{"net/Dense_0/kernel": np.ones((2, 3)), "net/Dense_0/bias": np.zeros(3), "step": np.array(3)})
    got = bridge.read_flax(path)
    assert got["net"]["Dense_0"]["kernel"].shape == (2, 3) and got["step"] == 3 and list(got["net"]) == ["Dense_0"]
    for first, second in (("a", "a/b"), ("a/b", "a")):
        np.savez(path, **{first: np.ones(1), second: np.ones(1)})
        with pytest.raises(TwinaxError, match="params.npz: 'a.*' is an array and a dictionary at once"):
            bridge.read_flax(path)
    np.savez(path, a=np.array([object()], object))
    with pytest.raises(TwinaxError, match="Python objects, which are never loaded"):
        bridge.read_flax(path)


class Bomb:
    """Fails the test if a pickle of it is loaded."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


@pytest.mark.parametrize("name", ["params_1000.pkl", "params.pickle", "params.msgpack", "params"])
def test_pickles_are_refused(tmp_path, name):
    path = tmp_path / name
    for protocol in (2, 4, 5) if "pkl" not in name else (0, 1, 2, 5):
        path.write_bytes(pickle.dumps({"agent": Bomb()}, protocol))
        with pytest.raises(TwinaxError, match="is a pickle, which can run any code .*msgpack_serialize.* np.savez"):
            bridge.read_flax(path)


def test_files_that_cannot_be_read_say_why(msgpack, tmp_path):
    path = tmp_path / "agent.msgpack"
    with pytest.raises(TwinaxError, match="cannot read .*agent.msgpack: No such file"):
        bridge.read_flax(path)
    with pytest.raises(TwinaxError, match="cannot read .*: it is a directory, as Orbax writes; .*to_bytes"):
        bridge.read_flax(tmp_path)
    whole = flax_bytes(msgpack, {"a": np.ones(9)})
    for data in (whole[:-3], whole + b"\x00", b"", b"\x81\xa1a\xc7\x01\x09\x00", b"(dp0\n.", b"\x81\xc0\x01"):
        path.write_bytes(data)
        with pytest.raises(TwinaxError, match="agent.msgpack is not a whole file of flax.serialization: "):
            bridge.read_flax(path)
    for shape, dtype in (([4], "float32"), ([-1, -2], "float32"), ([2], "object"), ([2], "no_such_dtype")):
        packed = msgpack.ExtType(1, msgpack.packb((shape, dtype, bytes(8))))
        path.write_bytes(msgpack.packb({"a": packed}))
        with pytest.raises(TwinaxError, match="is not a whole file of flax.serialization: "):
            bridge.read_flax(path)
    path.write_bytes(flax_bytes(msgpack, np.ones(3)))
    with pytest.raises(TwinaxError, match="holds one ndarray, where a dictionary of parameters was expected"):
        bridge.read_flax(path)
    path.write_bytes(b"\x81\xa1a" * 5000 + b"\x01")
    with pytest.raises(TwinaxError, match="is not a whole file of flax.serialization: "):
        bridge.read_flax(path)


def test_without_msgpack_the_extra_is_named(tmp_path, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "msgpack" else real(name))
    (tmp_path / "a").write_bytes(b"\x81\xa1a\x01")
    with pytest.raises(MissingExtra, match=r"reading Flax files needs msgpack.*pip install 'twinax\[offline\]'"):
        bridge.read_flax(tmp_path / "a")


# What Flax itself wrote


def real_networks():
    rng = np.random.default_rng(1)
    critic = Value.init(rng, 5, (8, 6), members=2)
    pixels = Impala.init(rng, (6, 5, 2), (2, 3), 1, (4,), norm=True)
    actor = Encoded(pixels, Actor.init(rng, 4, (5,), 2, std="state", norm=True))
    return {"critic": critic, "actor": actor}


@pytest.mark.parametrize("convert", [bridge.to_numpy, bridge.to_torch, bridge.to_jax], ids=["numpy", "torch", "jax"])
def test_a_real_file_computes_what_flax_computed(msgpack, convert):
    file = bridge.read_flax(REAL)
    networks, report = bridge.load_flax(convert(real_networks()), {"network": file["network"]})
    assert report.complete and not report.unused
    assert len(report.matched) == len(named_leaves(networks)) == len({m.theirs for m in report.matched})
    given, wanted = convert(file["given"]), file["wanted"]
    critic = networks["critic"](given["states"], given["actions"])
    distribution = networks["actor"](given["images"])
    for got, name in ((critic, "critic"), (distribution.mean, "mean"), (distribution.log_std, "log_std")):
        np.testing.assert_allclose(bridge.to_numpy(got), wanted[name], rtol=1e-4, atol=2e-6)
    assert wanted["critic"].shape == (2, 3) and np.abs(wanted["critic"][0] - wanted["critic"][1]).min() > 1e-3
    kinds = {type(leaf) for leaf in named_leaves(networks).values()}
    assert kinds == {type(leaf) for leaf in named_leaves(convert(real_networks())).values()}


# Names and layouts


def dense(inputs, outputs, *members):
    return {"kernel": RNG.normal(size=(*members, inputs, outputs)), "bias": RNG.normal(size=(*members, outputs))}


def norm(width, *members):
    return {"scale": RNG.normal(size=(*members, width)), "bias": RNG.normal(size=(*members, width))}


def mlp(*sizes, members=(), final=False):
    """Parameters of a Flax perceptron, its keys in the order of a sorted dictionary."""
    layers = {f"Dense_{i}": dense(a, b, *members) for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True))}
    normed = range(len(layers) - (not final))
    return dict(sorted({**layers, **{f"LayerNorm_{i}": norm(sizes[i + 1], *members) for i in normed}}.items()))


def conv(inputs, outputs, window=3, bias=True):
    kernel = {"kernel": RNG.normal(size=(window, window, inputs, outputs))}
    return {**kernel, "bias": RNG.normal(size=outputs)} if bias else kernel


def rng():
    return np.random.default_rng(0)


def test_layers_are_turned_round():
    params = mlp(3, 4, 2)
    net, report = bridge.load_flax(MLP.xavier(rng(), 3, (4,), 2), {"params": params})
    np.testing.assert_allclose(net.layers[0].weight, params["Dense_0"]["kernel"].T.astype(np.float32))
    np.testing.assert_allclose(net.norms[0].weight, params["LayerNorm_0"]["scale"].astype(np.float32))
    assert net.layers[0].weight.dtype == np.float32 and net.layers[0].weight.flags["C_CONTIGUOUS"]
    first = report.matched[0]
    assert (first.ours, first.theirs) == ("layers.0.weight", "params/Dense_0/kernel")
    assert (first.shape, first.their_shape) == ((4, 3), (3, 4))


def test_ten_layers_are_in_the_order_of_their_numbers():
    params = mlp(*[4] * 13)
    assert list(params)[:3] == ["Dense_0", "Dense_1", "Dense_10"]
    net, _ = bridge.load_flax(MLP.xavier(rng(), 4, [4] * 11, 4), params)
    for i, layer in enumerate(net.layers):
        np.testing.assert_allclose(layer.weight, params[f"Dense_{i}"]["kernel"].T.astype(np.float32))


def test_heads_of_equal_shape_are_told_apart_by_name():
    params = {"trunk_net": mlp(5, 4, final=True), "log_std_net": dense(4, 4), "mean_net": dense(4, 4)}
    net, _ = bridge.load_flax(Intention.init(rng(), 5, (4,), 4), params)
    np.testing.assert_allclose(net.mean.weight, params["mean_net"]["kernel"].T.astype(np.float32))
    np.testing.assert_allclose(net.log_std.bias, params["log_std_net"]["bias"].astype(np.float32))
    pair = {"psi": mlp(4, 6, 3, members=(2,)), "phi": mlp(4, 6, 3, members=(2,))}
    critic, _ = bridge.load_flax(Bilinear.init(rng(), 4, 4, (6,), 3), pair)
    kernel = pair["phi"]["Dense_1"]["kernel"]
    np.testing.assert_allclose(critic.phi.members.layers[1].weight, np.swapaxes(kernel, 1, 2).astype(np.float32))


def test_free_parameters_are_found():
    params = {"actor_net": mlp(3, 4, final=True), "mean_net": dense(4, 2), "log_stds": RNG.normal(size=2)}
    net, _ = bridge.load_flax(Actor.init(rng(), 3, (4,), 2, std="free", norm=True), params)
    np.testing.assert_allclose(net.log_std, params["log_stds"].astype(np.float32))
    tree, report = bridge.load_flax({"alpha": np.zeros(())}, {"modules_alpha": {"value": np.array(0.3)}})
    assert tree["alpha"] == 0.3 and report.matched[0].theirs == "modules_alpha/value"


def test_wrappers_on_either_side():
    plain, wrapped = MLP.xavier(rng(), 3, (4,), 1), Value.init(rng(), 3, (4,))
    params = mlp(3, 4, 1)
    for net, given in (
        (plain, {"value_net": params}),
        (wrapped, params),
        (wrapped, {"Critic_0": {"value_net": params}}),
        (Encoded(make_encoder("mlp", rng(), (3,)), Value.init(rng(), 512, (4,))), None),
    ):
        if given is None:
            given = {"encoder": mlp(3, 512, 512, 512, 512), "value_net": mlp(512, 4, 1)}
        _, report = bridge.load_flax(net, given)
        assert report.complete and len(report.matched) == len(named_leaves(net))


def test_convolutions_and_group_norms():
    def block(inputs, width):
        project = {"conv_proj": conv(inputs, width, 1, bias=False), "norm_proj": norm(width)}
        convs = {"Conv_0": conv(inputs, width, bias=False), "Conv_1": conv(width, width, bias=False)}
        norms = {f"MyGroupNorm_{i}": norm(width) for i in range(2)}
        return {**convs, **norms, **(project if inputs != width else {})}

    start = {"conv_init": conv(5, 4, 7, bias=False), "norm_init": norm(4)}
    params = {**start, "ResNetBlock_0": block(4, 4), "ResNetBlock_1": block(4, 8)}
    net, report = bridge.load_flax(ResNet.init(rng(), (8, 8, 3), (1, 1), 4), params)
    assert report.complete
    kernel = params["ResNetBlock_1"]["Conv_0"]["kernel"]
    np.testing.assert_allclose(net.blocks[1].convs[0].weight[6, 3, 2, 0], kernel[2, 0, 3, 6].astype(np.float32))
    assert net.blocks[1].projection.weight.shape == (8, 4, 1, 1)


def test_layers_with_other_names_are_found_by_their_type():
    net = MLP.init(rng(), 3, (4,), 2)
    params = {"hidden_0": dense(3, 4), "hidden_1": dense(4, 2)}
    assert bridge.load_flax(net, params)[1].complete
    members = Ensemble.init(rng(), 2, lambda r: MLP.init(r, 3, (4,), 2))
    params = {"hidden_0": dense(3, 4, 2), "hidden_1": dense(4, 2, 2)}
    assert bridge.load_flax(members, params)[1].complete
    # Two groups of the same type: which comes first cannot be known.
    unclear = {"inner_0": dense(3, 4), "outer": dense(4, 2)}
    with pytest.raises(TwinaxError, match=r"missing \['layers.0.weight'.* unexpected \['inner_0/kernel'"):
        bridge.load_flax(net, unclear)
    two = {"inner_0": dense(3, 4), "inner_1": dense(4, 2), "other": dense(4, 2)}
    _, report = bridge.load_flax(net, two, names={"layers": "inner"}, strict=False)
    assert report.missing == () and report.unexpected == ("other/kernel", "other/bias")


def test_layers_that_were_made_in_another_order():
    params = {"Dense_0": dense(4, 4), "Dense_1": dense(4, 4)}
    net, report = bridge.load_flax(MLP.init(rng(), 4, (4,), 4), params, names={"layers": ["Dense_1", "Dense_0"]})
    np.testing.assert_allclose(net.layers[0].weight, params["Dense_1"]["kernel"].T.astype(np.float32))
    assert report.complete and report.matched[0].theirs == "Dense_1/kernel"
    params["Dense_2"] = dense(4, 4)
    with pytest.raises(TwinaxError, match=r"missing none, unexpected \['Dense_2/kernel', 'Dense_2/bias'\]"):
        bridge.load_flax(net, params, names={"layers": ["Dense_1", "Dense_0"]})


def test_networks_of_an_agent_are_found_by_their_names():
    nets = {"critic": Value.init(rng(), 3, (4,)), "actor": MLP.xavier(rng(), 3, (4,), 2)}
    params = {"modules_critic": {"value_net": mlp(3, 4, 1)}, "modules_target_critic": {"value_net": mlp(3, 4, 1)}}
    params |= {"modules_policy": mlp(3, 4, 2)}
    filled, report = bridge.load_flax(nets, {"network": {"params": params}}, modules={"actor": "modules_policy"})
    assert report.unused == ("network/params/modules_target_critic",) and report.complete
    assert set(filled) == set(nets) and type(filled["critic"]) is Value
    targets, _ = bridge.load_flax({"critic": nets["critic"]}, params, {"critic": "modules_target_critic"})
    kernel = params["modules_target_critic"]["value_net"]["Dense_0"]["kernel"]
    np.testing.assert_allclose(targets["critic"].body.layers[0].weight, kernel.T.astype(np.float32))
    with pytest.raises(UnknownName, match="for the network 'actor': 'modules_actor'; known: modules_critic"):
        bridge.load_flax(nets, params)
    with pytest.raises(UnknownName, match="unknown network 'criti'; known: actor, critic"):
        bridge.load_flax(nets, params, {"criti": "modules_critic"})
    kept, report = bridge.load_flax(nets, params, strict=False)
    assert kept["actor"].layers[0].weight is nets["actor"].layers[0].weight
    assert len(report.missing) == len(named_leaves(nets["actor"]))


def test_what_does_not_fit_is_named():
    net = MLP.xavier(rng(), 3, (4,), 2)
    params = mlp(3, 4, 2)
    seen = []
    without = {key: value for key, value in params.items() if key != "LayerNorm_0"}
    with pytest.raises(TwinaxError, match=r"missing \['norms.0.weight', 'norms.0.bias'\], unexpected none \(2 missing"):
        bridge.load_flax(net, without, report=seen.append)
    assert seen[0].missing == ("norms.0.weight", "norms.0.bias") and len(seen[0].matched) == 4
    more = {**params, "Dense_2": dense(2, 2)}
    with pytest.raises(TwinaxError, match=r"missing none, unexpected \['Dense_2/kernel', 'Dense_2/bias'\]"):
        bridge.load_flax(net, more)
    unbiased = {**params, "Dense_1": {"kernel": params["Dense_1"]["kernel"]}}
    with pytest.raises(TwinaxError, match=r"missing \['layers.1.bias'\], unexpected none"):
        bridge.load_flax(net, unbiased)
    wrong = {**params, "Dense_0": dense(5, 4)}
    message = (
        r"'layers.0.weight' has shape \(4, 3\), but 'Dense_0/kernel' has shape \(5, 4\), "
        r"which is \(4, 5\) in the layout used here"
    )
    with pytest.raises(TwinaxError, match=message):
        bridge.load_flax(net, wrong)
    # Not an ensemble there
    with pytest.raises(TwinaxError, match=r"'body.members.layers.0.weight' has shape \(2, 4, 3\), but .* \(3, 4\)$"):
        bridge.load_flax(Value.init(rng(), 3, (4,), members=2), {"value_net": mlp(3, 4, 1)})
    with pytest.raises(TwinaxError, match="'Dense_0/kernel' is a builtins.str"):
        bridge.load_flax(net, {**params, "Dense_0": {"kernel": "text", "bias": np.zeros(4)}})


def test_a_square_matrix_is_turned_round_as_well():
    kernel = RNG.normal(size=(4, 4))
    net, _ = bridge.load_flax(Linear.xavier(rng(), 4, 4), {"Dense_0": {"kernel": kernel, "bias": np.zeros(4)}})
    x = RNG.normal(size=(2, 4))
    np.testing.assert_allclose(net(x), (x @ kernel).astype(np.float32), rtol=1e-5, atol=1e-6)


def test_the_framework_and_dtype_of_the_network_stay():
    params = mlp(3, 4, 2)
    net = MLP.xavier(rng(), 3, (4,), 2)
    there, _ = bridge.load_flax(bridge.to_torch(net), params)
    assert there.layers[0].weight.dtype == torch.float32
    here, _ = bridge.load_flax(bridge.to_jax(net), {"params": jax.tree.map(jnp.asarray, params)})
    assert isinstance(here.norms[0].bias, jax.Array)
    np.testing.assert_array_equal(here.layers[1].weight, there.layers[1].weight)


def test_a_report_is_a_table():
    _, report = bridge.load_flax(MLP.init(rng(), 2, (), 3), {"Dense_0": dense(2, 3), "extra": np.ones(1)}, strict=False)
    assert str(report).splitlines() == [
        "here             shape   Flax            shape",
        "layers.0.weight  (3, 2)  Dense_0/kernel  (2, 3)",
        "layers.0.bias    (3,)    Dense_0/bias    (3,)",
        "missing: none",
        "unexpected: extra",
        "unused: none",
    ]


# Whole agents on images, nested as the published code nests them


def flax_linear(layer):
    return {"kernel": np.swapaxes(layer.weight, -1, -2), "bias": layer.bias}


def flax_mlp(net):
    net = net.members if isinstance(net, Ensemble) else net
    layers = {f"Dense_{i}": flax_linear(layer) for i, layer in enumerate(net.layers)}
    return {**layers, **{f"LayerNorm_{i}": {"scale": n.weight, "bias": n.bias} for i, n in enumerate(net.norms)}}


def flax_impala(net):
    def one(conv):
        return {"kernel": np.moveaxis(conv.weight, (0, 1), (3, 2)), "bias": conv.bias}

    stacks = {
        f"stack_blocks_{i}": {f"Conv_{k}": one(conv) for k, conv in enumerate(stack.convs)}
        for i, stack in enumerate(net.stacks)
    }
    return {**stacks, "MLP_0": flax_mlp(net.dense)}


def flax_actor(net):
    return {"actor_net": flax_mlp(net.trunk), "mean_net": flax_linear(net.mean)}


def flax_value(net):
    return {"value_net": flax_mlp(net.body)}


def flax_intention(net):
    heads = {"mean_net": flax_linear(net.mean), "log_std_net": flax_linear(net.log_std)}
    return {"trunk_net": flax_mlp(net.trunk), **heads}


def flax_module(agent, name, net):
    """The parameters of one module as the agents of the published code have them, and of the encoder beside it."""
    if agent.name == "dino_rebrac":
        return flax_impala(net) if name == "encoder" else (flax_actor if name == "actor" else flax_value)(net)
    if isinstance(net, Bilinear):
        encoders = {"state_encoder": flax_impala(net.phi.encoder), "goal_encoder": flax_impala(net.psi.encoder)}
        return {**encoders, "phi": flax_mlp(net.phi.net), "psi": flax_mlp(net.psi.net)}
    if isinstance(net, Metric):
        return {"encoder": flax_impala(net.phi.encoder), "phi": flax_mlp(net.phi.net)}
    if name == "field":
        return {"vector_field_net": flax_mlp(net.net.body)}
    if not isinstance(net, Encoded):
        return flax_value(net)
    inside = {Actor: flax_actor, Intention: flax_intention, Value: flax_value}[type(net.net)](net.net)
    if agent.actor_sees == "latent":  # goal-conditioned modules wrap their encoders
        return {"gc_encoder": {"state_encoder": flax_impala(net.encoder)}, **inside}
    return {"encoder": flax_impala(net.encoder), **inside}


@pytest.mark.parametrize(
    "name", ["iql", "rebrac", "dino_rebrac", "hilp", "fb_repr", "crl_infonce", "td_infonce", "infom"]
)
def test_agents_on_images_are_read(name):
    agent = few.small(name, encoder="impala_debug")
    sizes = agent.sizes((8, 8, 3), 2)
    published, fresh = agent.build(np.random.default_rng(1), sizes), agent.build(np.random.default_rng(2), sizes)
    for target in (False, True):
        modules = agent.flax_modules(target)
        params = {theirs: flax_module(agent, ours, published[ours]) for ours, theirs in modules.items()}
        if name == "infom":
            prefix = "modules_target_" if target else "modules_"
            params[f"{prefix}critic_vf_encoder"] = flax_impala(published["field"].encoder)
        networks = {ours: fresh[ours] for ours in modules}
        filled, report = bridge.load_flax(networks, {"network": {"params": params}}, modules)
        assert report.complete and not report.unused
        assert {m.theirs for m in report.matched} == {
            f"network/params/{key}" for key in flatten(params)
        }  # under its own name there
        for leaf, wanted in named_leaves({ours: published[ours] for ours in modules}).items():
            np.testing.assert_array_equal(named_leaves(filled)[leaf], wanted, err_msg=leaf)


def flatten(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}"


def test_a_goal_has_an_encoder_of_its_own():
    agent = few.small("gcbc", encoder="impala_debug")
    sizes = agent.sizes((8, 8, 3), 2)
    published, fresh = (agent.build(np.random.default_rng(seed), sizes)["actor"] for seed in (1, 2))
    encoders = {"goal_encoder": published.goal_encoder, "state_encoder": published.encoder}
    params = {"gc_encoder": {key: flax_impala(net) for key, net in encoders.items()}, **flax_actor(published.net)}
    filled, report = bridge.load_flax(fresh, params)
    assert report.complete
    np.testing.assert_array_equal(
        filled.goal_encoder.dense.layers[0].weight, published.goal_encoder.dense.layers[0].weight
    )
    np.testing.assert_array_equal(filled.encoder.dense.layers[0].weight, published.encoder.dense.layers[0].weight)
    params["gc_encoder"]["concat_encoder"] = flax_impala(published.encoder)
    with pytest.raises(TwinaxError, match="unexpected .*gc_encoder/concat_encoder/stack_blocks_0/Conv_0/kernel"):
        bridge.load_flax(fresh, params)
