"""Attention, transformers and recurrent networks of Flax compute here what they compute there, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax import tree
from twinax.bridge import load_flax
from twinax.errors import TwinaxError
from twinax.networks import (
    GRU,
    LSTM,
    Conv1d,
    Conv2d,
    Embedding,
    GRUCell,
    LayerNorm,
    LSTMCell,
    MultiheadAttention,
    TransformerEncoder,
    TransformerEncoderLayer,
)

nn = pytest.importorskip("flax.linen")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def wide(network):
    return tree.map_leaves(lambda x: np.asarray(x, np.float64), network)


def made(module, *inputs, **named):
    """Parameters of a module with numbers everywhere, biases included, and what it gives."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *inputs, **named))
    params = jax.tree.map(lambda x: rng.normal(size=x.shape) * 0.5, shapes)
    return params, jax.jit(module.apply)(params, *inputs, **named)


def close(found, wanted):
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-11, atol=1e-12)


X = RNG.normal(size=(3, 5, 8))


@pytest.mark.parametrize("bias", [True, False])
def test_attention(bias):
    ours = wide(MultiheadAttention.init(np.random.default_rng(2), 8, 2, bias))
    module = nn.MultiHeadDotProductAttention(2, dtype=jnp.float64, param_dtype=jnp.float64, use_bias=bias)
    mask = np.tril(np.ones((5, 5), bool))
    params, wanted = made(module, X, X, mask=mask)
    ours, report = load_flax(ours, params)
    assert report.complete
    close(ours(X, mask=mask), wanted)
    close(ours(X, causal=True), wanted)
    other = RNG.normal(size=(3, 7, 8))
    close(ours(X, other), jax.jit(module.apply)(params, X, other))


class Block(nn.Module):
    """As most people write it."""

    first: bool

    @nn.compact
    def __call__(self, x):
        kinds = {"dtype": jnp.float64, "param_dtype": jnp.float64}
        norms = [nn.LayerNorm(epsilon=1e-5, **kinds) for _ in range(2)]
        attend = nn.MultiHeadDotProductAttention(2, **kinds)
        first, second = nn.Dense(16, **kinds), nn.Dense(8, **kinds)
        if self.first:
            y = norms[0](x)
            x = x + attend(y, y)
            return x + second(nn.relu(first(norms[1](x))))
        x = norms[0](x + attend(x, x))
        return norms[1](x + second(nn.relu(first(x))))


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(10, 8, param_dtype=jnp.float64, name="embed")(tokens)
        for k in range(2):
            x = Block(True, name=f"EncoderBlock_{k}")(x)
        return nn.LayerNorm(epsilon=1e-5, param_dtype=jnp.float64)(x)


@pytest.mark.parametrize("first", [True, False])
def test_a_layer_of_a_transformer(first):
    ours = wide(TransformerEncoderLayer.init(np.random.default_rng(2), 8, 2, 16, norm_first=first))
    params, wanted = made(Block(first), X)
    ours, report = load_flax(ours, params)
    assert report.complete
    close(ours(X), wanted)
    # The same with PyTorch's names.
    renamed = {"MultiHeadDotProductAttention_0": "self_attn", "Dense_0": "linear1", "Dense_1": "linear2"}
    renamed |= {"LayerNorm_0": "norm1", "LayerNorm_1": "norm2"}
    again, _ = load_flax(ours, {renamed[name]: value for name, value in params["params"].items()})
    close(again(X), wanted)


def test_a_transformer_on_tokens():
    tokens = RNG.integers(0, 10, (3, 5))
    params, wanted = made(Encoder(), tokens)
    rng = np.random.default_rng(2)
    encoder = wide(TransformerEncoder.init(rng, 2, 8, 2, 16, norm_first=True, norm=True))
    found = dict(params["params"])
    embed, _ = load_flax(wide(Embedding.init(rng, 10, 8)), found.pop("embed"))
    encoder, report = load_flax(encoder, found)
    assert report.complete and len(report.matched) == len(tree.named_leaves(encoder))
    close(encoder(embed(tokens)), wanted)
    with pytest.raises(TwinaxError, match=r"missing \['layers.2"):
        load_flax(wide(TransformerEncoder.init(rng, 3, 8, 2, 16, norm=True)), found)


