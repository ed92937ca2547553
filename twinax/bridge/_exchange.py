"""Trees of arrays from one framework to another: copies by default, shared memory on request."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import flatten, host_array, is_function, is_tensor, label, numpy_to_tensor
from twinax.errors import TwinaxError, UnknownName, require

Narrow = Literal["warn", "allow", "refuse"]
NARROW = ("warn", "allow", "refuse")
ALIGNMENT = 64
"""Bytes; JAX on the CPU can only share memory that starts at a multiple of this."""


class NarrowingWarning(UserWarning):
    """64-bit numbers became 32-bit numbers, because JAX's 64-bit mode is off."""


def to_jax(tree: Any, copy: bool = True, narrow: Narrow = "warn") -> Any:
    """The same tree with JAX arrays; tensors are detached, functions and None stay.

    `copy=False` shares memory: a later in-place change in PyTorch or NumPy then also changes the
    JAX array, so use it only for arrays that nobody writes to. With 64-bit mode off, int64 and
    float64 are narrowed and one `NarrowingWarning` lists the leaves (`narrow="allow"` is silent,
    "refuse" raises); a value that does not fit is always an error.

    >>> to_jax({"reward": np.zeros(3, np.float32)})["reward"].shape
    (3,)
    """
    if narrow not in NARROW:
        raise UnknownName("choice of narrow", narrow, NARROW)
    names, leaves, structure = flatten(tree)
    narrowed: list[str] = []
    out = [_into_jax(name, leaf, copy, narrowed) for name, leaf in zip(names, leaves, strict=True)]
    if narrowed and narrow != "allow":
        text = (
            f"narrowed to 32 bits: {', '.join(narrowed[:5])}{', ...' if len(narrowed) > 5 else ''}; "
            "jax.config.update('jax_enable_x64', True) keeps 64 bits"
        )
        if narrow == "refuse":
            raise TwinaxError(text)
        warnings.warn(text, NarrowingWarning, stacklevel=2)
    # One transfer for all leaves: its cost is per call more than per byte. device_put may keep the
    # memory that it is given, which is safe here because these arrays are fresh copies.
    waiting = [i for i, leaf in enumerate(out) if isinstance(leaf, np.ndarray)]
    for i, leaf in zip(waiting, jax.device_put([out[i] for i in waiting]), strict=True):
        out[i] = leaf
    return jtu.tree_unflatten(structure, out)


def to_torch(tree: Any, copy: bool = True, device: Any = None) -> Any:
    """The same tree with tensors that need no gradient; functions and None stay.

    `copy=False` shares memory: PyTorch can then write into arrays that JAX believes constant. Without a device, tensors
    stay where they are and other arrays are on the CPU; on another device than theirs, all are copies.

    >>> to_torch({"reward": np.zeros(3, np.float32)})["reward"].tolist()
    [0.0, 0.0, 0.0]
    """
    require("torch", "torch", "to_torch")
    names, leaves, structure = flatten(tree)
    tensors = [_into_torch(n, leaf, copy) for n, leaf in zip(names, leaves, strict=True)]
    if device is not None:
        tensors = [tensor.to(device) if is_tensor(tensor) else tensor for tensor in tensors]
    return jtu.tree_unflatten(structure, tensors)


def to_numpy(tree: Any, copy: bool = True) -> Any:
    """The same tree with NumPy arrays; functions and None stay. bfloat16 keeps its dtype (ml_dtypes).

    With `copy=False` memory is shared where possible, and arrays that come from JAX are read-only.

    >>> to_numpy({"reward": jnp.zeros(3)})["reward"].dtype
    dtype('float32')
    """
    names, leaves, structure = flatten(tree)

    def one(name: str, leaf: Any) -> Any:
        if is_function(leaf):
            return leaf
        array = host_array(name, leaf)
        return np.array(array, order="C") if copy else array

    return jtu.tree_unflatten(structure, [one(n, leaf) for n, leaf in zip(names, leaves, strict=True)])


def _into_jax(name: str, leaf: Any, copy: bool, narrowed: list[str]) -> Any:
    """A JAX array, or a NumPy array that nobody else holds and JAX may keep."""
    if is_function(leaf):
        return leaf
    if isinstance(leaf, jax.Array):
        return jnp.array(leaf, copy=True) if copy else leaf
    array = host_array(name, leaf)
    wide = array.dtype.newbyteorder("=") if not array.dtype.isnative else array.dtype
    target = jax.dtypes.canonicalize_dtype(wide)
    if target != wide:
        is_number = isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic)
        if not copy and not is_number:
            raise TwinaxError(f"{label(name)} is {wide} and must become {target}, which needs a copy: pass copy=True")
        if not is_number:
            narrowed.append(f"{name or 'array'} ({wide} to {target})")
        return _narrow(name, array, target)
    if copy or isinstance(leaf, (np.generic, bool, int, float)):
        return np.array(array, dtype=wide, order="C")
    return _alias_in_jax(name, leaf, array)


def _narrow(name: str, array: np.ndarray, target: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):
        result = np.array(array, dtype=target, order="C")
    kept = result == array if array.dtype.kind in "iu" else np.isfinite(result) == np.isfinite(array)
    if not np.all(kept):
        value = np.asarray(array)[~np.asarray(kept)].flat[0]
        raise TwinaxError(
            f"{label(name)} holds {value}, which does not fit {target}: "
            "jax.config.update('jax_enable_x64', True) keeps 64 bits"
        )
    return result


def _alias_in_jax(name: str, leaf: Any, array: np.ndarray) -> jax.Array:
    offset = array.ctypes.data % ALIGNMENT
    if offset and array.size:
        raise TwinaxError(
            f"{label(name)} starts {offset} bytes after a multiple of {ALIGNMENT} and cannot be shared: pass copy=True"
        )
    if not _is_dense(array):
        raise TwinaxError(
            f"{label(name)} of shape {array.shape} has strides {array.strides}, which leave gaps, "
            "and cannot be shared: pass copy=True"
        )
    try:
        return jax.dlpack.from_dlpack(leaf.detach() if is_tensor(leaf) else leaf, copy=False)
    except (BufferError, ValueError, RuntimeError) as error:
        raise TwinaxError(f"{label(name)} cannot be shared ({error}): pass copy=True") from error


def _is_dense(array: np.ndarray) -> bool:
    """Whether the elements fill their memory exactly, in any order of the axes."""
    step = array.itemsize
    for stride, size in sorted((stride, size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size == 1:
            continue
        if stride != step:
            return array.size == 0
        step *= size
    return True


def _into_torch(name: str, leaf: Any, copy: bool) -> Any:
    import torch

    if is_function(leaf):
        return leaf
    if is_tensor(leaf):
        return leaf.detach().clone() if copy else leaf.detach()
    if isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic):
        return torch.tensor(leaf, device="cpu")
    array = host_array(name, leaf)
    try:
        if copy or isinstance(leaf, np.generic):
            native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
            return numpy_to_tensor(np.array(array, dtype=native, order="C"))
        if isinstance(leaf, jax.Array):
            return torch.from_dlpack(leaf)
        if not array.flags.writeable:
            raise TwinaxError(f"{label(name)} is read-only and PyTorch has no read-only tensors: pass copy=True")
        return numpy_to_tensor(array)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise TwinaxError(f"{label(name)} of dtype {array.dtype} cannot become a tensor: {error}") from error
