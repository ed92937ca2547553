"""Two modules of different libraries run on the same inputs: the only guard against a square matrix turned wrongly."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import jax
import numpy as np

from twinax.bridge.conversion._conversion import ForwardCheck
from twinax.bridge.conversion._layers import IMAGES, Chain, Found, Library, Opened
from twinax.errors import TwinaxError

ROWS = 3
SPOTS = 4
"""Places of an image that is made for a norm."""


def made_inputs(chain: Chain) -> tuple | None:
    """Inputs for a sequence of layers, by the shapes of its first one; None where they cannot be known."""
    layers = [step for step in chain if isinstance(step, Found)]
    if not layers:
        return None
    rng, layer = np.random.default_rng(0), layers[0]
    shapes = {name: array.shape for name, array in layer.ours.items()}
    if layer.kind == "embedding":
        return (rng.integers(0, shapes["weight"][0], ROWS),)
    if layer.kind in IMAGES:
        if any(getattr(step, "name", "") == "flatten" for step in chain):
            return None
        channels = shapes["weight"][0] if "transpose" in layer.kind else shapes["weight"][1] * layer.settings["groups"]
        return (rng.normal(size=(ROWS, channels, *_size(layers))),)
    if layer.kind in ("gru_cell", "lstm_cell"):
        state = [rng.normal(size=(ROWS, shapes["weight_hh"][1])) for _ in range(2)]
        x = rng.normal(size=(ROWS, shapes["weight_ih"][1]))
        return (x, state[0]) if layer.kind == "gru_cell" else (x, (state[0], state[1]))
    if layer.kind == "attention":
        return tuple(rng.normal(size=(ROWS, SPOTS, shapes["in_proj_weight"][1])) for _ in range(3))
    if layer.kind == "group_norm":
        channels = layer.settings["channels"]
        return (rng.normal(size=(ROWS, channels, SPOTS)),)
    if layer.kind == "batch_norm":
        image = (SPOTS,) * layer.settings.get("image", 0)
        return (rng.normal(size=(ROWS, shapes["running_mean"][0], *image)),)
    width = layer.settings["shape"] if "shape" in layer.settings else shapes["weight"][1:]
    return (rng.normal(size=(ROWS, *width)),) if None not in width else None


def _size(layers: list[Found]) -> list[int]:
    """Of an image that a number of convolutions leave something of."""
    sizes = [2] * IMAGES[layers[0].kind]
    for layer in reversed(layers):
        if layer.kind in IMAGES and "transpose" not in layer.kind:
            given = layer.settings
            each = zip(sizes, given["stride"], given["dilation"], given["window"], strict=True)
            sizes = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in each]
    return sizes


def compared(
    pair: tuple[Library, Library], modules: tuple[Any, Any], opened: tuple[Opened, Opened], inputs: tuple, run: tuple
) -> ForwardCheck:
    """The difference in both precisions; modules that give different things are an error."""
    found: dict[str, float] = {}
    shapes: tuple[tuple[int, ...], ...] = ()
    for dtype in ("float64", "float32"):
        sides = []
        for library, module, layers, function in zip(pair, modules, opened, run, strict=True):
            with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
                try:
                    sides.append(library.outputs(module, layers, inputs, function, dtype))
                except _refusals() as error:
                    reason = str(error).strip().split("\n")[0]
                    raise TwinaxError(
                        f"the module of {library.title} does not run on the example ({reason}); give one in PyTorch's "
                        "layout, or say how both are called, as run=(f, g) with f(module, *example)"
                    ) from error
        shapes, there = (tuple(tuple(x.shape) for x in side) for side in sides)
        if shapes != there:
            raise TwinaxError(
                f"{pair[0].title} gives outputs of shapes {_listed(shapes)} and {pair[1].title} {_listed(there)} for "
                "the same inputs; say how both are called, as run=(f, g) with f(module, *example), or pass check=False"
            )
        found[dtype] = max((_difference(a, b) for a, b in zip(*sides, strict=True)), default=0.0)
    return ForwardCheck(found["float64"], found["float32"], shapes)


def _refusals() -> tuple[type[Exception], ...]:
    """What the libraries raise at inputs that do not fit."""
    usual = (RuntimeError, TypeError, ValueError, IndexError)
    return (*usual, sys.modules["flax.errors"].FlaxError) if "flax.errors" in sys.modules else usual


def _listed(shapes: tuple) -> str:
    return ", ".join(str(shape) for shape in shapes) or "nothing"


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """By the size of the outputs, which counts as at least 1."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    difference = float(np.max(np.abs(a - b))) / max(1.0, float(np.max(np.abs(a))))
    return difference if difference == difference else float("inf")
