"""Batches in a person's own containers: dataclasses, dictionaries of their own kind, plain objects with arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinax.errors import TwinaxError

PLAIN = (bool, int, float, complex, str, type(None))
"""What stays as it is beside arrays."""
SIZES = ("SymInt", "SymFloat", "SymBool")
"""What PyTorch has in place of numbers while it captures."""
Context = tuple[type, tuple[Any, ...], bool]
"""A class, the names of what it holds, and whether its attributes are its entries."""


def unknown(leaves: Sequence[Any]) -> list[Any]:
    """Those of PyTorch's leaves that are neither arrays nor plain values."""
    return [x for x in leaves if not (isinstance(x, PLAIN) or _is_array(x) or type(x).__name__ in SIZES)]


def open_up(leaf: Any) -> None:
    """Teach PyTorch's trees the class of a container, so that it is passed on with its arrays replaced."""
    from torch.utils import _pytree

    kind = type(leaf)
    if kind in _pytree.SUPPORTED_NODES or not _can_open(leaf):
        raise TwinaxError(
            f"a {kind.__module__}.{kind.__qualname__} among what is given or returned is neither an array nor a number "
            "nor a container of such; give and return dicts of tensors"
        )
    _pytree.register_pytree_node(
        kind,
        _flatten,
        _unflatten,
        serialized_type_name=f"twinax.{kind.__module__}.{kind.__qualname__}.{id(kind)}",
        flatten_with_keys_fn=_flatten_with_keys,
    )


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return True
    # Asked of the class, since a container may answer to any name.
    return hasattr(type(leaf), "shape") and hasattr(type(leaf), "dtype") and not isinstance(leaf, dict)


def _can_open(value: Any, depth: int = 4) -> bool:
    """Whether it is made of arrays, plain values and containers of such, so that it can be made again from them."""
    import torch

    if isinstance(value, PLAIN) or _is_array(value):
        return True
    if not depth or callable(value) or isinstance(value, (type, torch.nn.Module)):
        return False
    if isinstance(value, (list, tuple)):
        return all(_can_open(one, depth - 1) for one in value)
    if not isinstance(value, dict) and not hasattr(value, "__dict__") and not dataclasses.is_dataclass(value):
        return False
    return all(_can_open(one, depth - 1) for one in _entries(value).values())


def _entries(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return dict(value)
    if dataclasses.is_dataclass(value) and not hasattr(value, "__dict__"):
        return {
            field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)
        }
    return dict(vars(value))


def _flatten(value: Any) -> tuple[list[Any], Context]:
    found = _entries(value)
    return list(found.values()), (type(value), tuple(found), getattr(value, "__dict__", None) is value)


def _flatten_with_keys(value: Any) -> Any:
    from torch.utils import _pytree

    leaves, context = _flatten(value)
    key: Any = _pytree.MappingKey if isinstance(value, dict) else _pytree.GetAttrKey
    return [(key(name), leaf) for name, leaf in zip(context[1], leaves, strict=True)], context


def _unflatten(leaves: Any, context: Context) -> Any:
    kind, names, attributes_are_entries = context
    made: Any = kind.__new__(kind)  # pyright: ignore[reportCallIssue]
    entries = dict(zip(names, leaves, strict=True))
    if issubclass(kind, dict):
        dict.update(made, entries)
        if attributes_are_entries:
            made.__dict__ = made
    elif hasattr(made, "__dict__"):
        made.__dict__.update(entries)
    else:
        for name, value in entries.items():
            object.__setattr__(made, name, value)  # also of a frozen dataclass
    return made
