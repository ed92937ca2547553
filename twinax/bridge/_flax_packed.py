"""Layers whose arrays Flax keeps apart and this project packs: attention by query, key and value, cells by their gates.

A gate of Flax has a bias on one side alone; the other side's is then zero here, where only the sum of both counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from twinax.bridge._arrays import host_array
from twinax.bridge._flax_layers import dotted, grouped, under
from twinax.bridge.conversion._layouts import LAYOUTS, Layout, Part
from twinax.errors import TwinaxError
from twinax.networks import GRU, LSTM, GRUCell, LSTMCell, MultiheadAttention

KINDS = {GRUCell: "gru_cell", LSTMCell: "lstm_cell", MultiheadAttention: "attention"}


class Packed(NamedTuple):
    """An array in the layout used here."""

    here: str
    leaf: Any
    there: str
    value: np.ndarray
    shape: tuple[int, ...]
    """Of the first part there."""


def is_packed(node: Any) -> bool:
    """Whether this is a layer that is put together from several of Flax."""
    return isinstance(node, MultiheadAttention | GRUCell | LSTMCell | GRU | LSTM)


def pack(node: Any, parameters: Any, there: str, here: str) -> tuple[list[Packed], list[str]]:
    """The arrays of such a layer, and the names of those there that have no place."""
    if isinstance(node, MultiheadAttention):
        return _Parts(parameters, there).attention(node, here)
    if isinstance(node, GRUCell | LSTMCell):
        return _Parts(*_inner(parameters, there, _gates(type(node)))).cell(node, here, "")
    places = list(_cells(parameters, there, _gates(type(node).CELL)))
    if len(places) != len(node.cells):
        raise TwinaxError(
            f"'{here or type(node).__name__}' has {len(node.cells)} layers, but '{there}' has the gates of "
            f"{len(places)}"
        )
    packed: list[Packed] = []
    left: list[str] = []
    for i, (cell, place) in enumerate(zip(node.cells, places, strict=True)):
        arrays, others = _Parts(*place).cell(cell, here, f"_l{i}")
        packed, left = packed + arrays, left + others
    return packed, left


class _Parts:
    """The parts of a layer in Flax, each with a kernel and perhaps a bias; keeps count of what was taken."""

    def __init__(self, parameters: Any, there: str):
        self.parameters: Mapping[str, Any] = parameters if isinstance(parameters, Mapping) else {}
        self.there, self.taken = there, set()

    def attention(self, node: MultiheadAttention, here: str) -> tuple[list[Packed], list[str]]:
        kernel = np.shape(self.parameters.get("query", {}).get("kernel", ()))
        if len(kernel) == 3 and kernel[1] != node.heads:
            raise TwinaxError(
                f"'{here or 'the attention'}' has {node.heads} heads, but '{under(self.there, 'query/kernel')}' of "
                f"shape {kernel} has {kernel[1]}"
            )
        layout = LAYOUTS["flax"]["attention"]
        leaves = {"in_proj_weight": node.in_proj_weight, "in_proj_bias": node.in_proj_bias}
        leaves |= {"out_proj.weight": node.out_proj.weight, "out_proj.bias": node.out_proj.bias}
        made = [self.packed(dotted(here, name), leaf, _of(layout, name)) for name, leaf in leaves.items()]
        return [one for one in made if one is not None], self.left()

    def cell(self, node: Any, here: str, suffix: str) -> tuple[list[Packed], list[str]]:
        layout, made = LAYOUTS["flax"][KINDS[type(node)]], []
        for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh"):
            zeros = node.hidden if name.startswith("bias") else 0
            made.append(self.packed(dotted(here, f"{name}{suffix}"), getattr(node, name), _of(layout, name), zeros))
        return [one for one in made if one is not None], self.left()

    def packed(self, here: str, leaf: Any, parts: list[Part], zeros: int = 0) -> Packed | None:
        """One array of some parts, one below the other; where `zeros` are given, a part may lack it."""
        if leaf is None:
            return None
        if not parts:
            return Packed(here, leaf, "-", np.zeros(leaf.shape), ())
        owners, array = [part.theirs.split("/")[0] for part in parts], parts[0].theirs.split("/")[1]
        there = under(under(self.there, owners[0] if len(owners) == 1 else f"{{{','.join(owners)}}}"), array)
        values: dict[int, np.ndarray] = {}
        shape: tuple[int, ...] = ()
        for part, owner in zip(parts, owners, strict=True):
            value = self.parameters[owner].get(array) if isinstance(self.parameters.get(owner), Mapping) else None
            if value is None and not zeros:
                return None
            if value is not None:
                self.taken.add((owner, array))
                given = host_array(under(under(self.there, owner), array), value)
                shape = shape or given.shape
                values[part.block] = part.turn.back(given, {})
        whole = [values.get(i, np.zeros(zeros)) for i in range(parts[0].blocks)]
        widths = {value.shape[1:] for value in whole}
        if len(widths) > 1:
            raise TwinaxError(
                f"the parts of '{there}' have different widths, {sorted(widths)}, so they are no one layer"
            )
        return Packed(here, leaf, there, np.concatenate(whole), shape)

    def left(self) -> list[str]:
        """What was not taken."""
        left = []
        for part, arrays in self.parameters.items():
            names = arrays if isinstance(arrays, Mapping) else [""]
            left += [under(under(self.there, part), name) for name in names if (part, name) not in self.taken]
        return left


def _of(layout: Layout, ours: str) -> list[Part]:
    """The parts that make up one of our arrays, in the order of their rows."""
    return sorted((part for part in layout.parts if part.ours == ours), key=lambda part: part.block)


def _gates(cell: type) -> tuple[str, ...]:
    """What Flax calls the gates on the inputs."""
    return tuple(part.theirs.split("/")[0] for part in _of(LAYOUTS["flax"][KINDS[cell]], "weight_ih"))


def _inner(parameters: Any, there: str, gates: tuple[str, ...]) -> tuple[Any, str]:
    """What dictionaries of one entry hold, up to that of the gates."""
    while isinstance(parameters, Mapping) and len(parameters) == 1 and not set(gates) & set(parameters):
        ((key, parameters),) = parameters.items()
        there = under(there, key)
    return parameters, there


def _cells(parameters: Any, there: str, gates: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """The cells of a recurrent network in the order of their numbers."""
    parameters, there = _inner(parameters, there, gates)
    if not isinstance(parameters, Mapping) or set(gates) & set(parameters):
        yield parameters, there
        return
    for keys in grouped(parameters, {}).values():
        for key in keys:
            yield from _cells(parameters[key], under(there, key), gates)
