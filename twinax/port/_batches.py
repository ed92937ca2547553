"""A batch on its way into a compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twinax.bridge import to_jax
from twinax.errors import TwinaxError
from twinax.port._shapes import flatten

NARROW = np.iinfo(np.int32)


def to_arrays(batch: Any) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """The arrays of a batch, and what puts them back between its other leaves, which a program is compiled for."""
    leaves, _ = flatten(batch)
    places = [k for k, leaf in enumerate(leaves) if hasattr(leaf, "shape")]

    def rebuild(arrays: list[Any]) -> list[Any]:
        whole: list[Any] = list(leaves)
        for k, array in zip(places, arrays, strict=True):
            whole[k] = array
        return whole

    return [_array(leaves[k]) for k in places], rebuild


def _array(leaf: Any) -> Any:
    """On the CPU the tensor's own memory: the program has read it when the step returns."""
    if not hasattr(leaf, "detach"):
        return leaf
    if leaf.device.type != "cpu" or leaf.dtype.is_complex or not leaf.is_contiguous() or leaf.dtype.itemsize == 2:
        return to_jax(leaf.detach(), narrow="allow")
    array = leaf.detach().numpy()
    if array.dtype == np.int64 and not _wide():
        if array.size and (array.min() < NARROW.min or array.max() > NARROW.max):
            raise TwinaxError(
                f"the batch has the integer {array.max() if array.max() > NARROW.max else array.min()}, which JAX's "
                "int32 cannot hold; turn 64 bits on with jax.config.update('jax_enable_x64', True)"
            )
        return array.astype(np.int32)
    return array


def _wide() -> bool:
    import jax

    return bool(jax.config.read("jax_enable_x64"))


def flags_of(module: Any) -> tuple[Any, ...]:
    """What of a module's state decides on its graph: parts in training, and parameters that are trained."""
    return (
        tuple(one.training for one in module.modules()),
        tuple(p.requires_grad for p in module.parameters()),
    )
