"""The arrays of a network by PyTorch's names, and as a safetensors file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_array, is_tensor, numpy_to_tensor, unknown_leaf
from twinax.errors import TwinaxError
from twinax.tree import named_leaves

T = TypeVar("T")


def state_dict(tree: Any) -> dict[str, Any]:
    """The arrays of a tree under the names that PyTorch gives them; these are the arrays themselves.

    `module.load_state_dict(to_torch(state_dict(network)))` fills a `torch.nn.Module`.

    >>> list(state_dict({"layers": [{"weight": np.zeros((2, 3)), "bias": np.zeros(2)}]}))
    ['layers.0.bias', 'layers.0.weight']
    """
    return {name: leaf for name, leaf in named_leaves(tree).items() if is_array(leaf)}


def load_state_dict(tree: T, mapping: Mapping[str, Any]) -> T:
    """A tree like this one with the arrays of the mapping: same names and shapes, the tree's dtypes and framework.

    >>> load_state_dict({"bias": np.zeros(2)}, {"bias": np.ones(2)})["bias"].tolist()
    [1.0, 1.0]
    """
    leaves = named_leaves(tree)
    wanted = [name for name, leaf in leaves.items() if is_array(leaf)]
    missing = [name for name in wanted if name not in mapping]
    extra = [name for name in mapping if name not in set(wanted)]
    if missing or extra:
        raise TwinaxError(
            f"the weights do not fit the network: missing {missing[:5] or 'none'}, unexpected {extra[:5] or 'none'} "
            f"({len(missing)} missing, {len(extra)} unexpected)"
        )
    filled = [_filled(name, leaf, mapping[name]) if is_array(leaf) else leaf for name, leaf in leaves.items()]
    return jtu.tree_unflatten(jtu.tree_structure(tree), filled)


def save_weights(path: str | Path, network: Any) -> None:
    """Write the arrays of a network to a safetensors file, as one step: a reader never sees half of it.

    >>> save_weights("policy.safetensors", run.networks.policy)  # doctest: +SKIP
    """
    import safetensors.numpy

    from twinax import __version__

    path = Path(path)
    arrays = {name: _contiguous(host_array(name, leaf)) for name, leaf in state_dict(network).items()}
    metadata = {"format": "pt", "layout": "pytorch", "library": "twinax", "version": __version__}
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(safetensors.numpy.save(arrays, metadata=metadata))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise TwinaxError(f"cannot write the weights to {path}: {error.strerror or error}") from error


def load_weights(path: str | Path, like: T) -> T:
    """A network like this one with the arrays of a safetensors file.

    >>> policy = load_weights("policy.safetensors", like=policy)  # doctest: +SKIP
    """
    import safetensors
    import safetensors.numpy

    try:
        mapping = safetensors.numpy.load_file(path)  # load() from bytes does not know bfloat16
    except OSError as error:
        raise TwinaxError(f"cannot read the weights from {path}: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise TwinaxError(f"{path} is not a whole safetensors file: {error}") from error
    return load_state_dict(like, mapping)


def _contiguous(array: np.ndarray) -> np.ndarray:
    """safetensors writes the memory as it lies, so a transposed view would be stored scrambled."""
    return np.ascontiguousarray(array).reshape(array.shape)  # the reshape keeps 0-d arrays 0-d


def _filled(name: str, leaf: Any, value: Any) -> Any:
    if not is_array(value):
        raise unknown_leaf(name, value)
    array, shape = host_array(name, value), tuple(leaf.shape)
    if array.shape != shape:
        hint = "; it looks transposed" if array.shape == shape[::-1] else ""
        raise TwinaxError(f"'{name}' has shape {array.shape} but the network needs {shape}{hint}")
    if is_tensor(leaf):
        import torch

        tensor = numpy_to_tensor(np.array(array, order="C")).to(dtype=leaf.dtype, device=leaf.device)
        if isinstance(leaf, torch.nn.Parameter):
            return torch.nn.Parameter(tensor, requires_grad=leaf.requires_grad)
        return tensor.requires_grad_(leaf.requires_grad)
    copy = np.array(array, dtype=leaf.dtype, order="C")
    return jax.device_put(copy) if isinstance(leaf, jax.Array) else copy
