"""Rules that other people wrote for one world in JAX, for many worlds and in the dtype of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.errors import TwinaxError


def mapped(function: Callable, *arguments: Any, single: bool = False) -> Any:
    """A function of one world for many: in JAX as part of the program; NumPy arrays come back as NumPy arrays.

    With `single` it is traced as in a program of 32 bits, also where the run has 64.
    """
    import jax

    with jax.enable_x64(False) if single else contextlib.nullcontext():
        if ops.framework(jtu.tree_leaves(arguments)[0]) == "jax":
            return jax.vmap(function)(*arguments)
        return jtu.tree_map(np.asarray, jax.jit(jax.vmap(function))(*arguments))


def keys(seeds: Any) -> Any:
    """A key for each seed, as plain integers, so that a state that holds it can be saved."""
    import jax

    return mapped(jax.random.PRNGKey, seeds)


def settled(state: Any, like: Any) -> Any:
    """Floats in the dtype of `like`; none of a dtype that may still change."""
    return jtu.tree_map(lambda x: x.astype(like.dtype if x.dtype.kind == "f" else x.dtype), state)


def kept(new: Any, old: Any, label: str) -> Any:
    """A state after a step, of the same kind as before it: widths are adapted, all else is refused."""
    if sentence := drift(old, new, "before a step", "after it"):
        raise TwinaxError(f"{label}: {sentence}")
    return jtu.tree_map(lambda x, like: x.astype(like.dtype), new, old)


def drift(old: Any, new: Any, first: str, then: str) -> str:
    """What two states differ in, as part of a sentence; empty when a loop can carry them."""
    before, after = tree.named_leaves(old), tree.named_leaves(new)
    if added := [name for name in after if name not in before]:
        return (
            f"its state has {_some(added)} only {then}, and a loop's state keeps its entries: give them a value "
            "from the beginning"
        )
    if dropped := [name for name in before if name not in after]:
        return (
            f"its state has {_some(dropped)} only {first}, and a loop's state keeps its entries: hand them on "
            "(state.replace(...), {**state.info, ...})"
        )
    for name, x in before.items():
        y = after[name]
        if x.shape != y.shape or x.dtype.kind != y.dtype.kind:
            return (
                f"{name} is {_kind(x)} {first} and {_kind(y)} {then}, and a loop's state keeps shapes and dtypes: "
                "cast it with .astype, or begin with the other"
            )
    return ""


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _kind(x: Any) -> str:
    return f"{x.dtype.name}{list(x.shape) if x.shape else ''}"
