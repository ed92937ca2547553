"""What the layers of Flax and Equinox do otherwise than the ones a module has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from twinax.port._defaults import DEFAULTS, EQUINOX, FLAX, JAX, LINEN, NNX, Default

EPSILON = {LINEN: "epsilon", NNX: "epsilon", EQUINOX: "eps"}
LECUN = "lecun_normal, std {0:.3g}; bias 0"


def layers(module: Any) -> Iterator[Default]:
    """Rows of every layer, by its name in the module."""
    from torch import nn

    for name, layer in module.named_modules():
        where = name or type(layer).__name__
        if isinstance(layer, nn.MultiheadAttention):
            yield from _attention(where, layer)
        elif isinstance(layer, nn.Linear) and not _inside(module, name, nn.MultiheadAttention):
            yield from _first_weights(where, layer, layer.in_features, "Linear")
        elif isinstance(layer, nn.modules.conv._ConvNd):
            yield from _convolution(where, layer)
        elif isinstance(layer, nn.Embedding):
            yield from _embedding(where, layer)
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            yield from _batch_norm(where, layer)
        elif isinstance(layer, (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)):
            yield from _norm(where, layer)
        elif isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
            yield from _recurrent(where, layer)
        elif isinstance(layer, nn.GELU) or _has_gelu(layer):
            yield from gelu(where, getattr(layer, "approximate", "none"))


def gelu(where: str, approximate: str) -> Iterator[Default]:
    """A row where gelu is exact."""
    if approximate == "none":
        yield Default(
            where,
            "gelu",
            "exact",
            f"{JAX}.nn",
            "tanh approximation" if DEFAULTS["jax.nn.gelu.approximate"] else "exact",
            "outputs differ by up to 4.7e-4",
            "jax.nn.gelu(x, approximate=False)",
        )


def _has_gelu(layer: Any) -> bool:
    import torch

    return getattr(layer, "activation", None) is torch.nn.functional.gelu


def _inside(module: Any, name: str, kind: type) -> bool:
    return isinstance(module.get_submodule(name.rpartition(".")[0]), kind) if "." in name else isinstance(module, kind)


def _spread(tensor: Any) -> float:
    return float(tensor.detach().double().std(correction=0)) if tensor.numel() > 1 else 0.0


def _first_weights(where: str, layer: Any, fan_in: int, flax: str, flax_fan_in: int = 0) -> Iterator[Default]:
    """Initial distributions: PyTorch's own where the weights look like it, else what they are now."""
    theirs = 1 / math.sqrt(flax_fan_in or fan_in)
    bound, weight, bias = 1 / math.sqrt(fan_in), layer.weight.detach(), layer.bias
    usual = bool(weight.abs().max() <= bound * 1.000001) and (
        weight.numel() < 64 or abs(_spread(weight) * math.sqrt(3) / bound - 1) < 0.2
    )
    std = bound / math.sqrt(3)
    here = f"U(±{bound:.3g}), std {std:.3g}" if usual else f"std {_spread(weight):.3g} now, not PyTorch's default"
    if usual and bias is not None and bool(bias.detach().any()):
        here += f"; bias U(±{bound:.3g})"
    times = f"weights are {theirs / std:.3g} times as large at the start" if usual else "training starts elsewhere"
    initializer = "variance_scaling(1/3, 'fan_in', 'uniform')" if usual else "an initializer of that spread"
    for library in FLAX:
        yield Default(
            where,
            f"first weights of a {flax} with {fan_in} inputs",
            here,
            library,
            LECUN.format(theirs) if bias is not None else LECUN.format(theirs).split(";")[0],
            times,
            f"kernel_init={initializer}" + (f", bias_init uniform in ±{bound:.3g}" if "bias" in here else ""),
        )
    if not usual:
        yield Default(
            where,
            f"first weights of a {flax} with {fan_in} inputs",
            here,
            EQUINOX,
            f"U(±{bound:.3g}), std {std:.3g}",
            "training starts elsewhere",
            "eqx.tree_at with the weights of this module",
        )


