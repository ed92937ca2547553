"""Values as plain JSON: what metrics, summaries and checkpoint descriptions are written in."""

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
