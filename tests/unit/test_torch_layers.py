"""Layers against `torch.nn`: values, gradients by inputs and by every parameter, names, first weights and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from torch import nn

from twinax import bridge
from twinax.errors import TwinaxError
from twinax.networks import (
    GRU,
    LSTM,
    Conv1d,
    Conv2d,
    Embedding,
    GroupNorm,
    GRUCell,
    LayerNorm,
    Linear,
    LSTMCell,
    MultiheadAttention,
    ResidualBlock,
    ResidualMLP,
    TransformerEncoder,
    TransformerEncoderLayer,
    as_torch_module,
    num_parameters,
)
from twinax.tree import named_leaves

pytestmark = pytest.mark.usefixtures("quick_compilation")

RNG = np.random.default_rng(11)
TOKENS = RNG.integers(0, 7, (3, 5)).astype(np.int32)
X = RNG.normal(size=(3, 5, 8))
OTHERS = RNG.normal(size=(3, 4, 8))
IMAGES = RNG.normal(size=(3, 4, 7, 6))
MASK = RNG.random((5, 5)) < 0.5
MASK[0, 0] = True
MASK[2] = False  # one that may look at nothing
CROSS_MASK = RNG.random((3, 5, 4)) < 0.7
CROSS_MASK[..., 0] = True
KEYS = np.arange(5) < np.array([[5], [2], [3]])
BEFORE = np.tril(np.ones((5, 5), bool))


class Case(NamedTuple):
    """A layer here and there, what it is given, and how each is called."""

    ours: Callable[[np.random.Generator], Any]
    theirs: Callable[[], nn.Module]
    inputs: tuple
    call: Callable = lambda net, *inputs: net(*inputs)
    their_call: Callable = lambda net, *inputs: net(*inputs)


class Residual(nn.Module):
    """What a PyTorch user would write for `ResidualBlock`."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm, self.linear1, self.linear2 = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.linear2(torch.relu(self.linear1(self.norm(x))))


