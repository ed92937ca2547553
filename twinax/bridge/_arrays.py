"""One array across the frameworks, bfloat16 included; the names of a tree's leaves."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import jax.tree_util as jtu
import ml_dtypes
import numpy as np

from twinax.errors import TwinaxError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def flatten(tree: Any) -> tuple[list[str], list[Any], Any]:
    """Names, leaves and structure; the names are those of `twinax.tree.named_leaves`."""
    paths, structure = jtu.tree_flatten_with_path(tree)
    names = [jtu.keystr(path, simple=True, separator=".") for path, _ in paths]
    return names, [leaf for _, leaf in paths], structure


def is_tensor(leaf: Any) -> bool:
    """Whether this is a PyTorch tensor; does not import PyTorch, because without it nothing can be one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def is_module(leaf: Any) -> bool:
    """Whether this is a `torch.nn.Module`; does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.nn.Module)


def is_function(leaf: Any) -> bool:
    """Whether this is code, such as an activation function kept in a module: it belongs to both frameworks."""
    return callable(leaf) and hasattr(leaf, "__name__") and not isinstance(leaf, type)


def is_array(leaf: Any) -> bool:
    """Whether this is an array of one of the three frameworks."""
    return is_tensor(leaf) or isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def label(name: str) -> str:
    """How a leaf is called in a message; a bare array has no path."""
    return f"the leaf '{name}'" if name else "the array"


def tensor_to_numpy(tensor: Any) -> np.ndarray:
    """The numbers of a tensor without its graph; shares memory when the tensor is on the CPU."""
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    return tensor.numpy()


def numpy_to_tensor(array: np.ndarray) -> Any:
    """A CPU tensor that shares memory with the array."""
    import torch

    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def host_array(name: str, leaf: Any) -> np.ndarray:
    """Any known leaf as a NumPy array, sharing memory where possible; others are refused by name."""
    if is_tensor(leaf):
        import torch

        if leaf.layout != torch.strided or leaf.device.type == "meta":
            raise TwinaxError(
                f"{label(name)} is a {leaf.layout} tensor on device {leaf.device}; "
                "only dense tensors with data can be converted"
            )
        return tensor_to_numpy(leaf)
    if isinstance(leaf, jax.core.Tracer):
        raise TwinaxError(f"{label(name)} is being traced by JAX; convert it outside the compiled function")
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TwinaxError(f"{label(name)} is a JAX random key; pass jax.random.key_data(key) instead")
    known = isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float))
    if not known or isinstance(leaf, np.ma.MaskedArray):
        raise unknown_leaf(name, leaf)
    array = np.asarray(leaf)
    if array.dtype.names is not None or array.dtype.kind in "OSUMm":
        raise TwinaxError(f"{label(name)} has dtype {array.dtype}; only numbers and booleans can be converted")
    return array


def unknown_leaf(name: str, leaf: Any) -> TwinaxError:
    """The error for something that is neither an array, a number nor a function."""
    kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
    return TwinaxError(
        f"{label(name)} is a {kind}, which is neither an array nor a number; leave it out, or make its class "
        "a pytree (jax.tree_util.register_dataclass); for a torch.nn.Module pass its state_dict()"
    )
