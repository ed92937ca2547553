"""Dtypes of PyTorch in JAX, and PyTorch's rule of promotion."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.errors import TwinaxError

NARROW = {"int64": "int32", "float64": "float32", "complex128": "complex64", "uint64": "uint32"}
WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}
_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
KNOWN = frozenset(
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 "
    "float16 bfloat16 float32 float64 complex64 complex128".split()
)


def to_jax_dtype(name: str, wide: bool = False) -> np.dtype:
    """The dtype that stands for PyTorch's: narrower while JAX has 64 bits off; all floats are doubles when `wide`.

    >>> to_jax_dtype("int64")
    dtype('int32')
    """
    if name not in KNOWN:
        raise TwinaxError(f"JAX has no dtype for torch.{name}")
    if wide:
        name = WIDE.get(name, name)
    if not jax.config.jax_enable_x64:
        name = NARROW.get(name, name)
    return jnp.dtype(name)


def category(x: Any) -> int:
    """0 for booleans, 1 for integers, 2 for floats, 3 for complex numbers; of arrays and of Python's numbers."""
    if isinstance(x, bool):
        return 0
    if isinstance(x, int):
        return 1
    if isinstance(x, float):
        return 2
    if isinstance(x, complex):
        return 3
    return _CATEGORY[x.dtype.kind]


def result_type(*operands: Any, wide: bool = False) -> np.dtype:
    """The dtype in which PyTorch computes with these arrays and numbers.

    Arrays with axes decide; those without, and then Python's numbers, only count if they are of a higher category.
    """
    groups: list[list[np.dtype]] = [[], [], []]
    for x in operands:
        if isinstance(x, (bool, int, float, complex)):
            groups[2].append(to_jax_dtype(("bool", "int64", "float32", "complex64")[category(x)], wide))
        else:
            groups[0 if x.ndim else 1].append(jnp.dtype(x.dtype))
    with_axes, without, numbers = ([functools.reduce(jnp.promote_types, group)] if group else [] for group in groups)
    found = functools.reduce(_raised, reversed(with_axes + without + numbers))
    return jnp.dtype(found)


def _raised(lower: np.dtype, higher: np.dtype) -> np.dtype:
    """What becomes of the dtype of a group with more weight next to one with less."""
    heavy, light = _CATEGORY[higher.kind], _CATEGORY[lower.kind]
    if heavy == 2 and light == 3:  # complex numbers as wide as the floats
        return jnp.promote_types(higher, np.complex64)
    return jnp.promote_types(higher, lower) if light > heavy else higher