class DeepResidual(nn.Module):
    """The same for `ResidualMLP`."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 6)
        self.blocks = nn.ModuleList([Residual(6, 24), Residual(6, 24)])
        self.norm, self.last = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.norm(nn.Sequential(*self.blocks)(self.first(x))))


def layer(**options):
    return nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, **options)


def attend(net, x, **options):
    return net(x, x, x, need_weights=False, **options)[0]


def attention(rng):
    return MultiheadAttention.init(rng, 8, 2)


def their_attention():
    return nn.MultiheadAttention(8, 2, batch_first=True)


CASES = {
    "linear": Case(lambda r: Linear.init(r, 8, 3), lambda: nn.Linear(8, 3), (X,)),
    "embedding": Case(lambda r: Embedding.init(r, 7, 4), lambda: nn.Embedding(7, 4), (TOKENS,)),
    "embedding with padding": Case(
        lambda r: Embedding.init(r, 7, 4, padding=2), lambda: nn.Embedding(7, 4, padding_idx=2), (TOKENS,)
    ),
    "layer norm": Case(lambda r: LayerNorm.init(8), lambda: nn.LayerNorm(8), (X,)),
    "layer norm without bias": Case(
        lambda r: LayerNorm.init(8, 0.1, bias=False), lambda: nn.LayerNorm(8, 0.1, bias=False), (X,)
    ),
    "bare layer norm": Case(
        lambda r: LayerNorm.init(8, elementwise_affine=False), lambda: nn.LayerNorm(8, elementwise_affine=False), (X,)
    ),
    "self-attention": Case(attention, their_attention, (X,), their_call=attend),
    "self-attention without bias": Case(
        lambda r: MultiheadAttention.init(r, 8, 4, bias=False),
        lambda: nn.MultiheadAttention(8, 4, bias=False, batch_first=True),
        (X[0],),
        their_call=attend,
    ),
    "masked self-attention": Case(
        attention,
        their_attention,
        (X, MASK),
        lambda net, x, m: net(x, mask=m),
        lambda net, x, m: attend(net, x, attn_mask=~m),
    ),
    "masked self-attention of padded rows": Case(
        attention,
        their_attention,
        (X, MASK, KEYS),
        lambda net, x, m, keys: net(x, mask=m, key_mask=keys),
        lambda net, x, m, keys: attend(net, x, attn_mask=~m, key_padding_mask=~keys),
    ),
    "causal self-attention of padded rows": Case(
        attention,
        their_attention,
        (X, KEYS, BEFORE),
        lambda net, x, keys, before: net(x, key_mask=keys, causal=True),
        lambda net, x, keys, before: attend(net, x, key_padding_mask=~keys, attn_mask=~before),
    ),
    "cross-attention": Case(
        attention,
        their_attention,
        (X, OTHERS, OTHERS + 1),
        their_call=lambda net, q, k, v: net(q, k, v, need_weights=False)[0],
    ),
    "masked cross-attention": Case(
        attention,
        their_attention,
        (X, OTHERS, CROSS_MASK),
        lambda net, q, k, m: net(q, k, mask=m),
        lambda net, q, k, m: net(q, k, k, attn_mask=~m.repeat_interleave(2, 0), need_weights=False)[0],
    ),
    **{
        f"transformer layer, {'norm first' if first else 'norm last'}, {act}": Case(
            lambda r, first=first, act=act: TransformerEncoderLayer.init(r, 8, 2, 12, act, first),
            lambda first=first, act=act: layer(norm_first=first, activation=act),
            (X, KEYS),
            lambda net, x, keys: net(x, key_mask=keys),
            lambda net, x, keys: net(x, src_key_padding_mask=~keys),
        )
        for first, act in ((False, "relu"), (True, "gelu"))
    },
    "causal transformer": Case(
        lambda r: TransformerEncoder.init(r, 2, 8, 2, 12, norm_first=True, norm=True, causal=True),
        lambda: nn.TransformerEncoder(layer(norm_first=True), 2, nn.LayerNorm(8), enable_nested_tensor=False),
        (X, BEFORE),
        lambda net, x, before: net(x),
        lambda net, x, before: net(x, mask=~before, is_causal=True),
    ),
    "convolution": Case(lambda r: Conv2d.init(r, 4, 6, 3, 2, 1), lambda: nn.Conv2d(4, 6, 3, 2, 1), (IMAGES,)),
    "convolution with all options": Case(
        lambda r: Conv2d.init(r, 4, 6, (2, 3), padding="same", dilation=2, groups=2, bias=False),
        lambda: nn.Conv2d(4, 6, (2, 3), padding="same", dilation=2, groups=2, bias=False),
        (IMAGES[0],),
    ),
    "convolution with channels last": Case(
        lambda r: Conv2d.init(r, 4, 6, 3, padding="valid", channels_last=True),
        lambda: nn.Conv2d(4, 6, 3, padding="valid"),
        (IMAGES,),
        lambda net, x: net(x.swapaxes(1, 2).swapaxes(2, 3)).swapaxes(3, 2).swapaxes(2, 1),
    ),
    "convolution of series": Case(
        lambda r: Conv1d.init(r, 4, 6, 3, 2, 2, groups=2),
        lambda: nn.Conv1d(4, 6, 3, 2, 2, groups=2),
        (IMAGES[:, :, 0],),
    ),
    "dilated convolution of one series": Case(
        lambda r: Conv1d.init(r, 4, 6, 4, padding="same", dilation=2),
        lambda: nn.Conv1d(4, 6, 4, padding="same", dilation=2),
        (IMAGES[0, :, 0],),
    ),
    "convolution of series with channels last": Case(
        lambda r: Conv1d.init(r, 4, 6, 3, 3, 1, channels_last=True),
        lambda: nn.Conv1d(4, 6, 3, 3, 1),
        (IMAGES[:, :, 0],),
        lambda net, x: net(x.swapaxes(1, 2)).swapaxes(1, 2),
    ),
    "group norm": Case(lambda r: GroupNorm.init(4, 2), lambda: nn.GroupNorm(2, 4), (IMAGES,)),
    "group norm of series": Case(
        lambda r: GroupNorm.init(4, 1, 0.1), lambda: nn.GroupNorm(1, 4, 0.1), (IMAGES[:, :, 0],)
    ),
    "group norm with channels last": Case(
        lambda r: GroupNorm.init(4, 2, channels_last=True),
        lambda: nn.GroupNorm(2, 4),
        (IMAGES,),
        lambda net, x: net(x.swapaxes(1, 2).swapaxes(2, 3)).swapaxes(3, 2).swapaxes(2, 1),
    ),
    "gru cell": Case(lambda r: GRUCell.init(r, 8, 3), lambda: nn.GRUCell(8, 3), (OTHERS[0], OTHERS[1, :, :3])),
    "lstm cell": Case(
        lambda r: LSTMCell.init(r, 8, 3),
        lambda: nn.LSTMCell(8, 3),
        (OTHERS[0], OTHERS[1, :, :3], OTHERS[2, :, :3]),
        lambda net, x, *state: net(x, state),
        lambda net, x, *state: net(x, state),
    ),
    "gru": Case(lambda r: GRU.init(r, 8, 3), lambda: nn.GRU(8, 3), (X,)),
    "gru without bias": Case(
        lambda r: GRU.init(r, 8, 3, layers=2, bias=False), lambda: nn.GRU(8, 3, 2, bias=False), (X,)
    ),
    "gru of two layers with a state": Case(
        lambda r: GRU.init(r, 8, 3, layers=2), lambda: nn.GRU(8, 3, 2), (X, X[:2, :, :3])
    ),
    "gru of one row": Case(lambda r: GRU.init(r, 8, 3), lambda: nn.GRU(8, 3), (X[0],)),
    "lstm": Case(lambda r: LSTM.init(r, 8, 3), lambda: nn.LSTM(8, 3), (X,)),
    "lstm of two layers with a state": Case(
        lambda r: LSTM.init(r, 8, 3, layers=2),
        lambda: nn.LSTM(8, 3, 2),
        (X, X[:2, :, :3], X[:2, :, 3:6]),
        lambda net, x, *state: net(x, state),
        lambda net, x, *state: net(x, state),
    ),
    "residual block": Case(lambda r: ResidualBlock.init(r, 8, 12), lambda: Residual(8, 12), (X,)),
    "residual mlp": Case(lambda r: ResidualMLP.init(r, 8, 6, 2, 3), DeepResidual, (X,)),
}
EACH = pytest.mark.parametrize("name", CASES)


def shaken(net, seed=3):
    """In float64, away from biases of zero and scales of one."""
    rng = np.random.default_rng(seed)
    return jtu.tree_map(lambda x: x.astype(np.float64) + 0.1 * rng.normal(size=x.shape), net)


def made(name, seed=3):
    return shaken(CASES[name].ours(np.random.default_rng(seed)), seed)


def weighted(tree):
    """The sum of all entries with fixed random weights."""
    rng = np.random.default_rng(0)
    total = 0.0
    for y in jtu.tree_leaves(tree):
        weight = rng.normal(size=tuple(y.shape))
        total = total + (y * (torch.from_numpy(weight) if isinstance(y, torch.Tensor) else weight)).sum()
    return total


def moving(inputs):
    """Inputs as tensors, those that are continuous with gradients."""
    tensors = [torch.from_numpy(x.copy()) for x in inputs]
    return tensors, [x.requires_grad_() for x in tensors if x.is_floating_point()]


def assert_close(found, wanted):
    found, wanted = jtu.tree_leaves(found), jtu.tree_leaves(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(*(x.detach() if isinstance(x, torch.Tensor) else x for x in (a, b)), atol=1e-12)


@pytest.mark.parametrize("others", [None, OTHERS])
def test_rounding_is_no_gradient_of_the_bias_of_keys(others):
    """It adds one number to all scores of a query. Adam would make steps of the size of others of mere rounding."""
    attention = MultiheadAttention.init(np.random.default_rng(0), 8, 2)
    tensors = jtu.tree_map(lambda x: torch.tensor(x, requires_grad=True), attention)
    x = torch.tensor(X, dtype=torch.float32)
    tensors(x, None if others is None else torch.tensor(others, dtype=torch.float32)).square().sum().backward()
    arrays = jtu.tree_map(jnp.asarray, attention)
    gradient = jax.grad(lambda net: (net(*(jnp.float32(y) for y in (X, others) if y is not None)) ** 2).sum())(arrays)
    for bias in (tensors.in_proj_bias.grad.numpy(), np.asarray(gradient.in_proj_bias)):
        assert not bias[8:16].any() and bias[:8].any() and bias[16:].any()


@EACH
def test_values_and_gradients_are_those_of_torch(name, double_precision):
    case, net = CASES[name], made(name)
    theirs = case.theirs().double()
    theirs.load_state_dict(as_torch_module(net).state_dict())
    inputs, floats = moving(case.inputs)
    wanted = case.their_call(theirs, *inputs)
    order = dict(theirs.named_parameters())
    names = list(named_leaves(net))
    there = torch.autograd.grad(weighted(wanted), [order[n] for n in names] + floats)

    assert_close(case.call(net, *case.inputs), wanted)

    leaves = jtu.tree_map(lambda x: torch.tensor(x, requires_grad=True), net)
    inputs, floats = moving(case.inputs)
    ours = case.call(leaves, *inputs)
    assert_close(ours, wanted)
    assert_close(torch.autograd.grad(weighted(ours), jtu.tree_leaves(leaves) + floats), there)

    def loss(net, values):
        given = iter(values)
        inputs = [next(given) if x.dtype == np.float64 else jnp.asarray(x) for x in case.inputs]
        y = case.call(net, *inputs)
        return weighted(y), y

    values = [jnp.asarray(x) for x in case.inputs if x.dtype == np.float64]
    (_, here), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(
        jtu.tree_map(jnp.asarray, net), values
    )
    assert_close(here, wanted)
    assert_close(gradients, there)
    assert all(g.abs().max() > 0 for g in there)


@EACH
def test_names_are_those_of_torch_and_weights_go_both_ways(name):
    case = CASES[name]
    net = case.ours(np.random.default_rng(0))
    module, theirs = as_torch_module(net), case.theirs()
    assert list(module.state_dict()) == list(theirs.state_dict())
    shapes = {key: value.shape for key, value in theirs.state_dict().items()}
    assert {key: value.shape for key, value in module.state_dict().items()} == shapes
    inputs = [torch.from_numpy(x.astype(np.float32) if x.dtype == np.float64 else x) for x in case.inputs]
    module.load_state_dict(theirs.state_dict())
    for a, b in zip(
        jtu.tree_leaves(case.call(module, *inputs)), jtu.tree_leaves(case.their_call(theirs, *inputs)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name != "bare layer norm"])
def test_weights_survive_a_file(name, tmp_path):
    net, other = (CASES[name].ours(np.random.default_rng(seed)) for seed in (0, 1))
    bridge.save_weights(tmp_path / "net.safetensors", net)
    back = bridge.load_weights(tmp_path / "net.safetensors", like=other)
    assert type(back) is type(net) and jtu.tree_structure(back) == jtu.tree_structure(net)
    for a, b in zip(jtu.tree_leaves(back), jtu.tree_leaves(net), strict=True):
        np.testing.assert_array_equal(a, b)


WIDE: dict[str, tuple[Callable, Callable]] = {
    "convolution": (lambda r: Conv2d.init(r, 12, 60, (3, 2), groups=3), lambda: nn.Conv2d(12, 60, (3, 2), groups=3)),
    "series": (lambda r: Conv1d.init(r, 12, 60, 5), lambda: nn.Conv1d(12, 60, 5)),
    "gru": (lambda r: GRU.init(r, 20, 50, layers=2), lambda: nn.GRU(20, 50, 2)),
    "lstm": (lambda r: LSTM.init(r, 20, 50), lambda: nn.LSTM(20, 50)),
    "embedding": (lambda r: Embedding.init(r, 40, 50, padding=3), lambda: nn.Embedding(40, 50, padding_idx=3)),
    "attention": (lambda r: MultiheadAttention.init(r, 60, 3), lambda: nn.MultiheadAttention(60, 3)),
    "transformer": (
        lambda r: TransformerEncoder.init(r, 2, 40, 2, 90),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(40, 2, 90, batch_first=True), 2),
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_first_weights_have_the_distribution_of_torch(name):
    ours, theirs = WIDE[name]
    torch.manual_seed(0)
    wanted = {key: value.numpy() for key, value in theirs().state_dict().items()}
    for key, value in named_leaves(ours(np.random.default_rng(0))).items():
        assert value.dtype == np.float32
        if np.ptp(wanted[key]) == 0:
            np.testing.assert_array_equal(value, wanted[key])
            continue
        # Spread and range, within what so many numbers leave open
        error = 5 / np.sqrt(2 * value.size)
        assert value.std() == pytest.approx(wanted[key].std(), rel=error), key
        assert abs(value.mean()) < 5 * value.std() / np.sqrt(value.size)
        assert np.abs(value).max() == pytest.approx(np.abs(wanted[key]).max(), rel=0.4), key
    np.testing.assert_array_equal(*(named_leaves(ours(np.random.default_rng(5)))[key] for _ in range(2)))


# What is particular


def test_padding_stands_for_nothing_and_learns_nothing():
    table = Embedding.init(np.random.default_rng(0), 5, 3, padding=1)
    assert not table(np.array([1])).any() and table(np.array([0])).all()
    gradient = jax.grad(lambda net: net(jnp.array([0, 1, 1])).sum())(jtu.tree_map(jnp.asarray, table))
    np.testing.assert_array_equal(gradient.weight.sum(1), [3, 0, 0, 0, 0])


def test_who_may_look_at_nothing_reads_zeros():
    net = made("self-attention")
    y = net(X, mask=MASK)
    np.testing.assert_allclose(y[:, 2], np.broadcast_to(net.out_proj.bias, (3, 8)))


def test_a_causal_network_does_not_see_what_comes_later():
    net = made("causal transformer")
    changed = X.copy()
    changed[:, 3] += OTHERS[:, 0]  # not a shift, which a norm takes away
    a, b = net(X), net(changed)
    np.testing.assert_allclose(a[:, :3], b[:, :3], atol=1e-12)
    assert (np.abs(a - b)[:, 3:].max(-1) > 1e-3).all()
    # Any leading axes, and none
    np.testing.assert_allclose(net(X[:, None, None])[:, 0, 0], a, atol=1e-12)
    np.testing.assert_allclose(net(X[0]), a[0], atol=1e-12)


def test_inputs_take_the_precision_of_the_weights():
    for name in ("layer norm", "self-attention", "gru", "causal transformer", "residual mlp"):
        net = CASES[name].ours(np.random.default_rng(0))
        for y in jtu.tree_leaves((as_torch_module(net)(torch.from_numpy(X)), net(X))):
            assert str(y.dtype).endswith("float32")


@pytest.mark.parametrize("name", ["gru of two layers with a state", "lstm of two layers with a state"])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"])
def test_steps_one_by_one_are_the_whole_series(name, convert, double_precision):
    net, x = jtu.tree_map(convert, made(name)), convert(X)
    outputs, last = net(x)
    state, found = net.zero_state(5), []
    for t in range(3):
        y, state = net.step(x[t], state if t else None)
        found.append(y)
    assert_close(list(outputs), found)
    assert_close(last, state)
    assert_close(net(x, net.zero_state(5)), (outputs, last))
    # Any leading axes
    assert_close(net(x.reshape(3, 5, 1, 8))[0].reshape(3, 5, 3), outputs)


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_the_program_does_not_grow_with_time(kind):
    net = jtu.tree_map(jnp.asarray, kind.init(np.random.default_rng(0), 3, 4))
    short, long = (str(jax.make_jaxpr(lambda x: net(x)[0])(jnp.zeros((n, 2, 3)))).count("\n") for n in (5, 500))
    assert short == long


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda r: MultiheadAttention.init(r, 8, 3), "a width of 8 cannot be shared by 3 heads"),
        (lambda r: Embedding.init(r, 0, 3), "an embedding has 0 rows of width 3"),
        (lambda r: Embedding.init(r, 4, 3, padding=4), "padding index is 4, but the table has the rows 0 to 3"),
        (lambda r: LayerNorm.init(0), "a LayerNorm has 0 inputs"),
        (lambda r: TransformerEncoder.init(r, 0, 8, 2), "a transformer has 0 layers"),
        (lambda r: TransformerEncoderLayer.init(r, 8, 2, act="rellu"), "unknown activation 'rellu'"),
        (lambda r: ResidualMLP.init(r, 8, 6, 0, 3), "a ResidualMLP has .*'blocks': 0"),
        (lambda r: Conv2d.init(r, 4, 6, 3, groups=3), "a Conv2d from 4 to 6 channels cannot be parted into 3 equal"),
        (lambda r: Conv2d.init(r, 4, 6, (3, 0)), "a Conv2d has {'window': 0}"),
        (lambda r: Conv1d.init(r, 4, 6, 3, stride=0), "a Conv1d has {'stride': 0}"),
        (lambda r: Conv1d.init(r, 4, 6, 3, padding="full"), "the padding of a Conv1d is 'full'; give a number"),
        (lambda r: GroupNorm.init(10, 4), "10 channels cannot be parted into 4 equal groups"),
        (lambda r: GRU.init(r, 3, 4, layers=0), "a GRU has 0 layers"),
        (lambda r: LSTM.init(r, 3, 0), "a LSTMCell has 3 inputs and a state of 0"),
        (lambda r: GRU.init(r, 8, 4)(X, X[:1, :, :3]), r"state of the GRU has shape \(1, 5, 3\), but \(1, 5, 4\)"),
        (lambda r: attention(r)(X, value=X), "values without keys"),
        (lambda r: attention(r)(X, mask=MASK + 0.0), "mask of an attention has the dtype float64"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(TwinaxError, match=message):
        make(np.random.default_rng(0))


def test_numbers_of_parameters():
    for name, case in CASES.items():
        wanted = sum(p.numel() for p in case.theirs().parameters())
        assert num_parameters(case.ours(np.random.default_rng(0))) == wanted, name


class Words(eqx.Module):
    """A table, a convolution and a layer."""

    table: Embedding
    convs: tuple[Conv1d, ...]
    layers: tuple[Linear, ...]


def test_flax_embeddings_and_convolutions_of_series_are_read():
    rng = np.random.default_rng(0)
    net = Words(Embedding.init(rng, 5, 3), (Conv1d.init(rng, 3, 6, 2),), (Linear.init(rng, 3, 2),))
    params = {
        "Embed_0": {"embedding": RNG.normal(size=(5, 3))},
        "Conv_0": {"kernel": RNG.normal(size=(2, 3, 6)), "bias": np.zeros(6)},
        "Dense_0": {"kernel": RNG.normal(size=(3, 2)), "bias": np.zeros(2)},
    }
    found, _ = bridge.load_flax(net, params)
    np.testing.assert_allclose(found.table.weight, params["Embed_0"]["embedding"].astype(np.float32))
    kernel = params["Conv_0"]["kernel"].transpose(2, 1, 0)
    np.testing.assert_allclose(found.convs[0].weight, kernel.astype(np.float32))
    np.testing.assert_allclose(found.layers[0].weight, params["Dense_0"]["kernel"].T.astype(np.float32))
