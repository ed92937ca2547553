"""Whole modules in other libraries: pairing, building, what is lost, and what people do wrong."""

from __future__ import annotations

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax import bridge, networks
from twinax.errors import MissingExtra, TwinaxError

torch = pytest.importorskip("torch")
fl = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
nn = torch.nn
KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 4))
IMAGES = np.random.default_rng(0).normal(size=(2, 3, 6, 6))


class Actor(nn.Module):
    """As people write it: layers, and a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.mean = nn.Linear(8, 2)
        self.log_std = nn.Parameter(torch.tensor([0.5, -0.5]))

    def forward(self, x):
        return self.mean(self.body(x)), self.log_std


class LinenActor(fl.Module):
    """The layer that is used first is made last, so its number does not say its place."""

    @fl.compact
    def __call__(self, x):
        out, hidden, first = fl.Dense(2), fl.Dense(8), fl.Dense(8, name="zuerst")
        return out(fl.tanh(hidden(fl.tanh(first(x))))), self.param("log_std", fl.initializers.zeros, (2,))


class NnxActor(nnx.Module):
    def __init__(self, rngs):
        self.mean = nnx.Linear(8, 2, rngs=rngs)
        self.first = nnx.Linear(4, 8, rngs=rngs)
        self.second = nnx.Linear(8, 8, rngs=rngs)
        self.log_std = nnx.Param(jnp.zeros(2))

    def __call__(self, x):
        return self.mean(nnx.tanh(self.second(nnx.tanh(self.first(x))))), self.log_std[...]


class EquinoxActor(eqx.Module):
    layers: list
    log_std: jax.Array

    def __init__(self):
        self.layers = [eqx.nn.Linear(a, b, key=KEY) for a, b in ((4, 8), (8, 8), (8, 2))]
        self.log_std = jnp.zeros(2)

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = jnp.tanh(layer(x))
        return self.layers[-1](x), self.log_std


def linen(module, *inputs):
    return module, module.init(KEY, *inputs)


def test_a_module_of_ones_own_gets_the_weights():
    source = Actor()
    # The parameter has no rows, so Equinox's vmap repeats it.
    first = (None, lambda m, x: tuple(y[0] if i else y for i, y in enumerate(jax.vmap(m)(x))))
    made = [
        bridge.convert(source, into=linen(LinenActor(), X), example=X),
        bridge.convert(source, into=NnxActor(nnx.Rngs(0)), example=X, names={"mean": "mean"}),
        bridge.convert(source, into=EquinoxActor(), example=X, run=first),
    ]
    rows = {(row.source, row.target): row for row in made[0].moved}
    assert rows["body.0.weight", "params/zuerst/kernel"].turned == "transposed"
    assert rows["log_std", "params/log_std"].shape == (2,)
    for one in made:
        assert one.check is not None and one.check.float64 < 1e-12
        assert one.check.shapes == ((5, 2), (2,))
    before = Actor()
    kept = {name: leaf.clone() for name, leaf in before.state_dict().items()}
    back = bridge.convert(made[0].result, into=before, example=torch.from_numpy(X)).result
    assert all(torch.equal(leaf, kept[name]) for name, leaf in before.state_dict().items())
    assert all(torch.equal(leaf, source.state_dict()[name]) for name, leaf in back.state_dict().items())


class Encoder(fl.Module):
    """Layers that are made in `setup`, called with a switch and with a draw, and numbers that are no weights."""

    def setup(self):
        self.conv, self.norm, self.out = fl.Conv(4, (3, 3), padding="VALID"), fl.BatchNorm(momentum=0.9), fl.Dense(2)
        self.drop = fl.Dropout(0.5)
        self.variable("counts", "calls", lambda: jnp.zeros((), int))

    def __call__(self, x, train):
        x = fl.relu(self.norm(self.conv(x), use_running_average=not train))
        return self.out(self.drop(jnp.mean(x, (1, 2)), deterministic=not train))


class TorchEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_a_module_that_is_called_in_a_way_of_its_own():
    x = jnp.asarray(np.moveaxis(IMAGES, 1, -1), jnp.float32)
    network = Encoder()
    variables = network.init(KEY, x, False)
    _, state = network.apply(variables, x, True, rngs={"dropout": KEY}, mutable=["batch_stats"])
    run = (lambda m, x: m(jnp.moveaxis(x, 1, -1), False), None)
    made = bridge.convert((network, {**variables, **state}), into=TorchEncoder(), example=IMAGES, run=run)
    assert made.check is not None and made.check.float64 < 1e-12 and made.result.norm.running_mean.any()
    there = bridge.convert(made.result, into=(network, variables), example=IMAGES, run=run[::-1])
    assert there.result[1]["batch_stats"]["norm"]["mean"].any() and "calls" in there.result[1]["counts"]
    assert not variables["batch_stats"]["norm"]["mean"].any(), "what was given is as it was"


class Two(nn.Module):
    def __init__(self, *names):
        super().__init__()
        for i, name in enumerate(names):
            setattr(self, name, nn.Parameter(torch.full((2,), float(i))))

    def forward(self, x):
        return x


def test_parameters_of_their_own_are_told_apart_by_name():
    moved = bridge.convert(Two("log_std", "log_alpha"), into=Two("log_alpha", "log_std"), example=X).result
    assert moved.log_alpha.tolist() == [1.0, 1.0] and moved.log_std.tolist() == [0.0, 0.0]
    with pytest.raises(TwinaxError, match="does not show in their names: say it with names"):
        bridge.convert(Two("log_std", "log_alpha"), into=Two("a", "b"), example=X)
    said = bridge.convert(Two("log_std", "c"), into=Two("a", "b"), example=X, names={"a": "c", "b": "log_std"}).result
    assert said.a.tolist() == [1.0, 1.0]


def test_attention_with_biases_on_some_sides():
    part = eqx.nn.MultiheadAttention(2, 6, use_query_bias=True, key=KEY)
    whole = bridge.convert(part, to="torch")
    assert whole.check is not None and whole.check.float64 < 1e-12
    assert not whole.result.in_proj_bias[6:].any() and whole.result.in_proj_bias[:6].any()
    back = bridge.convert(whole.result, into=part)
    np.testing.assert_array_equal(back.result.query_proj.bias, part.query_proj.bias)
    with pytest.raises(TwinaxError, match="key_proj/bias of the MultiheadAttention in Equinox is missing"):
        full = nn.MultiheadAttention(6, 2)
        torch.nn.init.ones_(full.in_proj_bias)
        bridge.convert(full, into=part)


class General(fl.Module):
    @fl.compact
    def __call__(self, x):
        return fl.DenseGeneral((2, 2))(x)


def test_layers_in_another_order_are_said_or_seen():
    with pytest.raises(
        TwinaxError, match=r"weight of 'body.0' .* in PyTorch has shape \(8, 4\), but 'mean' .* \(2, 8\)"
    ):
        bridge.convert(Actor(), into=NnxActor(nnx.Rngs(0)), example=X)
    swapped = {"mean": "mean", "first": "body.0"}
    assert bridge.convert(Actor(), into=NnxActor(nnx.Rngs(0)), example=X, names=swapped).check
    square = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    target = bridge.convert(square, to="nnx").result
    wrong = {"layers.0": "2", "layers.2": "0"}
    with pytest.raises(TwinaxError, match="differ by .* may be used in another order"):
        bridge.convert(square, into=target, names=wrong)
    assert bridge.convert(square, into=target, names=wrong, check=False).check is None


@pytest.mark.parametrize("to", ["flax", "nnx", "equinox"])
def test_a_sequence_is_built(to):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    layers = [nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(16, 5), nn.LayerNorm(5)]
    source = nn.Sequential(*layers, nn.Dropout(0.5), nn.Sequential(nn.SiLU(), nn.Linear(5, 2)))
    source.train()
    source(torch.randn(7, 3, 6, 6))
    made = bridge.convert(source, to=to, example=IMAGES)
    assert made.check is not None and made.check.float64 < 1e-12
    assert source.training, "the given module is as it was"
    assert any("gelu" in note for note in made.notes) and any("variance" in note for note in made.notes)
    back = bridge.convert(made.result, into=source, example=IMAGES).result
    for name, leaf in back.state_dict().items():
        assert torch.equal(leaf, source.state_dict()[name]), name
    torch.set_rng_state(state)
    before = torch.get_rng_state()
    bridge.convert(nn.utils.skip_init(nn.Linear, 2, 2), to="torch", check=False)
    assert torch.equal(before, torch.get_rng_state()), "nothing is drawn from PyTorch's generator"


def test_multi_layer_perceptrons_are_sequences():
    mlp = eqx.nn.MLP(3, 2, 8, 2, activation=jnp.tanh, key=KEY)
    made = bridge.convert(mlp, to="torch").result
    assert [type(layer).__name__ for layer in made] == ["Linear", "Tanh", "Linear", "Tanh", "Linear"]
    net = networks.MLP.xavier(np.random.default_rng(0), 3, (4, 4), 2)
    module = bridge.convert(net, to="nnx")
    assert module.check is not None and module.check.float64 < 1e-12
    fresh = networks.MLP.xavier(np.random.default_rng(1), 3, (4, 4), 2)
    again = bridge.convert(module.result, into=fresh).result
    np.testing.assert_array_equal(again.layers[2].weight, net.layers[2].weight)
    assert type(again.layers[0].weight) is np.ndarray, "the framework of the leaves stays"


class Memory(fl.Module):
    @fl.compact
    def __call__(self, x):
        for _ in range(2):
            x = fl.RNN(fl.GRUCell(3), time_major=True)(x)
        return x


def test_recurrent_networks_over_time():
    x = np.random.default_rng(0).normal(size=(6, 2, 4))
    source, target = nn.GRU(4, 3, 2), linen(Memory(), jnp.asarray(x, jnp.float32))
    run = (lambda m, x: m(x)[0], None)
    made = bridge.convert(source, into=target, example=x, run=run, lossy=True)
    assert made.check is not None and made.check.float64 < 1e-6
    assert "params/GRUCell_0/{ir,iz,in}/kernel" in str(made) and "'l1' (GRU) has two biases" in made.lost[1]
    ours = networks.GRU.init(np.random.default_rng(0), 4, 3, 2)
    own = bridge.convert(made.result, into=ours, example=x, run=(None, run[0]))
    assert own.check is not None and own.check.float64 < 1e-12
    assert own.moved[0].target == "weight_ih_l0"


def test_what_would_be_lost_is_refused():
    for source, to, text in (
        (nn.LSTMCell(3, 4), "flax", "the LSTMCell has two biases, of which Flax linen keeps the sum"),
        (nn.GRUCell(3, 4), "equinox", "the GRUCell has two biases, of which Equinox keeps the sum"),
        (nn.GRUCell(3, 4), "nnx", "bias inside its reset gate .* for which Flax nnx has no place"),
        (nn.Linear(3, 4).double(), "equinox", "numbers in float64, which float32 in Equinox rounds"),
    ):
        with torch.no_grad():
            for leaf in source.parameters():
                leaf.add_(0.1)
        with pytest.raises(TwinaxError, match=f"{text}.*; lossy=True converts it nevertheless"):
            bridge.convert(source, to=to)
        made = bridge.convert(source, to=to, lossy=True)
        assert len(made.lost) == 1 and made.check is not None
        # Only what nnx cannot hold changes the function.
        assert (made.check.float64 > 1e-3) == (to == "nnx")
    cell = nn.LSTMCell(3, 4, bias=False)
    assert not bridge.convert(cell, to="nnx").lost, "zeros are no loss"


def test_the_sum_of_biases_comes_back_as_the_first_one():
    source = nn.LSTMCell(3, 4)
    back = bridge.convert(bridge.convert(source, to="flax", lossy=True).result, to="torch").result
    torch.testing.assert_close(back.bias_ih, source.bias_ih + source.bias_hh)
    assert not back.bias_hh.any() and torch.equal(back.weight_hh, source.weight_hh)


def test_statistics_that_are_still_weighed_up():
    """Equinox's own training of a BatchNorm, and its statistics after a conversion in training again."""
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "rows", momentum=0.9, mode="batch")
    run = jax.vmap(norm, axis_name="rows", in_axes=(0, None), out_axes=(0, None))
    _, state = run(jnp.asarray(X, jnp.float32), state)
    with pytest.raises(TwinaxError, match="still weighs its statistics up .batches so far: 1."):
        bridge.convert((norm, state), to="torch")
    made = bridge.convert((norm, state), to="torch", lossy=True)
    assert made.check is not None and made.check.float64 < 1e-6
    source = nn.BatchNorm1d(4)
    source(torch.randn(7, 4))
    there, state = bridge.convert(source, to="equinox").result
    source(torch.from_numpy(X).float())
    _, state = jax.vmap(there, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
        jnp.asarray(X, jnp.float32), state
    )
    again = bridge.convert((there, state), to="torch").result
    torch.testing.assert_close(again.running_mean, source.running_mean)


