"""An array that can stand in a frozen dataclass: it is equal, hashed and written down by its contents."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax.errors import TwinaxError

KINDS = ("bool", "int64", "float64", "str")
"""What its entries may be."""


@dataclass(frozen=True, repr=False)
class FrozenArray:
    """Numbers, or texts, in a form that never changes; its fields are plain values, so a run can write it down.

    >>> one, other = FrozenArray.of([[1.0, 2.0]]), FrozenArray.of(np.array([[1.0, 2.0]]))
    >>> one == other, hash(one) == hash(other), one.values.tolist()
    (True, True, [[1.0, 2.0]])
    """

    kind: str
    shape: tuple[int, ...]
    contents: str
    """The bytes of the entries, little-endian, row after row, as base64; texts with line breaks between them."""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise TwinaxError(f"an array of {self.kind} cannot be kept; it must be one of {', '.join(KINDS)}")
        if self.values.shape != tuple(self.shape):
            raise TwinaxError(f"an array of shape {self.values.shape} was written down as {tuple(self.shape)}")

    @classmethod
    def of(cls, array: Any) -> FrozenArray:
        """Of anything that NumPy takes for an array: truth values, whole numbers, other numbers, or texts."""
        given = np.asarray(array)
        kind = {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "U": "str"}.get(given.dtype.kind)
        if kind is None:
            raise TwinaxError(f"an array of {given.dtype} cannot be kept; it must hold numbers or texts")
        if kind == "str":
            content = "\n".join(given.reshape(-1).tolist()).encode()
        else:
            content = np.ascontiguousarray(given, np.dtype(kind).newbyteorder("<")).tobytes()
        return cls(kind, tuple(given.shape), base64.b64encode(content).decode())

    @functools.cached_property
    def values(self) -> np.ndarray:
        """The array, which cannot be written to."""
        content = base64.b64decode(self.contents)
        if self.kind == "str":
            values = np.array(content.decode().split("\n")).reshape(self.shape)
        else:
            values = np.frombuffer(content, np.dtype(self.kind).newbyteorder("<")).astype(self.kind)
            if values.size != np.prod(self.shape, dtype=int):
                raise TwinaxError(f"an array of {values.size} entries was written down as {tuple(self.shape)}")
            values = values.reshape(self.shape)
        values.flags.writeable = False
        return values

    def __repr__(self) -> str:
        digest = hashlib.sha256(f"{self.kind}{self.shape}{self.contents}".encode()).hexdigest()[:8]
        return f"FrozenArray({' x '.join(map(str, self.shape))} of {self.kind}, {digest})"
