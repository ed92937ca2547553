"""What a conversion says about itself: a row for each array, and what to know about the result."""

from __future__ import annotations

import numpy as np

from twinax.bridge.conversion._conversion import Moved
from twinax.bridge.conversion._layers import IMAGES, Found, Library, Opened, Plain
from twinax.bridge.conversion._layouts import Part, summed
from twinax.bridge.conversion._pairing import Pair
from twinax.bridge.conversion._turns import SAME

EPSILON = {"torch": 1e-5, "flax": 1e-6, "nnx": 1e-6, "equinox": 1e-5}
"""What a norm adds to the variance if nothing is said; 1e-5 in every BatchNorm."""


def rows(a: Found, b: Found) -> list[Moved]:
    """A row for each array in PyTorch's names."""
    made = []
    ours, joined = a.ours, summed(a.ours, b.layout)
    for name in b.ours:
        sources, targets = _parts(a, name), _parts(b, name)
        if not targets:
            continue
        ends = [layer.arrays[parts[0].theirs].shape if parts else () for layer, parts in ((a, sources), (b, targets))]
        turns = {part.turn.name for part in (*sources[:1], *targets[:1]) if part.turn is not SAME}
        if sources and sources[0].turn.name == targets[0].turn.name:
            turns = set()
        if len(sources) != len(targets):
            turns.add("parted" if len(targets) > len(sources) else "put together")
        turned = ", ".join(sorted(turns)) or SAME.name
        if not sources:
            turned = "filled in"
        elif not np.array_equal(joined[name], ours[name], equal_nan=True):
            turned = "summed"
        made.append(Moved(_called(a, sources) or "-", _called(b, targets), ends[0], ends[1], turned))
    return made


def _parts(layer: Found, ours: str) -> list[Part]:
    return [part for part in layer.layout.parts if part.ours == ours and part.theirs in layer.arrays]


def _called(layer: Found, parts: list[Part]) -> str:
    """The whole name of an array, or of several at once: GRUCell_0/{ir,iz,in}/kernel."""
    names = [layer.places[part.theirs] for part in parts]
    if len(names) < 2:
        return "".join(names)
    start = 0
    while len({name[: start + 1] for name in names}) == 1:
        start += 1
    start = max(names[0].rfind(mark, 0, start) for mark in "/.") + 1
    end = 0
    while len({name[len(name) - end - 1 :] for name in names}) == 1:
        end += 1
    short = min(len(name) for name in names)
    marks = [i for i in range(1, min(end, short - start) + 1) if names[0][-i] in "/."]
    end = max(marks, default=0)
    middle = ",".join(name[start : len(name) - end] for name in names)
    return f"{names[0][:start]}{{{middle}}}{names[0][len(names[0]) - end :]}"


def notes(opened: Opened, pairs: list[Pair], origin: Library, goal: Library, built: bool) -> list[str]:
    """What to know about the result, and where a library's usual choice was not taken."""
    kinds = {a.kind for a, _ in pairs}
    found = [text for a, b in pairs for text in (*a.remarks, *b.remarks)]
    flax = [library.name in ("flax", "nnx") for library in (origin, goal)]
    if flax[0] != flax[1] and (kinds & IMAGES.keys()):
        found.append("images have their channels last in Flax, and first in PyTorch and Equinox")
    if flax[0] != flax[1] and "lstm_cell" in kinds:
        found.append("the carry of Flax's LSTM is (c, h), where PyTorch and Equinox have (h, c)")
    if "batch_norm" in kinds and "torch" in (origin.name, goal.name):
        found.append("in training PyTorch's running variance divides by n - 1, the others' by n")
    if not built:
        return found
    usual = EPSILON[goal.name]
    for a, _ in pairs:
        if a.kind in ("layer_norm", "group_norm", "rms_norm") and a.settings["eps"] != usual:
            found.append(f"{a} keeps its eps of {a.settings['eps']:.3g}; {goal.title} alone would take {usual:.0e}")
    plain = {step.name for step in opened.chain or () if isinstance(step, Plain)}
    if "gelu" in plain and goal.name != "torch":
        found.append("gelu is the exact one; jax.nn.gelu alone is its approximation by tanh")
    if "dropout" in plain and goal.name != "torch":
        found.append("dropout is switched off")
    if goal.name == "equinox":
        found.append("Equinox takes one input at a time: jax.vmap(module)(inputs)")
    if goal.name == "equinox" and "batch_norm" in kinds:
        found.append("BatchNorm takes its statistics over the axis 'batch' of jax.vmap(..., axis_name='batch')")
    if goal.name == "flax" and "batch_norm" in kinds:
        found.append("BatchNorm is built for inference (use_running_average=True)")
    return found