def test_settings_that_differ_are_named():
    norm = nn.LayerNorm(4)
    with pytest.raises(
        TwinaxError, match=r"differ by .*: the LayerNorm has eps 1e-05 in PyTorch, and .* 1e-06 in Flax"
    ):
        bridge.convert(norm, into=nnx.LayerNorm(4, rngs=nnx.Rngs(0)))
    made = bridge.convert(norm, into=nnx.LayerNorm(4, rngs=nnx.Rngs(0)), check=False)
    assert "eps" in made.differs[0]
    assert "keeps its eps of 1e-05" in bridge.convert(norm, to="flax").notes[0]
    plain = bridge.convert(nn.RMSNorm(4), to="equinox")
    assert "no epsilon of its own" in plain.notes[0] and plain.check is not None and plain.check.float64 < 1e-12
    padded = bridge.convert(nn.Embedding(4, 2, padding_idx=0), to="nnx")
    assert "row 0 of 'Embedding' is never trained in PyTorch" in padded.notes[0]


def test_arrays_that_only_one_side_has():
    filled = bridge.convert(nn.LayerNorm(4, bias=False), into=nn.LayerNorm(4))
    assert filled.moved[1].turned == "filled in"
    with pytest.raises(TwinaxError, match="the bias of the Linear has no place in the Linear of Equinox"):
        bridge.convert(nn.Linear(4, 2), into=eqx.nn.Linear(4, 2, use_bias=False, key=KEY))
    tied = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    tied[1].weight = tied[0].weight
    assert "'1' and '0' share an array in PyTorch" in bridge.convert(tied, to="equinox").notes
    apart = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    with pytest.raises(TwinaxError, match="may share an array with another layer"):
        bridge.convert(apart, into=tied)


