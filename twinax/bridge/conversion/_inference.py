"""What the libraries of JAX share when a converted module is run: precision, and channels before or after places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_array
from twinax.bridge.conversion._layers import IMAGES, Opened


def cast(tree: Any, dtype: str) -> Any:
    """The same tree, its floating numbers as JAX arrays of this precision."""

    def one(leaf: Any) -> Any:
        if not is_array(leaf) or isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        array = host_array("", leaf)
        return jnp.asarray(array, dtype) if jnp.issubdtype(array.dtype, jnp.floating) else jnp.asarray(array)

    return jtu.tree_map(one, tree)


def places(opened: Opened, inputs: tuple | None) -> int:
    """How many axes of places the images have that a module reads or gives, 0 if it has none."""
    if windows := [IMAGES[layer.kind] for layer in opened.layers if layer.kind in IMAGES]:
        return windows[0]
    first = opened.chain[0] if opened.chain and inputs else None
    return np.ndim(inputs[0]) - 2 if getattr(first, "kind", "") in ("batch_norm", "group_norm") else 0  # type: ignore


def last(x: Any, axes: int) -> Any:
    """An image of PyTorch, (rows, channels, *places), with the channels last; other arrays stay."""
    return np.moveaxis(x, 1, -1) if axes and np.ndim(x) == axes + 2 else x


def first(x: Any, axes: int) -> Any:
    """The way back."""
    return np.moveaxis(x, -1, 1) if axes and np.ndim(x) == axes + 2 else x


def same_numbers(array: np.ndarray, like: Any) -> Any:
    """A JAX array of another's dtype; of the nearest one if JAX's 64-bit mode is off."""
    return jnp.asarray(array, jax.dtypes.canonicalize_dtype(like.dtype))
