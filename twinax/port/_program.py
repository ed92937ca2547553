"""A captured computation in a neutral form: what is called, on what, in which order.

Nothing in it is PyTorch's: operators are names, dtypes are texts, and a value that an earlier node made is a `Ref`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax.noise import Draw


@dataclass(frozen=True)
class Ref:
    """The value of a node, by its name."""

    name: str


@dataclass(frozen=True)
class Dtype:
    """A dtype among arguments, by its name, such as float32."""

    name: str


@dataclass(frozen=True)
class Line:
    """Where in a person's code something comes from."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        from twinax.blame import shown_path

        return f"{shown_path(self.file)}:{self.number}: {self.text}"


@dataclass(frozen=True)
class Node:
    """One call of an operator."""

    name: str
    operator: str
    """Its name, such as aten.add.Tensor, or getitem."""
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    dtypes: tuple[str | None, ...]
    """Dtypes of its results; None where a result is no array."""
    line: Line | None

    def refs(self) -> tuple[str, ...]:
        """The nodes that it reads."""
        found: list[str] = []
        fill((self.arguments, dict(self.options)), lambda ref: found.append(ref.name), lambda dtype: None)
        return tuple(found)


@dataclass(frozen=True)
class Program:
    """What was captured.

    Inputs are nodes' names: `parameters` and `buffers` with their names in `state_dict`, `constants` with their values,
    `inputs` in order (None for one that nothing reads). `results` are what the person's code returned, `changed` what
    became of buffers, by their names.
    """

    parameters: Mapping[str, str]
    buffers: Mapping[str, str]
    constants: Mapping[str, Any]
    inputs: tuple[str | None, ...]
    nodes: tuple[Node, ...]
    results: tuple[Any, ...]
    changed: Mapping[str, Any]
    draws: Mapping[str, Draw] = field(default_factory=dict)
    """Random arrays that nodes read, by the names of the nodes."""

    def equals(self, other: Program) -> bool:
        """Whether another program computes the same in the same way."""
        if repr((self.nodes, self.results, self.changed)) != repr((other.nodes, other.results, other.changed)):
            return False
        pairs = zip(self.constants.items(), other.constants.items(), strict=False)
        return len(self.constants) == len(other.constants) and all(
            a == b and np.array_equal(x, y) for (a, x), (b, y) in pairs
        )

    def operators(self) -> dict[str, int]:
        """How often each operator is called, the most frequent first."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.operator] = counts.get(node.operator, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def reached(self) -> frozenset[str]:
        """Parameters, by their names in `state_dict`, from which a gradient reaches a result."""
        by_name = {node.name: node for node in self.nodes}
        names: list[str] = []
        fill(self.results, lambda ref: names.append(ref.name), lambda dtype: None)
        seen: set[str] = set()
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            node = by_name.get(name)
            if node is not None and node.operator not in CUTS:
                names.extend(node.refs())
        return frozenset(owner for node, owner in self.parameters.items() if node in seen)


CUTS = frozenset({"twinax.stop_gradient.default"})
"""Operators that no gradient passes."""


def fill(tree: Any, value: Callable[[Ref], Any], dtype: Callable[[Dtype], Any]) -> Any:
    """Arguments with their references and dtypes replaced."""
    if isinstance(tree, Ref):
        return value(tree)
    if isinstance(tree, Dtype):
        return dtype(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(fill(part, value, dtype) for part in tree)
    if isinstance(tree, dict):
        return {key: fill(part, value, dtype) for key, part in tree.items()}
    return tree
