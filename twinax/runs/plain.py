"""Values as plain JSON: what metrics, summaries and checkpoint descriptions are written in, and read from."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The value as None, bool, int, float, str, list and dict only; numbers that are not finite become None.

    >>> plain({"loss": np.float32(0.5), "bad": float("nan"), "seeds": np.arange(2)})
    {'loss': 0.5, 'bad': None, 'seeds': [0, 1]}
    """
    if value is None or isinstance(value, bool | int | str) and not isinstance(value, Enum):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.generic | np.ndarray) or hasattr(value, "__array__"):
        return plain(np.asarray(value).tolist())
    return str(value)


def dumps(value: Any, indent: int | None = None) -> str:
    """Valid JSON of any value, by way of `plain`."""
    return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def loads(text: str) -> Any:
    """The value of a JSON text, or a `ValueError` for anything that `dumps` could not have written.

    Beside broken JSON that is a number that is not finite or has more than 64 bits, an object that has a key twice,
    half of a surrogate pair, and values nested deeper than anything here is.

    >>> loads('{"loss": NaN}')
    Traceback (most recent call last):
    ValueError: it holds NaN, which is not a number of JSON
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
        _check(value)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    return value


_DEEPEST = 50


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is not a number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has the key '{next(name for name in names if names.count(name) > 1)}' twice")
    return members


def _check(value: Any, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise ValueError("its values are nested too deeply")
    if isinstance(value, float) and not math.isfinite(value) or isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("it holds a number that is too large")
    if isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError, a ValueError, for what no file can hold
    for name in value if isinstance(value, dict) else ():
        name.encode("utf-8")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check(item, depth + 1)
