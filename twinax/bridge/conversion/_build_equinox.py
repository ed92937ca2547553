"""Layers of Equinox made from layers of any library."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge.conversion._layers import CELLS, IMAGES, Found, Plain, has, no_twin, normalised
from twinax.bridge.conversion._plain_layers import FUNCTIONS


def equinox_layer(step: Found | Plain) -> Any:
    if isinstance(step, Plain):
        if step.name == "dropout":
            return eqx.nn.Dropout(step.value, inference=True)
        # Equinox takes one input at a time, channels first: to a vector means all axes.
        return eqx.nn.Lambda(jnp.ravel if step.name == "flatten" else FUNCTIONS[step.name][0])
    if step.kind == "batch_norm":
        made = _layer(step)
    else:
        made = eqx.filter_eval_shape(_layer, step)
    first = next(iter(step.ours.values()), np.zeros(1, np.float32))

    def one(leaf: Any) -> Any:
        floating = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.zeros(leaf.shape, jax.dtypes.canonicalize_dtype(first.dtype)) if floating else leaf

    return jtu.tree_map(one, made)


def _layer(layer: Found) -> Any:
    nn, key, kind, settings = eqx.nn, jax.random.key(0), layer.kind, layer.settings
    shapes, bias = {name: array.shape for name, array in layer.ours.items()}, has(layer, "bias")
    if kind == "linear":
        return nn.Linear(shapes["weight"][1], shapes["weight"][0], bias, key=key)
    if kind in IMAGES:
        stride, dilation, groups = settings["stride"], settings["dilation"], settings["groups"]
        weight, more = shapes["weight"], {"groups": groups, "use_bias": bias, "key": key}
        if "transpose" not in kind:
            made = nn.Conv1d if IMAGES[kind] == 1 else nn.Conv2d
            return made(weight[1] * groups, weight[0], weight[2:], stride, settings["padding"], dilation, **more)
        spans = [d * (k - 1) for k, d in zip(weight[2:], dilation, strict=True)]
        zeros = tuple((span - low, span - low) for span, (low, _) in zip(spans, settings["edges"], strict=True))
        rest = tuple(high - low for low, high in settings["edges"])
        if min(*(low for low, _ in zeros), *rest, 0) < 0:
            raise no_twin(layer, "Equinox", f"its edges {settings['edges']} would be a negative padding there")
        made = nn.ConvTranspose1d if IMAGES[kind] == 1 else nn.ConvTranspose2d
        return made(weight[0], weight[1] * groups, weight[2:], stride, rest, zeros, dilation, **more)
    if kind in ("layer_norm", "rms_norm"):
        made = nn.LayerNorm if kind == "layer_norm" else nn.RMSNorm
        return made(normalised(layer, "Equinox"), settings["eps"], has(layer, "weight"), bias)
    if kind == "group_norm":
        return nn.GroupNorm(settings["groups"], settings["channels"], settings["eps"], has(layer, "weight"))
    if kind == "batch_norm":
        width, momentum = shapes["running_mean"][0], round(1 - settings["momentum"], 12)
        return nn.BatchNorm(width, "batch", settings["eps"], has(layer, "weight"), momentum, mode="batch")
    if kind == "embedding":
        return nn.Embedding(*shapes["weight"], key=key)
    if kind in CELLS:
        made = nn.GRUCell if kind == "gru_cell" else nn.LSTMCell
        return made(shapes["weight_ih"][1], shapes["weight_hh"][1], has(layer, "bias_ih"), key=key)
    columns, heads, biased = shapes["in_proj_weight"][1], settings["heads"], has(layer, "in_proj_bias")
    size, output = shapes["in_proj_weight"][0] // 3 // heads, shapes["out_proj.weight"][0]
    biases = (biased, biased, biased, has(layer, "out_proj.bias"))
    return nn.MultiheadAttention(heads, columns, None, None, output, size, size, *biases, key=key)
