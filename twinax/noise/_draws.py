"""The specification of a random array."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax.errors import TwinaxError, UnknownName

KINDS = ("uniform", "normal", "integers")


@dataclass(frozen=True)
class Draw:
    """One random array: its shape and distribution.

    >>> Draw((77, 16, 5))
    Draw(shape=(77, 16, 5), kind='uniform', high=None, divided=None)
    """

    shape: tuple[int, ...]
    kind: str = "uniform"
    """uniform on the open interval (0, 1), normal (0, 1), or integers in [0, high)."""
    high: int | None = None
    divided: int | None = None
    """The axis that several devices share out among them, equally; None for an array that all of them need."""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UnknownName("kind of draw", self.kind, KINDS)
        if (self.kind == "integers") != (self.high is not None):
            raise TwinaxError(f"a draw of kind '{self.kind}' has high={self.high}; only integers take a bound")
        if self.high is not None and self.high < 1:
            raise TwinaxError(f"a draw of integers has high={self.high}; it must be at least 1")
        if self.divided is not None and not 0 <= self.divided < len(self.shape):
            raise TwinaxError(f"a draw of shape {self.shape} is divided along axis {self.divided}, which it lacks")
        if any(n < 0 for n in self.shape):
            raise TwinaxError(f"a draw has shape {self.shape}; no size may be negative")


def below(draws: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The draws whose names start with a prefix and a slash, named by what follows it.

    >>> below({"turn/move": 1, "reset/place": 2}, "turn")
    {'move': 1}
    """
    return {key.removeprefix(f"{prefix}/"): value for key, value in draws.items() if key.startswith(f"{prefix}/")}
