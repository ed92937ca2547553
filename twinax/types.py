"""Array annotations: any framework's array, with named dimensions.

`Float[Array, "time batch"]` is what jaxtyping and beartype can check, for PyTorch, JAX and NumPy alike, and do in
tests/unit/typed_runs.py; `Int` is any integer dtype, unsigned ones as well.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from jaxtyping import Bool, Float, Num, Shaped
from jaxtyping import Integer as Int

Array: TypeAlias = Any

__all__ = ["Array", "Bool", "Float", "Int", "Num", "Shaped"]
