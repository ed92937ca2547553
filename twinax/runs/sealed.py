"""JSON objects that carry a sum of their own, so that a changed one is noticed when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from twinax.runs import plain

SUM = "sum"
"""The key of the SHA-256 over all the others."""


def dumps(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Valid JSON of an object and its sum.

    >>> loads(dumps({"step": 3}))
    {'step': 3}
    >>> loads(dumps({"step": 3}).replace("3,", "4,"))
    Traceback (most recent call last):
    ValueError: it was changed after it was written: its sum is bda4d495e78f..., it says f2c76473acac...
    """
    made = plain.plain(value)
    return plain.dumps({**made, SUM: digest(made)}, indent=indent)


def loads(text: str) -> dict[str, Any]:
    """The object of a JSON text without its sum; a `ValueError` says what is wrong with it."""
    stored = plain.loads(text)
    if not isinstance(stored, dict):
        raise ValueError(f"it holds a {type(stored).__name__}, not an object")
    return opened(stored)


def opened(stored: Mapping[str, Any], required: bool = False) -> dict[str, Any]:
    """An object that was read, without its sum, if that fits.

    Unless `required`, one that has no sum is taken as it is: a person or another program wrote it.
    """
    content = {name: value for name, value in stored.items() if name != SUM}
    if SUM not in stored and not required:
        return content
    made, told = digest(content), stored.get(SUM)
    if made != told:
        raise ValueError(f"it was changed after it was written: its sum is {made[:12]}..., it says {str(told)[:12]}...")
    return content


def digest(value: Any) -> str:
    """The SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
