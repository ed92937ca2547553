"""Layers of Flax linen and their variables made from layers of any library."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge.conversion import _layouts
from twinax.bridge.conversion._flax_options import options
from twinax.bridge.conversion._layers import CELLS, Found, Plain
from twinax.bridge.conversion._layouts import LAYOUTS
from twinax.bridge.conversion._plain_layers import FUNCTIONS, flatten_channels_first

STATISTICS = ("mean", "var")


def flax_layer(step: Found | Plain, name: str, variables: dict[str, Any], nn: Any) -> Any:
    if isinstance(step, Plain):
        if step.name == "dropout":
            return nn.Dropout(step.value, deterministic=True)
        return flatten_channels_first if step.name == "flatten" else FUNCTIONS[step.name][0]
    made = _layer(step, nn)
    number = jax.dtypes.canonicalize_dtype(next(iter(step.ours.values()), np.zeros(1, np.float32)).dtype)
    made = made if number == np.float32 else made.clone(param_dtype=number)
    kind = "lstm_cell" if step.kind == "lstm_cell" else step.kind
    given = {**step.settings, "transpose_kernel": True}
    for part, array in _layouts.out(_with_biases(step), LAYOUTS["flax"][kind], given).items():
        statistics = step.kind == "batch_norm" and part in STATISTICS
        inner = variables.setdefault("batch_stats" if statistics else "params", {})
        *folders, leaf = [*([name] if name else []), *part.split("/")]
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[leaf] = jnp.zeros(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))
    return made


def _with_biases(layer: Found) -> dict[str, np.ndarray]:
    """A cell of Flax always has biases, and RMSNorm never."""
    made = dict(layer.ours)
    if layer.kind in CELLS:
        rows = np.zeros_like(made["weight_hh"][:, 0])
        made = {"bias_ih": rows, "bias_hh": rows, **made}
    return made


def _layer(layer: Found, nn: Any) -> Any:
    kind, given = layer.kind, options(layer, "Flax")
    shapes = {name: array.shape for name, array in layer.ours.items()}
    if kind == "linear":
        return nn.Dense(shapes["weight"][0], **given)
    if kind.startswith("conv"):
        rows = shapes["weight"][1 if "transpose" in kind else 0]
        return (nn.ConvTranspose if "transpose" in kind else nn.Conv)(rows, shapes["weight"][2:], **given)
    if kind == "embedding":
        return nn.Embed(*shapes["weight"])
    if kind in CELLS:
        return (nn.GRUCell if kind == "gru_cell" else nn.OptimizedLSTMCell)(shapes["weight_hh"][1])
    if kind == "attention":
        inner, output = shapes["in_proj_weight"][0] // 3, shapes["out_proj.weight"][0]
        return nn.MultiHeadDotProductAttention(qkv_features=inner, out_features=output, **given)
    if kind == "batch_norm":
        return nn.BatchNorm(use_running_average=True, **given)
    return {"layer_norm": nn.LayerNorm, "group_norm": nn.GroupNorm, "rms_norm": nn.RMSNorm}[kind](**given)
