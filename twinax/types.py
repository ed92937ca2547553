"""Array annotations: any framework's array, with named dimensions.

`Float[Array, "time batch"]` is checked by jaxtyping and beartype in the test run, for PyTorch, JAX and
NumPy alike.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from jaxtyping import Bool, Float, Int, Num, Shaped

Array: TypeAlias = Any

__all__ = ["Array", "Bool", "Float", "Int", "Num", "Shaped"]
