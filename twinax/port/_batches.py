"""A batch on its way into a compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twinax.bridge import to_jax
from twinax.errors import TwinaxError
from twinax.port._shapes import flatten, signature_of


def to_arrays(batch: Any) -> list[Any]:
    """The arrays of a batch, in order. On the CPU they are the tensors' own memory, which a program has read when the
    step returns."""
    return [_array(leaf) for leaf in _leaves(batch) if hasattr(leaf, "shape")]


def rebuilt(batch: Any) -> Callable[[list[Any]], list[Any]]:
    """What puts arrays back between a batch's other leaves, which a program is compiled for."""
    leaves = [None if hasattr(leaf, "shape") else leaf for leaf in _leaves(batch)]
    places = [k for k, leaf in enumerate(_leaves(batch)) if hasattr(leaf, "shape")]

    def rebuild(arrays: list[Any]) -> list[Any]:
        whole: list[Any] = list(leaves)
        for k, array in zip(places, arrays, strict=True):
            whole[k] = array
        return whole

    return rebuild


def key_of(batch: Any) -> Any:
    """What programs for a batch are kept by; quicker than a signature for the usual batch."""
    if type(batch) is dict:
        leaves = batch.values()
        if all(hasattr(leaf, "dtype") for leaf in leaves):
            return tuple(batch), tuple([leaf.shape for leaf in leaves]), tuple([leaf.dtype for leaf in leaves])
    return signature_of(batch)


def _leaves(batch: Any) -> Any:
    if type(batch) is dict and all(hasattr(leaf, "dtype") for leaf in batch.values()):
        return batch.values()
    return flatten(batch)[0]


def _array(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return _narrowed(leaf)
    if not hasattr(leaf, "detach"):
        return leaf
    if leaf.device.type != "cpu" or leaf.dtype.is_complex or not leaf.is_contiguous() or leaf.dtype.itemsize == 2:
        return to_jax(leaf.detach(), narrow="allow")
    array = (leaf.detach() if leaf.requires_grad else leaf).numpy()
    return _narrowed(array)


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Integers as JAX has them, if they fit."""
    if array.dtype == np.int64 and not _wide():
        narrow = array.astype(np.int32)
        if (narrow != array).any():
            raise TwinaxError(
                f"the batch has the integer {array[narrow != array].flat[0]}, which JAX's int32 cannot hold; turn 64 "
                "bits on with jax.config.update('jax_enable_x64', True)"
            )
        return narrow
    return array


def _wide() -> bool:
    import jax

    return bool(jax.config.read("jax_enable_x64"))
