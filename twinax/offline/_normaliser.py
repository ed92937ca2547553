"""Normalised observations: statistics that are saved with a checkpoint and shared between datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array, Float

NORMALISERS = ("none", "normal", "bounded")


@tree.record
class Normaliser:
    """x becomes (x - shift) * scale. It is a tree of two float64 arrays, so a checkpoint can hold it.

    normal: shift is the mean, scale is 1 / sqrt(variance + 1e-8). bounded: the smallest value becomes -1, the largest
    1. An entry that never changes becomes 0, and a different value of it elsewhere is not blown up.
    """

    shift: Float[Array, "*width"]
    scale: Float[Array, "*width"]
    kind: str = tree.static(default="normal")

    @classmethod
    def none(cls) -> Normaliser:
        """Leaves everything as it is."""
        return cls(np.zeros(()), np.ones(()), "none")

    @classmethod
    def fit(cls, chunks: Iterable[np.ndarray], kind: str, reference: np.ndarray) -> Normaliser:
        """Statistics in float64 of chunks of rows like those of a reference array."""
        if kind not in NORMALISERS:
            raise UnknownName("kind of normalisation", kind, NORMALISERS)
        if kind == "none":
            return cls.none()
        if reference.dtype == np.uint8:
            raise TwinaxError("observations are uint8 images, which are not normalised; use normalisation 'none'")
        shape = reference.shape[1:]
        count, total, squares = 0, np.zeros(shape), np.zeros(shape)
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        for chunk in chunks:
            if not len(chunk):
                continue
            x = chunk.astype(np.float64)
            low, high = np.minimum(low, x.min(0)), np.maximum(high, x.max(0))
            # Two groups are joined by the formula of Chan et al. (1979): no large sums of squares are subtracted.
            mean = x.mean(0)
            squares = squares + ((x - mean) ** 2).sum(0)
            if count:
                squares = squares + (mean - total / count) ** 2 * (count * len(x) / (count + len(x)))
            total, count = total + x.sum(0), count + len(x)
        constant = high == low
        if kind == "normal":
            shift, spread = total / count, np.sqrt(squares / count + 1e-8)
        else:
            shift, spread = (low + high) / 2, (high - low) / 2
        shift, scale = np.where(constant, low, shift), np.where(constant, 1.0, 1 / np.where(constant, 1, spread))
        for array in (shift, scale):
            array.flags.writeable = False  # PyTorch converts it once
        return cls(shift, scale, kind)

    def __call__(self, x: Any) -> Any:
        """Normalised observations, in their own framework and dtype."""
        if self.kind == "none":
            return x
        shift, scale = ops.like((self.shift, self.scale), x)
        return (x - ops.cast(shift, x)) * ops.cast(scale, x)

    def undo(self, x: Any) -> Any:
        """The observations that were normalised."""
        if self.kind == "none":
            return x
        shift, scale = ops.like((self.shift, self.scale), x)
        return x / ops.cast(scale, x) + ops.cast(shift, x)

    def batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch with normalised observations and goals: for data too large to be normalised beforehand."""
        return {
            name: self(x) if name.endswith(("observations", "goals", "targets")) else x for name, x in batch.items()
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """As named arrays, for a file."""
        kind = np.asarray(NORMALISERS.index(self.kind), np.int32)
        return {"shift": np.asarray(self.shift), "scale": np.asarray(self.scale), "kind": kind}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Normaliser:
        """What `arrays` gave."""
        for name in ("shift", "scale", "kind"):
            if name not in arrays:
                raise TwinaxError(f"the statistics of a normalisation have no '{name}'")
        return cls(np.asarray(arrays["shift"]), np.asarray(arrays["scale"]), NORMALISERS[int(arrays["kind"])])
