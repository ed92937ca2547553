"""Trees of a person's inputs: tensors of them, and the signature by which captures are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.port._containers import open_up, unknown

Signature = tuple[Any, ...]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure, as PyTorch sees them; containers that it does not know are opened."""
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten(tree)
    if odd := unknown(leaves):
        open_up(odd[0])
        return flatten(tree)
    return leaves, structure


def unflatten(leaves: Any, structure: Any) -> Any:
    """The tree of leaves."""
    from torch.utils import _pytree

    return _pytree.tree_unflatten(list(leaves), structure)


def aligned(tree: Any, like: Any) -> Any:
    """With dictionaries in the order of another tree's: JAX sorts their keys, and PyTorch minds."""
    if type(tree) is dict and isinstance(like, dict) and set(tree) == set(like):
        return {key: aligned(tree[key], like[key]) for key in like}
    if type(tree) in (list, tuple) and type(like) is type(tree) and len(tree) == len(like):
        return type(tree)(aligned(one, other) for one, other in zip(tree, like, strict=True))
    return tree


def as_tensors(tree: Any) -> Any:
    """A tree with tensors in place of arrays."""
    import torch

    from twinax.bridge import to_torch

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.clone() if leaf.is_inference() else leaf.detach()
        return (
            to_torch(leaf)
            if isinstance(leaf, (np.ndarray, np.generic)) or type(leaf).__module__.startswith("jax")
            else leaf
        )

    leaves, structure = flatten(tree)
    return unflatten([one(leaf) for leaf in leaves], structure)


def signature_of(tree: Any, rows: bool = True) -> Signature:
    """Structure, shapes, kinds of dtypes, and everything that is no array as it is; perhaps without how many rows there
    are."""
    leaves, structure = flatten(tree)
    first = 0 if rows else 1
    return (
        structure,
        rows,
        *((tuple(leaf.shape)[first:], kind(leaf)) if hasattr(leaf, "shape") else (type(leaf), leaf) for leaf in leaves),
    )


def has_rows(tree: Any) -> bool:
    """Whether all arrays have equally many rows, and more than one: code often takes a single row apart."""
    sizes = {tuple(leaf.shape)[:1] for leaf in flatten(tree)[0] if hasattr(leaf, "shape")}
    return len(sizes) == 1 and sizes != {()} and sizes.pop()[0] > 1


def more_rows(example: Any, least: int = 4) -> Any:
    """An example with several rows: of one row a capture would take that there is only ever one."""
    leaves, structure = flatten(example)
    few = [leaf for leaf in leaves if hasattr(leaf, "shape") and leaf.ndim and leaf.shape[0] == 1]
    made = [leaf.repeat(least, *[1] * (leaf.ndim - 1)) if few and hasattr(leaf, "shape") else leaf for leaf in leaves]
    return unflatten(made, structure)


def any_rows(example: Any) -> Any:
    """What tells PyTorch that the first axis of every array may have any size."""
    import torch

    leaves, structure = flatten(example)
    made = [{0: torch.export.Dim.AUTO} if hasattr(leaf, "shape") else None for leaf in leaves]
    return (unflatten(made, structure),)


def kind(array: Any) -> str:
    """The dtype without its width, which JAX may have narrowed: float, int, uint8, bool."""
    name = str(array.dtype).removeprefix("torch.")
    return {"int64": "int", "int32": "int", "float64": "float", "float32": "float"}.get(name, name)


def input_names(example: tuple[Any, ...], function: Any, skipped: int) -> tuple[str, ...]:
    """What a person calls each leaf of the inputs: the function's argument, and the way into it."""
    import inspect

    from torch.utils import _pytree

    try:
        arguments = list(inspect.signature(function).parameters)[skipped:]
    except (TypeError, ValueError):
        arguments = []
    names = []
    for path, _ in _pytree.tree_flatten_with_path(example)[0]:
        place = int(getattr(path[0], "idx"))  # noqa: B009  (keys of other kinds have none)
        first = arguments[place] if place < len(arguments) else f"input {place}"
        names.append(first + _pytree.keystr(path[1:]))
    return tuple(names)


def leaf_names(tree: Any) -> tuple[str, ...]:
    """The way to each leaf, joined by dots as in `state_dict`; a tree that is one array is called batch."""
    from torch.utils import _pytree

    found = []
    for path, _ in _pytree.tree_flatten_with_path(tree)[0]:
        parts = (getattr(key, one) for key in path for one in ("key", "idx", "name") if hasattr(key, one))
        found.append(".".join(map(str, parts)) or "batch")
    return tuple(found)
