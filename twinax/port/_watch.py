"""Whether a module is still what a step made of it, without a walk through it in every step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

PLAIN = (bool, int, float, str, type(None))
"""Attributes of these types decide on a graph: Python reads them while it is captured."""
Idle = Collection[tuple[int, str]]
"""Attributes that make no difference, by the place of their part."""


def flags_of(module: Any, idle: Idle = ()) -> tuple[Any, ...]:
    """What of a module's state decides on its graph: its parts and their plain attributes, such as whether they are in
    training, and which parameters are trained."""
    return _flags(list(module.modules()), list(module.parameters()), idle)


def differing(one: tuple[Any, ...], other: tuple[Any, ...]) -> frozenset[tuple[int, str]]:
    """Attributes that differ between two such states, but for those that PyTorch's own parts have."""
    found = set()
    for place, ((_, before), (_, after)) in enumerate(zip(one[0], other[0], strict=False)):
        found |= {(place, name) for name, _ in set(before) ^ set(after) if name != "training"}
    return frozenset(found)


def _flags(parts: Sequence[Any], parameters: Sequence[Any], idle: Idle) -> tuple[Any, ...]:
    state = []
    for place, one in enumerate(parts):
        plain = [
            (name, value)
            for name, value in vars(one).items()
            if type(value) in PLAIN and name[0] != "_" and (place, name) not in idle
        ]
        state.append((type(one), tuple(plain)))
    return tuple(state), tuple([p.requires_grad for p in parameters])


class Watch:
    """What a module's parts and parameters were when they were last looked at."""

    def __init__(self, module: Any):
        self._module = module
        self.remember()

    def remember(self) -> None:
        """Take the module as it is now."""
        self._parts = list(self._module.modules())
        self._tables = [table for one in self._parts for table in (one._parameters, one._modules)]
        places = [(table, name) for table in self._tables for name in table]
        self._places, self._held = places, [table[name] for table, name in places]  # held, so that ids stay theirs
        self._ids = [id(one) for one in self._held]
        self._named = dict(self._module.named_parameters())
        self._parameters = list(self._named.values())
        self.remember_numbers()

    def remember_numbers(self) -> None:
        """Take the parameters' numbers as they are now."""
        self._versions = [p._version for p in self._parameters]

    def changed(self) -> list[str]:
        """Parameters that are other ones, or were written to in place."""
        if (
            self._versions == [p._version for p in self._parameters]
            and len(self._places) == sum(map(len, self._tables))
            and self._ids == [id(table.get(name)) for table, name in self._places]
        ):
            return []
        named = dict(self._module.named_parameters())
        versions = dict(zip(self._named, self._versions, strict=True))
        found = [name for name, p in named.items() if self._named.get(name) is not p or p._version != versions[name]]
        found += [name for name in self._named if name not in named]
        if not found:
            self.remember()
        return found

    def flags(self, idle: Idle = ()) -> tuple[Any, ...]:
        """As `flags_of`, of the parts that it knows."""
        return _flags(self._parts, self._parameters, idle)
