"""Arrays that have a shape and take no memory: for finding out how large something is before it is made.

>>> rng = ShapeGenerator()
>>> weight = rng.uniform(-1, 1, (10**9, 10**9)).astype(np.float32)
>>> weight.shape, weight.nbytes
((1000000000, 1000000000), 4000000000000000000)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
VALUE = 0.5
"""What every number is that a `ShapeGenerator` draws: inside the range of logarithms, roots and tails."""


class Blank(np.ndarray):
    """An array whose entries are all one number in memory. What is computed from it is blank as well."""

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Blank:
        return blank(self.shape, dtype)

    def copy(self, order: Any = "C") -> Blank:
        return blank(self.shape, self.dtype)

    def flatten(self, order: Any = "C") -> Blank:
        return blank((self.size,), self.dtype)

    ravel = flatten

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None:
            return out[0] if len(out) == 1 else out
        if method == "reduce":
            return _reduced(inputs[0], options.get("axis", 0), options.get("keepdims", False))
        if method != "__call__" or ufunc.signature is not None:
            return _by_jax(ufunc, inputs, options)
        shape = np.broadcast_shapes(*(getattr(x, "shape", ()) for x in inputs))
        with np.errstate(all="ignore"):
            values = ufunc(*(_entry(x) for x in inputs))
        return tuple(_like(shape, x) for x in values) if ufunc.nout > 1 else _like(shape, values)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: Any) -> Any:
        if function in ASKS:
            return super().__array_function__(function, types, args, options)
        if function in LIKE:
            return blank(args[0].shape, options.get("dtype") or args[0].dtype)
        if function in BY_HAND:
            return BY_HAND[function](*args, **options)
        return _by_jax(function, args, options)


def blank(shape: Sequence[int], dtype: Any = np.float32, value: Any = VALUE) -> Blank:
    """An array of that shape that takes no memory."""
    one = np.full((), value).astype(dtype)
    shape = tuple(int(n) for n in shape)
    return np.lib.stride_tricks.as_strided(one, shape, (0,) * len(shape)).view(Blank)


def _like(shape: Sequence[int], entry: Any) -> Blank:
    """A condition stays what it is: whoever draws again while a number is too large has to come to an end."""
    return blank(shape, entry.dtype, entry if entry.dtype == bool else VALUE)


def _entry(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    return np.asarray(x).flat[0] if x.size else x.dtype.type()


def _reduced(x: Any, axis: Any, keepdims: bool) -> Blank:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    gone = {a % x.ndim for a in axes}
    shape = [1 if a in gone else n for a, n in enumerate(x.shape) if keepdims or a not in gone]
    return _like(shape, _entry(x))


def _stack(arrays: Sequence[Any], axis: int = 0, **_: Any) -> Blank:
    first = arrays[0]
    shape = list(first.shape)
    shape.insert(axis if axis >= 0 else axis + first.ndim + 1, len(arrays))
    return blank(shape, np.result_type(*(x.dtype for x in arrays)))


def _concatenate(arrays: Sequence[Any], axis: int = 0, **_: Any) -> Blank:
    shape = list(arrays[0].shape)
    shape[axis] = sum(x.shape[axis] for x in arrays)
    return blank(shape, np.result_type(*(x.dtype for x in arrays)))


def _qr(a: Any, mode: str = "reduced") -> tuple[Blank, Blank]:
    rows, columns = a.shape[-2:]
    inner = min(rows, columns)
    return blank((*a.shape[:-2], rows, inner), a.dtype), blank((*a.shape[:-2], inner, columns), a.dtype)


def _diagonal(a: Any, k: int = 0) -> Blank:
    return blank((min(a.shape),) if a.ndim == 2 else (a.size, a.size), a.dtype)


ASKS = frozenset({np.shape, np.ndim, np.size, np.result_type})
"""Functions that look at shapes and dtypes alone."""
LIKE = frozenset({np.copy, np.zeros_like, np.ones_like, np.empty_like})
BY_HAND: dict[Callable[..., Any], Callable[..., Any]] = {
    np.stack: _stack,
    np.concatenate: _concatenate,
    np.linalg.qr: _qr,
    np.diag: _diagonal,
}
"""Functions that initial weights are often made with; tracing others costs milliseconds."""


def _by_jax(function: Callable[..., Any], args: Any, options: Any) -> Any:
    """Shapes of what JAX's function of the same name would give."""
    import jax
    import jax.numpy as jnp

    home = jnp.linalg if function.__module__ == "numpy.linalg" else jnp
    same = getattr(home, function.__name__)
    leaves, structure = jax.tree.flatten((args, options))
    arrays = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)}
    abstract = {i: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for i, leaf in arrays.items()}

    def call(given: dict[int, Any]) -> Any:
        called, named = jax.tree.unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
        return same(*called, **named)

    return jax.tree.map(lambda x: blank(x.shape, x.dtype), jax.eval_shape(call, abstract))


class ShapeGenerator(np.random.Generator):
    """A generator whose arrays are blank. As a seed, `np.random.default_rng` takes it as it is."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))
        self.drawn = 0.0
        """Numbers that it was asked for."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """As the seed in a state it is 0; `int()` refuses it, since whoever needs a number needs numbers."""
        return np.zeros((), dtype or np.uint32)

    def _blank(self, size: Any, dtype: Any) -> Any:
        shape = tuple(size) if isinstance(size, Sequence | np.ndarray) else (size,)
        self.drawn += math.prod(float(n) for n in shape)
        return blank(shape, dtype)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return super().random(dtype=dtype) if size is None else self._blank(size, dtype)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return super().standard_normal(dtype=dtype) if size is None else self._blank(size, dtype)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        return super().uniform(low, high) if size is None else self._blank(size, np.float64)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return super().normal(loc, scale) if size is None else self._blank(size, np.float64)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        return super().integers(low, high, None, dtype, endpoint) if size is None else self._blank(size, dtype)


def shapes_of(make: Callable[[np.random.Generator], T]) -> T:
    """What is made with a generator, for those who only ask for its shapes: blank, unless it cannot be."""
    try:
        return make(ShapeGenerator())
    except Exception:  # a stranger's network may do anything with its numbers
        return make(np.random.default_rng(0))
