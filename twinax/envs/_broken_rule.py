"""The error for a rule of an environment that does not hold."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from twinax.envs.state_rows import show
from twinax.errors import TwinaxError


def refuse(bad: Any, states: Any, rule: str, action: np.ndarray | None = None) -> None:
    """Raise with the first state, and its action, for which a rule is broken."""
    if not bad.any():
        return
    first = int(np.flatnonzero(bad)[0])
    fail(rule, states, first, None if action is None else int(action[first]))


def fail(rule: str, states: Any, row: int, action: int | None = None) -> NoReturn:
    """Raise with one state and action."""
    where = f"state {show(states, row)}" if action is None else f"state {show(states, row)}, action {action}"
    raise TwinaxError(f"{rule} ({where})")
