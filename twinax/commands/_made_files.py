"""Files that worlds need and that are made of somebody's package: by world, what makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.registry import Registry

READERS: Mapping[str, Any] = Registry(
    "data", {"tfbind8": "twinax.commands._tfbind8:read", "sachs": "twinax.commands._sachs:read"}
)
"""By name, `(package, out) -> facts`: a function that writes a file and says what is in it."""


def made(name: str, given: Sequence[str]) -> dict[str, Any]:
    """Facts about the file that was made.

    >>> made("tfbind8", [])                                                 # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    TwinaxError: data tfbind8 is followed by 0 names; it takes one or two, the package and the file to write
    """
    if len(given) not in (1, 2):
        raise TwinaxError(
            f"data {name} is followed by {len(given)} names; it takes one or two, the package and the file to write"
        )
    package, out = Path(given[0]).expanduser(), Path(given[1] if len(given) > 1 else f"{name}.npz").expanduser()
    if out.is_dir() or not out.parent.is_dir():
        raise TwinaxError(
            f"{out} cannot be written: {'it is a directory' if out.is_dir() else 'its directory is not there'}"
        )
    return READERS[name](package, out)
