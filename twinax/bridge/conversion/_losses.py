"""What a conversion loses: the written arrays are read again and compared with those that were given, bit by bit."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from twinax.bridge.conversion._layers import Found
from twinax.bridge.conversion._layouts import Arrays, summed
from twinax.errors import TwinaxError


@dataclass(frozen=True)
class Loss:
    """A sentence about it, and how far the outputs may differ for it."""

    text: str
    tolerance: float


def losses(source: Found, given: Arrays, written: Found, title: str) -> list[Loss]:
    """Of a layer: the given arrays in PyTorch's layout against those of the layer that was written."""
    found = [Loss(text, _rounding(next(iter(given.values())).dtype)) for text in source.losses]
    read = written.ours
    if _equal(given, read):
        return found
    narrow = {name: array.astype(read[name].dtype) for name, array in given.items()}
    if not _equal(narrow, given):
        wide, small = next((array.dtype, read[name].dtype) for name, array in given.items() if name in read)
        way = "; jax.config.update('jax_enable_x64', True) keeps 64 bits" if wide == np.float64 else ""
        found.append(Loss(f"{source} has numbers in {wide}, which {small} in {title} rounds{way}", _rounding(small)))
    if _equal(narrow, read):
        return found
    joined = {name: array.astype(read[name].dtype) for name, array in summed(given, written.layout).items()}
    if _equal(joined, read):
        text = f"{source} has two biases, of which {title} keeps the sum: the same function, but not the same arrays"
        return [*found, Loss(text, _rounding(read["bias_ih"].dtype))]
    others = {name: array for name, array in joined.items() if name != "bias_hh"}
    if not written.layout.joins or not _equal(others, read):
        raise TwinaxError(
            f"{written} in {title} has other numbers than {source} after writing; it may share an array with another "
            "layer, so give each its own"
        )
    text = f"{source} has a bias inside its reset gate (bias_hh, last third), for which {title} has no place"
    return [*found, Loss(text, float("inf"))]


def _rounding(dtype: np.dtype) -> float:
    """What numbers that were rounded once may change of the outputs."""
    return 100 * float(ml_dtypes.finfo(dtype).eps)


def _equal(a: Arrays, b: Arrays) -> bool:
    return all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)
