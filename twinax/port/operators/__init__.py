"""PyTorch's core operators in JAX, by kind; importing this fills the table."""

from twinax.port.operators import (
    backward,
    creation,
    indexing,
    linear,
    norms,
    pointwise,
    randomness,
    recurrent,
    reduction,
    shape,
    sorting,
    windows,
)

__all__ = [
    "backward",
    "creation",
    "indexing",
    "linear",
    "norms",
    "pointwise",
    "randomness",
    "recurrent",
    "reduction",
    "shape",
    "sorting",
    "windows",
]