CELLS = {
    "gru": (GRUCell, GRU, lambda: nn.GRUCell(4, dtype=jnp.float64, param_dtype=jnp.float64)),
    "lstm": (LSTMCell, LSTM, lambda: nn.LSTMCell(4, dtype=jnp.float64, param_dtype=jnp.float64)),
    "optimized lstm": (LSTMCell, LSTM, lambda: nn.OptimizedLSTMCell(4, dtype=jnp.float64, param_dtype=jnp.float64)),
}


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell(kind):
    ours, _, module = CELLS[kind]
    x, h, c = (RNG.normal(size=(3, size)) for size in (6, 4, 4))
    params, (_, wanted) = made(module(), h if ours is GRUCell else (c, h), x)
    cell, report = load_flax(wide(ours.init(np.random.default_rng(2), 6, 4)), params)
    assert report.complete
    close(cell(x, h) if ours is GRUCell else cell(x, (h, c))[0], wanted)


class Recurrent(nn.Module):
    kind: str
    layers: int

    @nn.compact
    def __call__(self, x):
        for _ in range(self.layers):
            x = nn.RNN(CELLS[self.kind][2](), time_major=True)(x)
        return x


@pytest.mark.parametrize(("kind", "layers"), [("gru", 1), ("gru", 2), ("lstm", 2), ("optimized lstm", 1)])
def test_a_recurrent_network(kind, layers):
    x = RNG.normal(size=(7, 3, 6))
    params, wanted = made(Recurrent(kind, layers), x)
    net, report = load_flax(wide(CELLS[kind][1].init(np.random.default_rng(2), 6, 4, layers)), params)
    assert report.complete and len(report.matched) == 4 * layers
    close(net(x)[0], wanted)


def test_layers_that_are_read_one_by_one():
    kinds = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    rng = np.random.default_rng(2)
    params, wanted = made(nn.Conv(4, (3,), strides=2, **kinds), X)
    series, _ = load_flax(wide(Conv1d.init(rng, 8, 4, 3, 2, "same", channels_last=True)), params)
    close(series(X), wanted)
    images = RNG.normal(size=(2, 6, 7, 3))
    params, wanted = made(nn.Conv(4, (3, 3), **kinds), images)
    close(load_flax(wide(Conv2d.init(rng, 3, 4, 3, 1, "same", channels_last=True)), params)[0](images), wanted)
    params, wanted = made(nn.LayerNorm(epsilon=1e-5, **kinds), X)
    close(load_flax(wide(LayerNorm.init(8)), params)[0](X), wanted)


def test_what_does_not_fit_is_one_sentence():
    rng = np.random.default_rng(2)
    params, _ = made(nn.MultiHeadDotProductAttention(2), X, X)
    with pytest.raises(TwinaxError, match=r"has 4 heads, but 'params/query/kernel' of shape \(8, 2, 4\) has 2"):
        load_flax(MultiheadAttention.init(rng, 8, 4), params)
    with pytest.raises(TwinaxError, match=r"'in_proj_weight' has shape \(36, 12\), but .*query,key,value}/kernel' is"):
        load_flax(MultiheadAttention.init(rng, 12, 2), params)
    with pytest.raises(TwinaxError, match=r"unexpected \['params/key/bias', .*\(0 missing, 4 unexpected\)"):
        load_flax(MultiheadAttention.init(rng, 8, 2, bias=False), params)
    with pytest.raises(TwinaxError, match=r"missing \['in_proj_weight'"):
        load_flax(MultiheadAttention.init(rng, 8, 2), {"Dense_0": {"kernel": np.ones((8, 8))}})
    params, _ = made(nn.GRUCell(4), np.zeros((3, 4)), np.zeros((3, 6)))
    with pytest.raises(TwinaxError, match="'GRU' has 2 layers, but 'params' has the gates of 1"):
        load_flax(GRU.init(rng, 6, 4, 2), params)
    with pytest.raises(TwinaxError, match=r"'weight_ih' has shape \(12, 5\)"):
        load_flax(GRUCell.init(rng, 5, 4), params)
    with pytest.raises(TwinaxError, match="missing"):
        load_flax(LSTMCell.init(rng, 6, 4), params)
