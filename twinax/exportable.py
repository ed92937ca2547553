"""A policy as named steps that any runtime can follow, beside the library's own answer to compare with.

A family says its policy in steps of a few kinds; `twinax.deploy` writes them as ONNX and as a plain PyTorch module. A
step reads the one before it, unless it names others:

normalise   (x - mean) / deviation                      codebook     codes (frames, cells) as rows of numbers
limit       between -limit and limit                    quantiles    a copy of the row for each, times its factors
linear      x weight^T + bias                           split        (rows, n actions) to (rows, n, actions)
norm        LayerNorm over the last axis                mean         over the numbers
activation  one of `twinax.networks.ACTIVATIONS`        expectation  softmax over the numbers, times their support
clamp       between low and high                        argmax       the index of the largest
stretch     from (-1, 1) to (low, high)                 concat       what it reads, side by side
sphere      of length sqrt(width), zero stays zero      add          the sum of what it reads

and of images, which come as (rows, height, width, channels):

channels_first  to (rows, channels, height, width)      max_pool       the largest of each square window
channels_last   back again                              group_norm     over all places and a group of channels
planes          with constant channels at the end       spatial_mean   over all places
conv            a convolution with zeros as border      flatten        one row of numbers for each
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

OBSERVATION = "observation"
"""What the first step reads."""
KINDS = (
    "normalise", "limit", "linear", "norm", "activation", "clamp", "stretch", "concat", "sphere", "add",
    "codebook", "quantiles", "split", "mean", "expectation", "argmax",
    "channels_first", "channels_last", "planes", "conv", "max_pool", "group_norm", "spatial_mean", "flatten",
)  # fmt: skip
ROWS = 512
"""Observations on which a policy is compared with what was written of it."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its kind, its arrays by name, and its options, which are plain values."""

    kind: str
    name: str
    """Under which its arrays stand in the files, such as actor.layers.0."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    """Names of the steps that it reads, or `observation`; empty: the one before it."""


@dataclass(frozen=True, eq=False)
class Exportable:
    """What a trained policy does, for who runs it elsewhere."""

    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    """Of one observation."""
    values: Callable[[np.ndarray], np.ndarray]
    """The library's own answer in float64 for rows of observations: actions, or where an action is an index the values
    whose largest is chosen."""
    act: Callable[[np.ndarray], np.ndarray]
    """The library's own actions in float32."""
    observations: Callable[[int], np.ndarray]
    """So many observations like those of training, a tenth of them far beyond."""
    discrete: bool
    """Whether an action is an index."""
    outputs: int
    """Choices, or entries of an action."""
    largest: float
    """The size of the largest action that there is, by which differences are measured; 0 for no bound."""
    description: Mapping[str, Any]
    """For policy.json: world, input and output."""
    assets: tuple[Path, ...] = ()
    """Files that belong to it, such as a robot's MJCF."""
    rows: int = ROWS
    """On how many observations it is compared; fewer where each is large."""


def linear(name: str, layer: Any, inputs: int | None = None, told: Any = None, outputs: int | None = None) -> Step:
    """A `Linear` layer; what is `told` after the first `inputs` columns is constant, and becomes a part of the bias."""
    weight = np.asarray(layer.weight, np.float64)
    bias = np.zeros(len(weight)) if layer.bias is None else np.asarray(layer.bias, np.float64)
    if inputs is not None and inputs < weight.shape[1]:
        rest = np.zeros(weight.shape[1] - inputs) if told is None else np.asarray(told, np.float64).reshape(-1)
        weight, bias = weight[:, :inputs], bias + weight[:, inputs:] @ rest
    return Step("linear", name, {"weight": weight[:outputs], "bias": bias[:outputs]})


def activation(name: str, act: str) -> Step:
    """An activation by its name."""
    return Step("activation", f"{name}.{act}", options={"activation": act})


def norm(name: str, layer: Any, width: int) -> Step:
    """A `LayerNorm` over so many numbers."""
    weight = np.ones(width) if layer.weight is None else np.asarray(layer.weight)
    bias = np.zeros(width) if layer.bias is None else np.asarray(layer.bias)
    return Step("norm", name, {"weight": weight, "bias": bias}, {"eps": layer.eps})


def perceptron(
    name: str, net: Any, inputs: int | None = None, told: Any = None, outputs: int | None = None
) -> list[Step]:
    """An `MLP` with its activations and norms; of its last layer only the first `outputs`."""
    steps: list[Step] = []
    last = len(net.layers) - 1
    for k, layer in enumerate(net.layers):
        kept = outputs if k == last else None
        step = linear(f"{name}.layers.{k}", layer, inputs if k == 0 else None, told, kept)
        steps.append(step)
        if k < last or net.final:
            steps.append(activation(step.name, net.activation))
            if net.norms:
                steps.append(norm(f"{name}.norms.{k}", net.norms[k], len(step.arrays["bias"])))
    return steps


def box_steps(low: Any, high: Any, stretched: bool) -> list[Step]:
    """The end of a policy that acts in a box: within its bounds, or stretched to them from (-1, 1)."""
    arrays = {"low": np.asarray(low, np.float64), "high": np.asarray(high, np.float64)}
    return [Step("stretch" if stretched else "clamp", "action", arrays)]
