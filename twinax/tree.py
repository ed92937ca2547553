"""Trees of arrays by name: the one place that says how a leaf is called.

A leaf's name is its path joined by dots, as in PyTorch's state_dict: `policy.layers.0.weight`.
Checkpoints, parity reports, optimizer groups and `as_torch_module` all use these names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform

import jax.tree_util as jtu

from twinax.errors import TwinaxError

T = TypeVar("T")


def static(**options: Any) -> Any:
    """A record's field that is structure, not an array."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def record(kind: type[T]) -> type[T]:
    """A frozen dataclass that is a tree of its fields: for state and batches.

    Networks are `equinox.Module`s; records are made and read once per step in eager PyTorch, where a
    module's own machinery would cost more than the arithmetic.

    >>> @record
    ... class Pair:
    ...     left: int
    ...     right: int
    >>> named_leaves(Pair(1, 2))
    {'left': 1, 'right': 2}
    """
    kind = dataclasses.dataclass(frozen=True, eq=False)(kind)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    leaves = tuple(entry.name for entry in fields if not entry.metadata.get("static"))
    structure = tuple(entry.name for entry in fields if entry.metadata.get("static"))
    keys = tuple(jtu.GetAttrKey(name) for name in leaves)

    def flatten(value):
        return tuple(getattr(value, n) for n in leaves), tuple(getattr(value, n) for n in structure)

    def flatten_with_keys(value):
        data, rest = flatten(value)
        return tuple(zip(keys, data, strict=True)), rest

    def unflatten(rest, data):
        # Not through __init__: transformations put placeholders and batched arrays where its annotations,
        # which the test run checks, promise arrays of one shape.
        value = object.__new__(kind)
        value.__dict__.update(zip(leaves, data, strict=True))
        value.__dict__.update(zip(structure, rest, strict=True))
        return value

    jtu.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
    return kind


def _part(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by dotted path, in flattening order.

    >>> named_leaves({"a": [1, 2]})
    {'a.0': 1, 'a.1': 2}
    """
    leaves: dict[str, Any] = {}
    for path, leaf in jtu.tree_flatten_with_path(tree)[0]:
        name = ".".join(_part(key) for key in path)
        if name in leaves:
            raise TwinaxError(f"two leaves of the tree are called '{name}'; rename the one whose key has a dot in it")
        leaves[name] = leaf
    return leaves


def with_leaves(tree: T, leaves: Mapping[str, Any]) -> T:
    """The same tree with its leaves replaced by name; names must match exactly.

    >>> with_leaves({"a": [1, 2]}, {"a.0": 3, "a.1": 4})
    {'a': [3, 4]}
    """
    names = list(named_leaves(tree))
    missing = [n for n in names if n not in leaves]
    extra = [n for n in leaves if n not in set(names)]
    if missing or extra:
        raise TwinaxError(
            f"the arrays do not fit the tree: missing {missing[:5] or 'none'}, "
            f"unexpected {extra[:5] or 'none'} ({len(missing)} missing, {len(extra)} unexpected)"
        )
    return jtu.tree_unflatten(jtu.tree_structure(tree), [leaves[n] for n in names])


def map_leaves(function: Callable[..., Any], tree: T, *rest: Any) -> T:
    """Tree map under a name that does not import jax at the caller."""
    return jtu.tree_map(function, tree, *rest)
