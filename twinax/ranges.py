"""What the numbers of a world and of its agents may be: a wrong one is refused in a sentence that names it."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from twinax.errors import TwinaxError

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


def check_shares(record: Any, labels: Iterable[str]) -> None:
    """Refuse fields that are no numbers between 0 and 1."""
    for label in labels:
        if not (is_number(value := getattr(record, label)) and 0 <= value <= 1):
            raise TwinaxError(f"{label} is {value!r}; it must be between 0 and 1")


def check_finite(record: Any, labels: Iterable[str]) -> None:
    """Refuse fields that are no numbers of single precision."""
    for label in labels:
        value = getattr(record, label)
        if not (is_number(value) and abs(value) <= float(np.finfo(np.float32).max)):
            raise TwinaxError(f"{label} is {value!r}; it must be finite, also in single precision")


def is_number(value: Any) -> bool:
    """Whether it can be compared with a number; truth values are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
