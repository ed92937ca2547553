"""MuJoCo, which comes without types, and the names in a model."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Iterable
from typing import Any

from twinax.errors import require


def load_mujoco(part: str = "mujoco") -> Any:
    """MuJoCo or a part of it; it comes without types."""
    require("mujoco", "mujoco", "a robot")
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that it goes without Warp
        return importlib.import_module(part)


def names_of(kind: Callable[[int], Any], numbers: Iterable[int]) -> list[str]:
    """Of bodies, joints and the like that have one."""
    return [name for k in numbers if (name := kind(k).name)]