def _convolution(where: str, layer: Any) -> Iterator[Default]:
    flax = "ConvTranspose" if layer.transposed else "Conv"
    inputs = layer.weight.shape[1] * math.prod(layer.kernel_size)
    own = layer.in_channels * math.prod(layer.kernel_size) if layer.transposed else 0
    yield from _first_weights(where, layer, inputs, flax, own)
    padding = layer.padding if isinstance(layer.padding, str) else tuple(layer.padding)
    for library in FLAX:
        if not _is_same(layer, padding):
            shown = [(p, p) for p in padding] if not isinstance(padding, str) else padding.upper()
            if layer.transposed:
                shown = [(k - 1 - p, k - 1 - p) for k, p in zip(layer.kernel_size, padding, strict=True)]
            yield Default(
                where,
                "padding",
                str(padding),
                library,
                f"'{DEFAULTS[f'{library}.{flax}.padding']}'",
                "other sizes or shifted images; with stride 2, SAME pads one side only",
                f"padding={shown!r}",
            )
        if layer.transposed:
            yield Default(
                where,
                "kernel of a transposed convolution",
                "as in the convolution it transposes",
                library,
                f"transpose_kernel={DEFAULTS[f'{library}.{flax}.transpose_kernel']}",
                "the kernel is applied flipped",
                "transpose_kernel=True, or flip the kernel when weights are moved",
            )
        yield Default(
            where,
            "order of axes",
            "channels first",
            library,
            "channels last",
            "a Linear after flattening reads its columns in another order",
            "transpose to channels first before flattening",
        )


def _is_same(layer: Any, padding: Any) -> bool:
    """Whether SAME pads as this layer does."""
    if layer.transposed:
        return False
    if isinstance(padding, str):
        return padding == "same"
    sizes = zip(padding, layer.kernel_size, layer.dilation, layer.stride, strict=True)
    return all(stride == 1 and 2 * p == dilation * (k - 1) for p, k, dilation, stride in sizes)


def _embedding(where: str, layer: Any) -> Iterator[Default]:
    std = 1 / math.sqrt(layer.embedding_dim)
    for library in FLAX:
        yield Default(
            where,
            f"first weights of {layer.embedding_dim} features",
            f"std {_spread(layer.weight):.3g}",
            library,
            f"std {std:.3g}",
            f"embeddings are {_spread(layer.weight) / std:.3g} times as large at the start",
            f"embedding_init=jax.nn.initializers.normal({_spread(layer.weight):.3g})",
        )
    if layer.padding_idx is not None:
        for library in (*FLAX, EQUINOX):
            yield Default(
                where,
                "padding_idx",
                layer.padding_idx,
                library,
                "none",
                "the row of padding is trained like the others",
                f"stop the gradient of row {layer.padding_idx}",
            )


def _epsilons(where: str, kind: str, eps: float) -> Iterator[Default]:
    for library, argument in EPSILON.items():
        default = DEFAULTS[f"{library}.{kind}.{argument}"]
        if not math.isclose(eps, default, rel_tol=1e-6):
            scale = 100 * abs(1 / math.sqrt(1 + eps / 1e-4) - 1 / math.sqrt(1 + default / 1e-4))
            yield Default(
                where,
                f"epsilon of {kind}",
                eps,
                library,
                default,
                f"outputs differ by {scale:.2g} % where inputs vary by 0.01, and more where they vary less",
                f"{argument}={eps:g}",
            )


def _fast_variance(where: str, kind: str) -> Iterator[Default]:
    for library in FLAX:
        if DEFAULTS[f"{library}.{kind}.use_fast_variance"]:
            yield Default(
                where,
                f"variance of {kind}",
                "mean of squared deviations",
                library,
                "use_fast_variance=True, E[x²] - E[x]²",
                "wrong digits where the mean is large beside the spread, as of observations that are not normalised",
                "use_fast_variance=False",
            )


def _norm(where: str, layer: Any) -> Iterator[Default]:
    import torch

    kind = type(layer).__name__
    eps = layer.eps if layer.eps is not None else torch.finfo(next(layer.parameters()).dtype).eps
    yield from _epsilons(where, kind, eps)
    if kind != "RMSNorm":
        yield from _fast_variance(where, kind)


