"""A card for PyTorch without a card: tensors that say they are elsewhere, and compute all the same.

They say that they are on PyTorch's `meta` device, which no kernel of the CPU touches, and hold their numbers inside.
While `OtherDevice` is entered, every operation of PyTorch comes by here: one that reads tensors of both devices is
refused, numbers of no dimension included, which PyTorch itself would let pass. Only a copy goes from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from twinax.ops import _torch

NAME = torch.device("meta")
HOST = torch.device("cpu")


class Elsewhere(torch.Tensor):
    """A tensor on the other device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=NAME
        )

    def __init__(self, held: torch.Tensor):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """While it is entered, `device=NAME` is a device that computes; `seen` are the operations that did so there."""

    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()

    def __enter__(self):
        forget_constants()
        return super().__enter__()

    def __exit__(self, *error):
        forget_constants()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = compute(func, args, kwargs or {})
        if any(isinstance(x, Elsewhere) for x in tree_leaves(result)):
            self.seen.add(func.name())
        return result


def forget_constants() -> None:
    """Constants that `ops` keeps for a device: the true one of that name must not meet these, nor they it."""
    for key in [key for key in _torch._constants if key[1].type == NAME.type]:
        del _torch._constants[key]


def compute(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation, on the device of its tensors, or of its argument `device` where it has none."""
    name: str = func.name()  # pyright: ignore[reportFunctionMemberAccess]
    asked = kwargs.get("device")
    kwargs = {**kwargs, "device": HOST} if asked is not None else kwargs
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    there = [isinstance(x, Elsewhere) for x in tensors]
    if name == "aten::_to_copy":
        there = [there[0] if asked is None else torch.device(asked).type == NAME.type]
    elif name == "aten::copy_":
        there = there[:1]
    elif not tensors:
        there = [asked is not None and torch.device(asked).type == NAME.type]
    elif any(there) != all(there):
        kinds = ", ".join(f"{tuple(x.shape)} on {x.device.type}" for x in tensors)
        raise AssertionError(f"{name} mixes devices: {kinds}")
    own: dict[int, Elsewhere] = {}  # what is written in place stays the tensor that it was

    def opened(x: Any) -> Any:
        if isinstance(x, Elsewhere):
            own[id(x.held)] = x
            return x.held
        return x

    result = func(*tree_map(opened, args), **tree_map(opened, kwargs))
    if not there[0]:
        return result
    return tree_map(lambda x: own.get(id(x), Elsewhere(x)) if isinstance(x, torch.Tensor) else x, result)
