"""What the layers of Flax and of this project are called, and how their arrays lie."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.bridge.conversion._layouts import LAYOUTS, Turn
from twinax.networks import Conv1d, Conv2d, Embedding, GroupNorm, LayerNorm, Linear, TransformerEncoderLayer

Names = Mapping[str, str | Sequence[str]]
"""What Flax calls the layers of a field, without their numbers, or the list of them in the order of the field."""
ByName = dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]]
"""What Flax calls an array of a layer: its name here, and how it is turned round."""
Parts = dict[str, list[tuple[str, Any]]]
"""Fields of a network: names and values of what they hold."""

NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("Dense", "EncoderBlock", "EncoderLayer", "TransformerBlock", "TransformerEncoderLayer"),
    "self_attn": ("MultiHeadDotProductAttention", "MultiHeadAttention", "SelfAttention", "attention"),
    "linear": ("Dense",),
    "norms": ("LayerNorm", "GroupNorm", "MyGroupNorm"),
    "norm": ("LayerNorm",),
    "convs": ("Conv",),
    "body": ("value_net", "vector_field_net"),
    "trunk": ("actor_net", "trunk_net"),
    "mean": ("mean_net",),
    "log_std": ("log_std_net", "log_stds"),
    "stacks": ("stack_blocks", "ResnetStack"),
    "dense": ("MLP",),
    "first": ("conv_init",),
    "first_norm": ("norm_init",),
    "blocks": ("ResNetBlock",),
    "projection": ("conv_proj",),
    "projection_norm": ("norm_proj",),
}
"""What published agents call the fields of this project's networks, without the number at the end."""


def as_it_is(array: np.ndarray) -> np.ndarray:
    """The layout of vectors, which both sides share."""
    return array


WEIGHTS = ("kernel", "scale", "embedding")
"""What Flax calls the weight of a layer."""
AXES: dict[type, tuple[str, int]] = {
    Linear: ("linear", 2),
    Conv1d: ("conv1d", 3),
    Conv2d: ("conv2d", 4),
    Embedding: ("embedding", 2),
    LayerNorm: ("layer_norm", 1),
    GroupNorm: ("group_norm", 1),
}
"""The kind of each layer, and how many axes its weight has."""


def layout_of(node: Any) -> ByName | None:
    """What Flax calls the arrays of a layer and how they are turned round; None for anything but a layer."""
    if type(node) not in AXES:
        return None
    parts = LAYOUTS["flax"][AXES[type(node)][0]].parts
    return {part.theirs: (part.ours, functools.partial(_back, part.turn)) for part in parts}


def _back(turn: Turn, array: np.ndarray) -> np.ndarray:
    return turn.back(array, {})


def _axes(node: Any) -> int:
    """Axes of the weight of a layer, 0 if this is none."""
    return AXES.get(type(node), ("", 0))[1]


def _flax_axes(parameters: Any) -> int:
    """Axes of the weight of a Flax layer, 0 if this is none."""
    weight = (
        next((parameters[key] for key in WEIGHTS if key in parameters), None)
        if isinstance(parameters, Mapping)
        else None
    )
    return 0 if weight is None or isinstance(weight, Mapping) else np.ndim(weight)


def under(there: str, key: str) -> str:
    """The name of an entry of Flax parameters."""
    return "/".join(part for part in (there, key) if part)


def dotted(here: str, name: str) -> str:
    """The name of a part of a network."""
    return ".".join(part for part in (here, name) if part)


def leaf_names(parameters: Any, there: str) -> Iterator[str]:
    """The names of all arrays in a part of the Flax parameters."""
    if not isinstance(parameters, Mapping):
        yield there
        return
    for key, value in parameters.items():
        yield from leaf_names(value, under(there, key))


def inside(parameters: Any, there: str) -> tuple[Any, str]:
    """What dictionaries of one entry hold, up to the dictionary of a layer."""
    while isinstance(parameters, Mapping) and len(parameters) == 1:
        ((key, inner),) = parameters.items()
        if not isinstance(inner, Mapping) and key in (*WEIGHTS, "bias"):
            break
        parameters, there = inner, under(there, key)
    return parameters, there


def grouped(parameters: Mapping[str, Any], names: Names) -> dict[str, list[str]]:
    """Keys by what they are called without the number at their end, in the order of that number.

    Where `names` lists the keys of a field, these are a group with the name of that field, in the order of the list.
    """
    lists = {name: list(keys) for name, keys in names.items() if not isinstance(keys, str)}
    listed = {name: keys for name, keys in lists.items() if keys and all(key in parameters for key in keys)}
    taken = {key for keys in listed.values() for key in keys}
    groups: dict[str, list[tuple[int, str]]] = {}
    for key in parameters:
        stem, number = re.fullmatch(r"(.*?)(?:_(\d+))?", key, re.DOTALL).groups()  # type: ignore[union-attr]
        if key not in taken:
            groups.setdefault(stem, []).append((int(number or 0), key))
    return {stem: [key for _, key in sorted(keys)] for stem, keys in groups.items()} | listed


def parts_of(node: Any, parameters: Mapping[str, Any] | None = None) -> Parts:
    """The fields of a network that hold arrays, each as a list of (name, part).

    PyTorch numbers the fields of a transformer's layer from 1, Flax its layers from 0: there they are lists of two,
    unless they have PyTorch's names.
    """
    if isinstance(node, TransformerEncoderLayer) and not {"linear1", "norm1"} & set(parameters or {}):
        pairs = {name: [(f"{name}{k}", getattr(node, f"{name}{k}")) for k in (1, 2)] for name in ("linear", "norm")}
        return {"self_attn": [("self_attn", node.self_attn)], **pairs}
    if dataclasses.is_dataclass(node):
        fields = [f.name for f in dataclasses.fields(node) if not f.metadata.get("static")]
        given = {name: getattr(node, name) for name in fields}
    elif isinstance(node, (tuple, list)):
        given = {"": node}
    else:
        given = dict(node) if isinstance(node, Mapping) else {}
    parts: Parts = {}
    for name, value in given.items():
        several = enumerate(value) if isinstance(value, (tuple, list)) else ()
        listed = [(dotted(name, str(i)), part) for i, part in several] or [(name, value)]
        parts[name] = [(label, part) for label, part in listed if jtu.tree_leaves(part)]
    return {name: listed for name, listed in parts.items() if listed}


def by_type(
    parts: Parts, groups: Mapping[str, list[str]], chosen: Mapping[str, str], parameters: Mapping, members: int
) -> dict[str, str]:
    """Groups for fields that no name fits, where one field and one group of a type of layer are left."""
    ours: dict[int, list[str]] = {}
    theirs: dict[int, list[str]] = {}
    for name, children in parts.items():
        kinds = {_axes(child) for _, child in children}
        if name not in chosen and len(kinds) == 1:
            ours.setdefault(kinds.pop(), []).append(name)
    for stem, keys in groups.items():
        kinds = {_flax_axes(parameters[key]) - members for key in keys}
        if stem not in chosen.values() and len(kinds) == 1:
            theirs.setdefault(kinds.pop(), []).append(stem)
    pairs = [(names, theirs.get(kind, [])) for kind, names in ours.items() if kind > 0]
    return {names[0]: stems[0] for names, stems in pairs if len(names) == len(stems) == 1}
