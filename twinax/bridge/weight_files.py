"""The arrays of a network by PyTorch's names, and as a safetensors file."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_array, is_function, is_module, is_tensor, numpy_to_tensor, unknown_leaf
from twinax.bridge.safetensors_bytes import encode
from twinax.errors import TwinaxError
from twinax.tree import named_leaves

T = TypeVar("T")


def state_dict(tree: Any) -> dict[str, Any]:
    """The arrays of a tree under the names that PyTorch gives them; these are the arrays themselves.

    A `torch.nn.Module`, alone or in a tree, gives its parameters and buffers. What has no arrays is refused.
    `module.load_state_dict(to_torch(state_dict(network)))` fills a `torch.nn.Module`.

    >>> list(state_dict({"layers": [{"weight": np.zeros((2, 3)), "bias": np.zeros(2)}]}))
    ['layers.0.bias', 'layers.0.weight']
    """
    weights: dict[str, Any] = {}
    for name, leaf in named_leaves(tree).items():
        arrays = _module_arrays(name, leaf) if is_module(leaf) else {name: leaf} if _holds_array(name, leaf) else {}
        for one, array in arrays.items():
            if one in weights:
                raise TwinaxError(f"two leaves of the tree are called '{one}'; rename one of them")
            weights[one] = array
    if not weights:
        kind = f"{type(tree).__module__}.{type(tree).__qualname__}".removeprefix("builtins.")
        raise TwinaxError(
            f"the {kind} has no arrays, so it has no weights; pass a network, a tree of arrays, a torch.nn.Module or "
            "its state_dict()"
        )
    return weights


def load_state_dict(tree: T, mapping: Any) -> T:
    """A tree like this one with the arrays of the mapping: same names and shapes, the tree's dtypes and framework.

    A `torch.nn.Module` is copied and the copy is filled; `module.load_state_dict` fills the module itself.

    >>> load_state_dict({"bias": np.zeros(2)}, {"bias": np.ones(2)})["bias"].tolist()
    [1.0, 1.0]
    """
    if is_module(mapping):
        mapping = state_dict(mapping)
    if not isinstance(mapping, Mapping):
        raise TwinaxError(
            f"weights are a mapping from names to arrays, not a {type(mapping).__name__}; pass state_dict(network)"
        )
    wanted = state_dict(tree)
    missing = [name for name in wanted if name not in mapping]
    extra = [name for name in mapping if name not in wanted]
    if missing or extra:
        raise TwinaxError(
            f"the weights do not fit the network: missing {missing[:5] or 'none'}, unexpected {extra[:5] or 'none'} "
            f"({len(missing)} missing, {len(extra)} unexpected)"
        )
    filled = {name: _filled(name, leaf, mapping[name]) for name, leaf in wanted.items()}
    leaves = [
        _filled_module(name, leaf, filled) if is_module(leaf) else filled.get(name, leaf)
        for name, leaf in named_leaves(tree).items()
    ]
    return jtu.tree_unflatten(jtu.tree_structure(tree), leaves)


def save_weights(path: str | Path, network: Any) -> None:
    """Write the arrays of a network to a safetensors file, as one step: a reader never sees half of it.

    The network is a tree of arrays or a `torch.nn.Module`; equal weights give equal files.

    >>> save_weights("policy.safetensors", run.networks.policy)  # doctest: +SKIP
    """
    _write(Path(path), encode_weights(network), "the weights")


def write_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str], what: str) -> None:
    """Write arrays of any framework to a safetensors file as one step; `what` it is stands in the errors."""
    _write(path, encode({name: host_array(name, leaf) for name, leaf in arrays.items()}, metadata), what)


def read_arrays(path: Path, what: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a safetensors file, and its metadata."""
    import safetensors

    try:
        with safetensors.safe_open(path, "numpy") as file:  # load() from bytes does not know bfloat16
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except OSError as error:
        raise TwinaxError(f"cannot read {what} from {path}: {error.strerror or error}") from error
    except safetensors.SafetensorError as error:
        raise TwinaxError(f"{path} is not a whole safetensors file: {error}") from error


def _write(path: Path, content: bytes, what: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise TwinaxError(f"cannot write {what} to {path}: {error.strerror or error}") from error


def encode_weights(network: Any) -> bytes:
    """The content of such a file."""
    from twinax import __version__

    arrays = {name: host_array(name, leaf) for name, leaf in state_dict(network).items()}
    metadata = {"format": "pt", "layout": "pytorch", "library": "twinax", "version": __version__}
    return encode(arrays, metadata)


def load_weights(path: str | Path, like: T) -> T:
    """A network like this one with the arrays of a safetensors file.

    >>> policy = load_weights("policy.safetensors", like=policy)  # doctest: +SKIP
    """
    return load_state_dict(like, read_arrays(Path(path), "the weights")[0])


def _holds_array(name: str, leaf: Any) -> bool:
    """Whether a leaf is one of the weights; functions, numbers and names are settings, and the rest is refused."""
    if is_array(leaf):
        return True
    if is_function(leaf) or isinstance(leaf, bool | int | float | complex | str | bytes | type):
        return False
    raise unknown_leaf(name, leaf)


def _module_arrays(name: str, module: Any) -> dict[str, Any]:
    """Parameters and buffers of a `torch.nn.Module`, below the module's own name in the tree."""
    arrays = {f"{name}.{key}" if name else key: value for key, value in module.state_dict().items()}
    for key, value in arrays.items():
        if not is_array(value):
            raise unknown_leaf(key, value)
    return arrays


def _filled_module(name: str, module: Any, filled: Mapping[str, Any]) -> Any:
    made = copy.deepcopy(module)
    prefix = f"{name}." if name else ""
    made.load_state_dict({key: filled[prefix + key] for key in module.state_dict()})
    return made


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
    own = np.array(array, dtype=leaf.dtype, order="C")
    return jax.device_put(own) if isinstance(leaf, jax.Array) else own
