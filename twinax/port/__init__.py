"""Any PyTorch module and loss in JAX: captured, proven equal, and compiled.

>>> import twinax as tx
>>> policy = tx.port.function(module, observations)  # doctest: +SKIP
>>> jax.jit(policy)(policy.params, observations)  # doctest: +SKIP
"""

from twinax.port._function import Function, function
from twinax.port._indices import checked_indices

__all__ = ["Function", "checked_indices", "function"]