class Tall(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, x):
        return self.net(x).sum(-1)


WRONG = {
    "unknown layer": (lambda: bridge.convert(nn.Bilinear(3, 4, 2), to="nnx"), "no rule for Bilinear, the class of"),
    "unknown layer of nnx": (
        lambda: bridge.convert(nnx.LoRA(4, 2, 4, rngs=nnx.Rngs(0)), to="torch"),
        "no rule for LoRA",
    ),
    "unknown layer of Equinox": (lambda: bridge.convert(eqx.nn.PReLU(), to="torch"), "no rule for PReLU"),
    "unknown layer of linen": (
        lambda: bridge.convert(linen(General(), X), into=Actor(), example=X),
        "no rule for DenseGeneral, the class of 'DenseGeneral_0' in Flax linen",
    ),
    "missing layer": (
        lambda: bridge.convert(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), into=nn.Linear(4, 4)),
        r"source in PyTorch has 2 x linear \('0' \(Linear\), '1' \(Linear\)\) and the target in PyTorch 1 x linear",
    ),
    "another kind": (
        lambda: bridge.convert(nn.Linear(4, 4), into=nnx.LayerNorm(4, rngs=nnx.Rngs(0))),
        r"PyTorch has 1 x linear \(the Linear\) and the target in Flax nnx no linear",
    ),
    "shape": (
        lambda: bridge.convert(nn.Linear(3, 4), into=eqx.nn.Linear(4, 3, key=KEY)),
        r"weight of the Linear in PyTorch has shape \(4, 3\), but the Linear in Equinox needs \(3, 4\).*transposed",
    ),
    "heads": (
        lambda: bridge.convert(nn.MultiheadAttention(6, 2), into=eqx.nn.MultiheadAttention(3, 6, key=KEY)),
        "has 2 heads, but the MultiheadAttention in Equinox has 3",
    ),
    "no sequence": (lambda: bridge.convert(Tall(), to="nnx"), "and here it is a Tall: write the module there"),
    "unknown step": (
        lambda: bridge.convert(nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), to="flax"),
        "and here '1' is a Softmax",
    ),
    "no input": (
        lambda: bridge.convert(Tall(), into=Tall()),
        "give example=array, or pass check=False",
    ),
    "other outputs": (
        lambda: bridge.convert(Tall(), into=nn.Linear(4, 2), example=X.astype(np.float32)),
        r"shapes \(5,\) and PyTorch \(5, 2\) for the same inputs; say how both are called, as run=",
    ),
    "other inputs": (
        lambda: bridge.convert(nn.Sequential(nn.Linear(4, 2)), to="nnx", example=X[:, :3]),
        r"the module of PyTorch does not run on the example \(mat1 and mat2 .*\); give one in PyTorch's layout",
    ),
    "an input without rows": (
        lambda: bridge.convert(eqx.nn.Linear(4, 2, key=KEY), into=linen(fl.Dense(2), X), example=X[0]),
        "the module of Equinox does not run on the example",
    ),
    "no library": (lambda: bridge.convert(nn.Linear(2, 2), to="haiku"), "unknown library 'haiku'; known: equinox"),
    "no target": (lambda: bridge.convert(nn.Linear(2, 2)), "say what to convert to"),
    "two targets": (
        lambda: bridge.convert(nn.Linear(2, 2), "nnx", nn.Linear(2, 2)),
        "a module of PyTorch, but to='nnx'",
    ),
    "no module": (lambda: bridge.convert({}, to="nnx"), "the source is a builtins.dict; give a torch.nn.Module"),
    "no variables": (lambda: bridge.convert(fl.Dense(3), to="nnx"), r"give \(module, variables\)"),
    "empty variables": (lambda: bridge.convert((fl.Dense(3), {"params": {}}), to="nnx"), "no arrays for 'Dense'"),
    "no example": (
        lambda: bridge.convert(linen(LinenActor(), X), into=Actor()),
        "layers of a LinenActor in Flax linen show when it runs: give an input",
    ),
    "unknown name": (
        lambda: bridge.convert(nn.Linear(2, 2), into=nn.Linear(2, 2), names={"net": ""}),
        "unknown layer 'net'",
    ),
    "no state": (
        lambda: bridge.convert(eqx.nn.BatchNorm(4, "rows", mode="batch"), to="torch"),
        r"give \(module, state\)",
    ),
    "groups": (lambda: bridge.convert(nn.ConvTranspose1d(4, 4, 3, groups=2), to="flax"), "ConvTranspose has no groups"),
    "asymmetric": (
        lambda: bridge.convert(nnx.Conv(3, 3, (4,), padding=[(1, 2)], rngs=nnx.Rngs(0)), to="torch"),
        "PyTorch puts equally many zeros on both sides",
    ),
    "both ways": (lambda: bridge.convert(nn.GRU(3, 4, bidirectional=True), to="nnx"), "runs both ways"),
    "circular": (
        lambda: bridge.convert(nn.Conv1d(3, 3, 3, padding=1, padding_mode="circular"), to="nnx"),
        "only padding with zeros has a rule",
    ),
    "all batches": (lambda: bridge.convert(nn.BatchNorm1d(3, momentum=None), to="nnx"), "averages over all batches"),
    "weight norm": (
        lambda: bridge.convert(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), to="nnx"),
        "remove_parametrizations first",
    ),
    "members": (
        lambda: bridge.convert(
            networks.Ensemble.init(np.random.default_rng(0), 2, lambda rng: networks.Linear.init(rng, 2, 2)), to="nnx"
        ),
        "keeps several layers in one array",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_one_sentence(case):
    make, text = WRONG[case]
    with pytest.raises(TwinaxError, match=text):
        make()


@pytest.mark.parametrize(("to", "package"), [("flax", "flax"), ("nnx", "flax"), ("torch", "torch")])
def test_a_library_that_is_not_installed(to, package, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == package else found(name, *more)
    )
    layer = eqx.nn.Linear(2, 3, key=KEY)
    with pytest.raises(MissingExtra, match=rf"convert\(to='{to}'\) needs {package}.*pip install 'twinax\[{package}\]'"):
        bridge.convert(layer, to=to)
    assert package in sys.modules
