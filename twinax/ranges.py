"""What options may be: a wrong one is refused in a sentence that names it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, UnknownName

LARGEST = 2**31 - 1
"""Counts are compared with int32 arrays."""


def check_counts(record: Any, labels: Iterable[str], least: int | None = 1) -> None:
    """Refuse fields that are no whole numbers of 32 bits, or below `least`; None leaves the least to who calls.

    >>> from types import SimpleNamespace
    >>> check_counts(SimpleNamespace(turns=0), ["turns"])
    Traceback (most recent call last):
    twinax.errors.TwinaxError: turns is 0; it must be at least 1
    """
    for label in labels:
        value = getattr(record, label)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TwinaxError(f"{label} is {value!r}; it must be a whole number")
        if least is not None and value < least:
            raise TwinaxError(f"{label} is {value}; it must be at least {least}")
        if value > LARGEST:
            raise TwinaxError(f"{label} is {value}; it must be at most {LARGEST}")


RANGES: dict[str, Callable[[Any], bool]] = {
    "at least 0": lambda x: x >= 0,
    "at least 1": lambda x: x >= 1,
    "above 0": lambda x: x > 0,
    "above 0 and at most 1": lambda x: 0 < x <= 1,
    "between 0 and 1": lambda x: 0 <= x <= 1,
    "between 0 and 1, neither of them": lambda x: 0 < x < 1,
    "at least 0 and below 1": lambda x: 0 <= x < 1,
    "finite and above 0": lambda x: 0 < x < math.inf,
    "finite and not negative": lambda x: 0 <= x < math.inf,
}
"""Where a number may be, in the words of the sentence that refuses it elsewhere."""


def check_range(record: Any, words: str, *labels: str) -> None:
    """Refuse fields that are no numbers, or not where these words say.

    >>> from types import SimpleNamespace
    >>> check_range(SimpleNamespace(beta=1.5), "at least 0 and below 1", "beta")
    Traceback (most recent call last):
    twinax.errors.TwinaxError: beta is 1.5; it must be at least 0 and below 1
    """
    for label in labels:
        value = getattr(record, label)
        if not is_number(value):
            raise TwinaxError(f"{label} is {value!r}; it must be {words}")
        if not RANGES[words](value):
            raise TwinaxError(f"{label} is {value}; it must be {words}")


def check_known(record: Any, **known: Iterable[str]) -> None:
    """Refuse fields that are not one of the names that are known for them.

    >>> from types import SimpleNamespace
    >>> check_known(SimpleNamespace(std="fre"), std=("free", "state"))
    Traceback (most recent call last):
    twinax.errors.UnknownName: unknown std 'fre'; known: free, state. Did you mean 'free'?
    """
    for label, names in known.items():
        if getattr(record, label) not in names:
            raise UnknownName(label, getattr(record, label), names)


def check_finite(record: Any, labels: Iterable[str]) -> None:
    """Refuse fields that are no numbers of single precision."""
    for label in labels:
        value = getattr(record, label)
        if not (is_number(value) and abs(value) <= float(np.finfo(np.float32).max)):
            raise TwinaxError(f"{label} is {value!r}; it must be finite, also in single precision")


def is_number(value: Any) -> bool:
    """Whether it can be compared with a number; truth values are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
