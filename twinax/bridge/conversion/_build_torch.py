"""Layers of PyTorch made from layers of any library."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.bridge._arrays import numpy_to_tensor
from twinax.bridge.conversion._layers import CELLS, IMAGES, Chain, Found, Plain, has, no_twin, normalised, symmetric
from twinax.bridge.conversion._plain_layers import plain_torch


def torch_modules(chain: Chain) -> list[Any]:
    """Empty ones, in order."""
    places, modules = 0, []
    for step in chain:
        places = _places(step, places)
        modules.append(plain_torch(step) if isinstance(step, Plain) else _made(step, places))
    return modules


def _places(step: Found | Plain, before: int) -> int:
    """How many axes of places the output of a step has."""
    if isinstance(step, Found):
        return IMAGES.get(step.kind, step.settings.get("image", before) or before)
    return 0 if step.name == "flatten" else before


def _made(layer: Found, places: int) -> Any:
    """An empty layer, without a number drawn from PyTorch's generator."""
    import torch

    with torch.device("meta"):
        made = _layer(layer, places, torch.nn)
    number = next(iter(layer.ours.values()), np.zeros(1, np.float32)).dtype
    made = made.to_empty(device="cpu").to(numpy_to_tensor(np.zeros(1, number)).dtype)
    for leaf in [*made.parameters(), *made.buffers()]:
        leaf.detach().zero_()
    return made


def _layer(layer: Found, places: int, nn: Any) -> Any:
    kind, settings = layer.kind, layer.settings
    bias, shapes = has(layer, "bias"), {name: array.shape for name, array in layer.ours.items()}
    if kind == "linear":
        return nn.Linear(*shapes["weight"][::-1], bias=bias)
    if kind in IMAGES:
        stride, dilation, groups = settings["stride"], settings["dilation"], settings["groups"]
        weight = shapes["weight"]
        made = getattr(nn, f"Conv{'Transpose' if 'transpose' in kind else ''}{IMAGES[kind]}d")
        if "transpose" not in kind:
            sizes = weight[1] * groups, weight[0], weight[2:]
            return made(*sizes, stride, symmetric(layer, "padding"), dilation, groups, bias)
        spans = [d * (k - 1) for k, d in zip(weight[2:], dilation, strict=True)]
        zeros = tuple(span - low for span, (low, _) in zip(spans, settings["edges"], strict=True))
        more = tuple(high - low for low, high in settings["edges"])
        if min(*zeros, *more, 0) < 0:
            raise no_twin(layer, "PyTorch", f"its edges {settings['edges']} would be a negative padding there")
        sizes = weight[0], weight[1] * groups, weight[2:]
        return made(*sizes, stride, zeros, more, groups, bias, dilation)
    if kind == "layer_norm":
        affine = has(layer, "weight")
        return nn.LayerNorm(normalised(layer, "PyTorch"), settings["eps"], affine or bias, bias)
    if kind == "rms_norm":
        if bias and np.any(layer.ours["bias"]):
            raise no_twin(layer, "PyTorch", "PyTorch's RMSNorm has no bias")
        return nn.RMSNorm(normalised(layer, "PyTorch"), settings["eps"], has(layer, "weight"))
    if kind == "group_norm":
        return nn.GroupNorm(settings["groups"], settings["channels"], settings["eps"], has(layer, "weight"))
    if kind == "batch_norm":
        made = nn.BatchNorm2d if places == 2 else nn.BatchNorm1d
        return made(shapes["running_mean"][0], settings["eps"], settings["momentum"], has(layer, "weight"))
    if kind == "embedding":
        return nn.Embedding(*shapes["weight"])
    if kind in CELLS:
        made = nn.GRUCell if kind == "gru_cell" else nn.LSTMCell
        return made(shapes["weight_ih"][1], shapes["weight_hh"][1], has(layer, "bias_ih"))
    rows, columns = shapes["in_proj_weight"]
    if rows != 3 * columns or shapes["out_proj.weight"] != (columns, columns):
        raise no_twin(layer, "PyTorch", f"its projections are {(rows, columns)}, and there they are all of one width")
    return nn.MultiheadAttention(columns, settings["heads"], bias=has(layer, "in_proj_bias"), batch_first=True)
