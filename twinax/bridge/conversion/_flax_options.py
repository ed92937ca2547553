"""Settings of Flax's layers in PyTorch's words, and back; linen and nnx call them the same."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge.conversion._layers import CELLS, IMAGES, NORMS, Found, border, each_axis, has, no_twin, pairs
from twinax.bridge.conversion._layouts import Arrays
from twinax.errors import TwinaxError


def settings(node: Any, kind: str, name: str, arrays: Arrays) -> dict[str, Any]:
    """Of a layer of linen or nnx."""
    if kind in IMAGES:
        return _window(node, kind, name, arrays)
    if kind in ("layer_norm", "rms_norm"):
        shape = next((np.shape(arrays[key]) for key in ("scale", "bias") if key in arrays), None)
        if node.reduction_axes not in (-1, (-1,)) and len(shape or ()) != len(node.reduction_axes):
            raise TwinaxError(f"'{name}' normalises over the axes {node.reduction_axes}, which has no rule")
        return {"eps": node.epsilon, "shape": shape or (getattr(node, "num_features", None),)}
    if kind == "group_norm":
        channels = getattr(node, "num_features", None)
        width = next((array.shape[0] for array in arrays.values()), channels)
        groups = node.num_groups if node.num_groups is not None else width // node.group_size
        return {"eps": node.epsilon, "groups": groups, "channels": width}
    if kind == "batch_norm":
        if node.axis not in (-1, (-1,)):
            raise TwinaxError(f"'{name}' has its features on axis {node.axis}; only the last one has a rule")
        return {"eps": node.epsilon, "momentum": round(1 - node.momentum, 12)}
    if kind == "attention":
        return {"heads": node.num_heads}
    usual = (jax.nn.sigmoid, jnp.tanh, jax.nn.tanh)
    if kind in CELLS and (node.gate_fn not in usual[:1] or node.activation_fn not in usual[1:]):
        raise TwinaxError(f"'{name}' has activations of its own, where the other libraries have sigmoid and tanh")
    return {}


def _window(node: Any, kind: str, name: str, arrays: Arrays) -> dict[str, Any]:
    axes = IMAGES[kind]
    window, stride = arrays["kernel"].shape[:axes], each_axis(node.strides, axes)
    known: dict[str, Any] = {"axes": axes, "window": window, "stride": stride}
    known["dilation"] = each_axis(node.kernel_dilation, axes)
    if node.mask is not None or any(n != 1 for n in each_axis(getattr(node, "input_dilation", 1), axes)):
        raise TwinaxError(f"'{name}' has a mask or dilates its input, which no other library does")
    if isinstance(node.padding, str) and node.padding not in ("SAME", "VALID"):
        raise TwinaxError(f"'{name}' has the padding {node.padding}; only padding with zeros has a rule")
    if "transpose" not in kind:
        padding = border(node.padding, window, stride, known["dilation"])
        return {**known, "groups": node.feature_group_count, "padding": padding}
    spans = [d * (k - 1) for k, d in zip(window, known["dilation"], strict=True)]
    known |= {"groups": 1, "transpose_kernel": node.transpose_kernel}
    if not isinstance(node.padding, str):
        return {**known, "edges": pairs(node.padding, axes)}
    rule = _same if node.padding == "SAME" else _valid
    return {**known, "edges": tuple(rule(span + 1, s) for span, s in zip(spans, stride, strict=True))}


def _same(window: int, stride: int) -> tuple[int, int]:
    """JAX's padding of a transposed convolution that makes an output of input times stride."""
    whole = window + stride - 2
    low = window - 1 if stride > window - 1 else math.ceil(whole / 2)
    return low, whole - low


def _valid(window: int, stride: int) -> tuple[int, int]:
    return window - 1, window + stride - 2 + max(window - stride, 0) - (window - 1)


def options(layer: Found, title: str) -> dict[str, Any]:
    """Arguments for the class of a layer, those of sizes apart, which linen and nnx call differently."""
    kind, given, bias = layer.kind, layer.settings, has(layer, "bias")
    if kind in IMAGES:
        known = {"strides": given["stride"], "kernel_dilation": given["dilation"], "use_bias": bias}
        if "transpose" not in kind:
            return {**known, "feature_group_count": given["groups"], "padding": _listed(given["padding"])}
        if given["groups"] != 1:
            raise no_twin(layer, title, f"Flax's ConvTranspose has no groups, and it has {given['groups']}")
        return {**known, "padding": _listed(given["edges"]), "transpose_kernel": True}
    if kind in NORMS:
        if kind in ("layer_norm", "rms_norm") and len(given["shape"]) != 1:
            raise no_twin(layer, title, f"it normalises over {len(given['shape'])} axes of sizes {given['shape']}")
        if kind == "rms_norm" and bias and np.any(layer.ours["bias"]):
            raise no_twin(layer, title, "Flax's RMSNorm has no bias")
        # The quick variance E[x^2] - E[x]^2 loses digits where the mean is large; PyTorch does not take it.
        known = {"epsilon": given["eps"], "use_scale": has(layer, "weight"), "use_fast_variance": False}
        known |= {} if kind == "rms_norm" else {"use_bias": bias}
        known |= {"num_groups": given["groups"]} if kind == "group_norm" else {}
        return known | ({"momentum": round(1 - given["momentum"], 12)} if kind == "batch_norm" else {})
    if kind == "linear":
        return {"use_bias": bias}
    if kind == "attention":
        return {"num_heads": given["heads"], "use_bias": has(layer, "in_proj_bias")}
    return {}


def _listed(padding: Any) -> Any:
    return padding if isinstance(padding, str) else [tuple(pair) for pair in padding]


def result(kind: str, out: Any) -> Any:
    """What PyTorch's layer of this kind gives, from what Flax's gives."""
    if kind == "gru_cell":
        return out[0]
    return (out[0][1], out[0][0]) if kind == "lstm_cell" else out


def arguments(kind: str, inputs: tuple) -> tuple:
    """What Flax's layer reads, from what PyTorch's does: a cell's state comes first, an LSTM's memory before that."""
    if kind == "gru_cell":
        return inputs[1], inputs[0]
    return ((inputs[1][1], inputs[1][0]), inputs[0]) if kind == "lstm_cell" else inputs
