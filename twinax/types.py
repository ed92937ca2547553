"""Array annotations: any framework's array, with named dimensions.

`Float[Array, "time batch"]` is checked by jaxtyping and beartype in the test run, for PyTorch, JAX and NumPy alike;
`Int` is any integer dtype, unsigned ones as well. `--jaxtyping-packages` in pyproject.toml names the packages that
are checked. The check wraps a function inside a function anew at each call, which takes a millisecond: those that
run at every step are marked `no_type_check`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from jaxtyping import Bool, Float, Num, Shaped
from jaxtyping import Integer as Int

Array: TypeAlias = Any

__all__ = ["Array", "Bool", "Float", "Int", "Num", "Shaped"]
