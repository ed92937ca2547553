"""Layers of Flax nnx made from layers of any library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge.conversion._flax_options import options
from twinax.bridge.conversion._layers import CELLS, Found, Plain, normalised
from twinax.bridge.conversion._plain_layers import FUNCTIONS, flatten_channels_first


def nnx_layer(step: Found | Plain) -> Any:
    from flax import nnx

    if isinstance(step, Plain):
        if step.name == "dropout":
            return nnx.Dropout(step.value, deterministic=True, rngs=nnx.Rngs(0))
        return flatten_channels_first if step.name == "flatten" else FUNCTIONS[step.name][0]
    number = jax.dtypes.canonicalize_dtype(next(iter(step.ours.values()), np.zeros(1, np.float32)).dtype)
    # Only the shapes: drawing numbers that are about to be replaced would compile a program for each.
    made = nnx.eval_shape(lambda: _layer(step, number, nnx))
    for variable in _abstract(made):
        variable.set_value(jnp.zeros(variable.get_value().shape, number))
    return made


def _abstract(node: Any) -> Iterator[Any]:
    """Variables that have shapes alone."""
    from flax import nnx

    for child in vars(node).values():
        if isinstance(child, nnx.Variable):
            yield child
        elif isinstance(child, nnx.Module):
            yield from _abstract(child)


def _layer(layer: Found, number: Any, nnx: Any) -> Any:
    kind, given = layer.kind, {**options(layer, "Flax nnx"), "param_dtype": number, "rngs": nnx.Rngs(0)}
    shapes = {name: array.shape for name, array in layer.ours.items()}
    if kind == "linear":
        return nnx.Linear(shapes["weight"][1], shapes["weight"][0], **given)
    if kind.startswith("conv"):
        weight = shapes["weight"]
        if "transpose" in kind:
            return nnx.ConvTranspose(weight[0], weight[1], weight[2:], **given)
        return nnx.Conv(weight[1] * given["feature_group_count"], weight[0], weight[2:], **given)
    if kind == "embedding":
        return nnx.Embed(*shapes["weight"], **given)
    if kind in CELLS:
        cell = nnx.GRUCell if kind == "gru_cell" else nnx.OptimizedLSTMCell
        return cell(shapes["weight_ih"][1], shapes["weight_hh"][1], **given)
    if kind == "attention":
        columns, output = shapes["in_proj_weight"][1], shapes["out_proj.weight"][0]
        heads, inner = given.pop("num_heads"), shapes["in_proj_weight"][0] // 3
        return nnx.MultiHeadAttention(heads, columns, inner, output, decode=False, **given)
    if "shape" in layer.settings:
        width = normalised(layer, "Flax nnx")[0]
    else:
        width = layer.settings["channels"] if kind == "group_norm" else shapes["running_mean"][0]
    norms = {"layer_norm": nnx.LayerNorm, "group_norm": nnx.GroupNorm, "rms_norm": nnx.RMSNorm}
    return {**norms, "batch_norm": nnx.BatchNorm}[kind](width, **given)