def _batch_norm(where: str, layer: Any) -> Iterator[Default]:
    yield from _epsilons(where, "BatchNorm", layer.eps)
    yield from _fast_variance(where, "BatchNorm")
    if not layer.track_running_stats:
        return
    for library in (*FLAX, EQUINOX):
        default = DEFAULTS[f"{library}.BatchNorm.momentum"]
        if layer.momentum is None or not math.isclose(1 - layer.momentum, default):
            kept = "the average of all batches" if layer.momentum is None else f"{layer.momentum:g} of the new batch"
            yield Default(
                where,
                "momentum of BatchNorm",
                kept,
                library,
                f"{default:g} of the old value",
                "running statistics follow at another speed",
                "keep a count" if layer.momentum is None else f"momentum={1 - layer.momentum:g}",
            )
        yield Default(
            where,
            "running variance of BatchNorm",
            "unbiased, n / (n - 1)",
            library,
            "biased",
            "evaluation differs by 1 / n, with n the rows of a batch",
            "multiply the batch's variance by n / (n - 1) in the running one",
        )


def _recurrent(where: str, layer: Any) -> Iterator[Default]:
    kind = type(layer).__name__.removesuffix("Cell")
    bound = 1 / math.sqrt(layer.hidden_size)
    for library in FLAX:
        yield Default(
            where,
            f"first weights of {kind} with {layer.hidden_size} units",
            f"U(±{bound:.3g}), std {bound / math.sqrt(3):.3g}; biases the same",
            library,
            f"lecun_normal from the input, orthogonal (std {bound:.3g}) from the state; bias 0",
            "training starts elsewhere",
            "kernel_init, recurrent_kernel_init and bias_init uniform in the same range",
        )
    if not layer.bias:
        return
    if kind == "GRU":
        yield Default(
            where,
            "bias of the GRU's candidate",
            "one from the input and one from the state, below the reset gate",
            NNX,
            "from the input alone",
            "another function: weights of PyTorch cannot be moved",
            "flax.linen.GRUCell or equinox.nn.GRUCell",
        )
    for library in (LINEN, NNX, EQUINOX):
        yield Default(
            where,
            f"biases of the {kind}",
            "two, which are added",
            library,
            "one for each gate" + (", two for the candidate" if kind == "GRU" and library != NNX else ""),
            "a sum of two trained biases moves twice as far in each step",
            "add the two when weights are moved; give biases twice the learning rate",
        )
    if kind == "LSTM":
        for library in FLAX:
            yield Default(
                where,
                "carry of the LSTM",
                "(h, c)",
                library,
                "(c, h)",
                "cell and output change places",
                "carry = (c, h)",
            )


def _attention(where: str, layer: Any) -> Iterator[Default]:
    width = layer.embed_dim
    here = math.sqrt(2 / (4 * width)) if layer.in_proj_weight is not None else math.sqrt(1 / width)
    for library in FLAX:
        yield Default(
            where,
            f"first weights of attention with {width} features",
            f"xavier_uniform, std {here:.3g}; output U(±{1 / math.sqrt(width):.3g})",
            library,
            f"lecun_normal, std {1 / math.sqrt(width):.3g}",
            "training starts elsewhere",
            f"kernel_init=jax.nn.initializers.normal({here:.3g})",
        )
        kind = "MultiHeadDotProductAttention" if library == LINEN else "MultiHeadAttention"
        if layer.dropout and DEFAULTS[f"{library}.{kind}.broadcast_dropout"]:
            yield Default(
                where,
                "dropout of attention",
                "drawn for each row and head",
                library,
                "broadcast_dropout=True, one mask for the batch",
                "less noise",
                "broadcast_dropout=False",
            )
    yield Default(
        where,
        f"first weights of attention with {width} features",
        f"xavier_uniform, std {here:.3g}",
        EQUINOX,
        f"U(±{1 / math.sqrt(width):.3g}), std {1 / math.sqrt(3 * width):.3g}",
        "training starts elsewhere",
        "eqx.tree_at with weights of this spread",
    )
    if layer.in_proj_bias is not None:
        yield Default(
            where,
            "biases of attention",
            "there, 0 at the start",
            EQUINOX,
            "none",
            "fewer parameters",
            "use_query_bias=True, use_key_bias=True, use_value_bias=True, use_output_bias=True",
        )
