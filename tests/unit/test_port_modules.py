"""Whole modules through `twinax.port.function` against PyTorch: values, gradients, changed buffers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from port_operators import doubles
from torch import nn
from torch.nn import functional

import twinax as tx

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4}


def agree(module, *inputs, dtype=torch.float64, loss=None):
    """The same results, gradients by every parameter under random weights, and buffers afterwards."""
    module = module.to(dtype)
    inputs = tuple(x.to(dtype) if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    with doubles() if dtype == torch.float64 else jax.enable_x64(False):
        ported = tx.port.function(module, *inputs, loss=loss, check=False)
        params, buffers = ported.params, ported.buffers
        arrays = [jnp.asarray(x.numpy()) if torch.is_tensor(x) else x for x in inputs]
        theirs = leaves(module(*inputs) if loss is None else loss(module, *inputs))
        rng = np.random.default_rng(0)
        weights = [rng.normal(size=tuple(one.shape)).astype(str(dtype)[6:]) for one in theirs]

        @jax.jit
        def run(params):
            def total(params):
                results, changed = ported.with_buffers(params, *arrays, buffers=buffers)
                results = leaves(results)
                return sum((one * w).sum() for one, w in zip(results, weights, strict=True)), (results, changed)

            return jax.value_and_grad(total, has_aux=True)(params)

        (_, (results, changed)), gradients = run(params)
    for a, b in zip(results, theirs, strict=True):
        np.testing.assert_allclose(a, b.detach(), **close)
    sum((one * torch.from_numpy(w)).sum() for one, w in zip(theirs, weights, strict=True)).backward()
    for name, parameter in module.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        size = max(1.0, float(expected.abs().max()))
        np.testing.assert_allclose(np.asarray(gradients[name]) / size, expected / size, err_msg=name, **close)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(changed[name], buffer, err_msg=name, **close)


def leaves(tree):
    return [one for one in torch.utils._pytree.tree_leaves(tree) if one is not None]


def seeded(make, *arguments, **options):
    torch.manual_seed(0)
    return make(*arguments, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "kind, options",
    [
        (nn.GRU, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, {"num_layers": 2, "batch_first": True, "bias": False}),
        (nn.LSTM, {"proj_size": 2}),
        (nn.RNN, {"nonlinearity": "relu", "bidirectional": True, "dropout": 0.1}),
    ],
)
@pytest.mark.filterwarnings("ignore:dropout option adds dropout", "ignore:LSTM with projections is not supported")
def test_recurrent_stacks(kind, options, dtype):
    agree(seeded(kind, 3, 4, **options), torch.randn(5, 2, 3), dtype=dtype)


def test_recurrent_layer_without_a_batch():
    agree(seeded(nn.GRU, 3, 4), torch.randn(5, 3), torch.randn(1, 4))


class Residual(nn.Module):
    """Convolutions with batch norm, a branch around, and pools."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.MaxPool2d(2))
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4, affine=False))
        self.norm = nn.GroupNorm(2, 4)
        self.last = nn.Linear(16, 2)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = self.norm(x + self.branch(x))
        return self.last(functional.adaptive_avg_pool2d(x, 2).flatten(1))


IMAGES = [
    (Residual, (2, 3, 8, 8)),
    (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, padding="same", dilation=2), nn.AvgPool1d(3, 2, 1)), (2, 3, 9)),
    (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1, groups=1)), (2, 3, 4, 5)),
    (lambda: nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(0)), (3, 5, 5)),
    (lambda: nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear")), (1, 3, 3, 4)),
    (lambda: nn.Sequential(nn.Conv3d(2, 2, 2), nn.MaxPool3d(2, ceil_mode=True)), (1, 2, 4, 5, 4)),
]


@pytest.mark.parametrize("make, shape", IMAGES)
def test_networks_of_images(make, shape):
    agree(seeded(make), torch.randn(shape))


def test_networks_of_images_in_single_precision():
    agree(seeded(Residual), torch.randn(2, 3, 8, 8), dtype=torch.float32)


@pytest.mark.parametrize("norm_first, dtype", [(False, torch.float64), (True, torch.float32)])
def test_transformer_layers(norm_first, dtype):
    options = {"batch_first": True, "norm_first": norm_first, "activation": "gelu"}
    encoder = seeded(nn.TransformerEncoderLayer, 8, 2, 12, **options).eval()
    agree(encoder, torch.randn(2, 5, 8), dtype=dtype)
    decoder = seeded(nn.TransformerDecoderLayer, 8, 2, 12, **options).eval()
    agree(decoder, torch.randn(2, 4, 8), torch.randn(2, 5, 8), dtype=dtype)


def test_attention_with_masks():
    padding = torch.tensor([[False] * 4 + [True], [False] * 5])
    causal = nn.Transformer.generate_square_subsequent_mask(5).isinf()
    agree(seeded(Masked, nn.MultiheadAttention(8, 2, batch_first=True)), torch.randn(2, 5, 8), padding, causal)


class Masked(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x, padding, mask):
        return self.attention(x, x, x, key_padding_mask=padding, attn_mask=mask)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    agree(seeded(nn.EmbeddingBag, 7, 3, mode=mode), torch.randint(7, (4, 5)))
