"""Dtypes of PyTorch in JAX, and PyTorch's rule of promotion."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.errors import TwinaxError

NARROW = {"int64": "int32", "float64": "float32", "complex128": "complex64", "uint64": "uint32"}
WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}
_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
KNOWN = frozenset(
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128".split()
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
    groups: list[list[Any]] = [[], [], []]
    for x in operands:
        groups[2 if isinstance(x, (bool, int, float, complex)) else 1 if x.ndim == 0 else 0].append(x)
    found, level = None, -1
    for group in groups:
        highest = max((category(x) for x in group), default=-1)
        if highest > level:
            types = [_own(x, wide) for x in group]
            joined = types[0]
            for other in types[1:]:
                joined = _join(joined, other)
            found = joined if found is None else _raised(found, joined, highest)
            level = highest
    assert found is not None
    return found


def _own(x: Any, wide: bool) -> np.dtype:
    if isinstance(x, (bool, int, float, complex)):
        return to_jax_dtype(("bool", "int64", "float32", "complex64")[category(x)], wide)
    return jnp.dtype(x.dtype)


def _join(a: np.dtype, b: np.dtype) -> np.dtype:
    return (
        jnp.dtype(jnp.promote_types(a, b))
        if _CATEGORY[a.kind] == _CATEGORY[b.kind]
        else max(a, b, key=lambda d: _CATEGORY[d.kind])
    )


def _raised(lower: np.dtype, higher: np.dtype, level: int) -> np.dtype:
    """A dtype of higher category comes from a group of less weight; complex numbers keep the width of the floats."""
    if level == 3 and lower == np.float64:
        return to_jax_dtype("complex128")
    return higher
