"""Any PyTorch module and loss in JAX: captured, proven equal, and compiled.

>>> import twinax as tx
>>> policy = tx.port.function(module, observations)  # doctest: +SKIP
>>> jax.jit(policy)(policy.params, observations)  # doctest: +SKIP
"""

from twinax.port._agent import Agent, make_agent, named_function
from twinax.port._audit import audit
from twinax.port._defaults import Default
from twinax.port._function import Function, function
from twinax.port._indices import checked_indices
from twinax.port._module import module
from twinax.port._network import network
from twinax.port._profile import Profile
from twinax.port._record import Record
from twinax.port._recorder import Recorder
from twinax.port._replay import Replay, replay
from twinax.port._step import Step
from twinax.port._table import operator_table
from twinax.port._updates import Target, Update

__all__ = [
    "Agent",
    "Default",
    "Function",
    "Profile",
    "Record",
    "Recorder",
    "Replay",
    "Step",
    "Target",
    "Update",
    "audit",
    "checked_indices",
    "function",
    "make_agent",
    "module",
    "named_function",
    "network",
    "operator_table",
    "replay",
]
