"""Layers whose arrays Flax keeps apart and this project packs: attention by query, key and value, cells by their gates.

A gate of Flax has a bias on one side alone; the other side's is then zero here, where only the sum of both counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from twinax.bridge._arrays import host_array
from twinax.bridge._flax_layers import dotted, grouped, under
from twinax.errors import TwinaxError
from twinax.networks import GRU, LSTM, GRUCell, LSTMCell, MultiheadAttention

PROJECTIONS = ("query", "key", "value")
GATES = {
    GRUCell: (("ir", "iz", "in"), ("hr", "hz", "hn")),
    LSTMCell: (("ii", "if", "ig", "io"), ("hi", "hf", "hg", "ho")),
}
"""What Flax calls the gates on the inputs and on the state, in PyTorch's order."""


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
        return _Parts(*_inner(parameters, there, GATES[type(node)][0])).cell(node, here, "")
    places = list(_cells(parameters, there, GATES[type(node).CELL][0]))
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
        made = [
            self.packed(here, "in_proj_weight", node.in_proj_weight, PROJECTIONS, "kernel", _by_heads),
            self.packed(here, "in_proj_bias", node.in_proj_bias, PROJECTIONS, "bias", np.ravel),
            self.packed(here, "out_proj.weight", node.out_proj.weight, ("out",), "kernel", _from_heads),
            self.packed(here, "out_proj.bias", node.out_proj.bias, ("out",), "bias", np.ravel),
        ]
        return [one for one in made if one is not None], self.left()

    def cell(self, node: Any, here: str, suffix: str) -> tuple[list[Packed], list[str]]:
        made = []
        for side, gates in zip(("ih", "hh"), GATES[type(node)], strict=True):
            weight, bias = (getattr(node, f"{name}_{side}") for name in ("weight", "bias"))
            made.append(self.packed(here, f"weight_{side}{suffix}", weight, gates, "kernel", np.transpose))
            made.append(self.packed(here, f"bias_{side}{suffix}", bias, gates, "bias", np.ravel, node.hidden))
        return [one for one in made if one is not None], self.left()

    def packed(
        self,
        here: str,
        name: str,
        leaf: Any,
        parts: tuple[str, ...],
        array: str,
        turn: Callable[[np.ndarray], np.ndarray],
        zeros: int = 0,
    ) -> Packed | None:
        """One array of some parts, one below the other; where `zeros` are given, a part may lack it."""
        if leaf is None:
            return None
        there = under(under(self.there, parts[0] if len(parts) == 1 else f"{{{','.join(parts)}}}"), array)
        values, shape = [], ()
        for part in parts:
            value = self.parameters[part].get(array) if isinstance(self.parameters.get(part), Mapping) else None
            if value is None and not zeros:
                return None
            if value is None:
                values.append(np.zeros(zeros))
                continue
            self.taken.add((part, array))
            given = host_array(under(under(self.there, part), array), value)
            shape = shape or given.shape
            values.append(turn(given))
        widths = {value.shape[1:] for value in values}
        if len(widths) > 1:
            raise TwinaxError(
                f"the parts of '{there}' have different widths, {sorted(widths)}, so they are no one layer"
            )
        return Packed(dotted(here, name), leaf, there, np.concatenate(values), shape)

    def left(self) -> list[str]:
        """What was not taken."""
        left = []
        for part, arrays in self.parameters.items():
            names = arrays if isinstance(arrays, Mapping) else [""]
            left += [under(under(self.there, part), name) for name in names if (part, name) not in self.taken]
        return left


def _by_heads(kernel: np.ndarray) -> np.ndarray:
    """(in, heads, width of a head) to (out, in)."""
    return kernel.reshape(kernel.shape[0], -1).T


def _from_heads(kernel: np.ndarray) -> np.ndarray:
    """(heads, width of a head, out) to (out, in)."""
    return kernel.reshape(-1, kernel.shape[-1]).T


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
