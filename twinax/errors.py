"""Errors meant for people: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TwinaxError(Exception):
    """Something the person can put right; its text is shown without a traceback."""


class UnknownName(TwinaxError):
    """A name that is not in a registry; the text lists the known ones and the closest."""

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        names = sorted(known)
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(names)}.{hint}")


class MissingExtra(TwinaxError):
    """An optional dependency is needed; the text names the pip command."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'twinax[{extra}]'")


def require(package: str, extra: str, purpose: str) -> None:
    """Raise `MissingExtra` unless `package` can be imported.

    >>> require("numpy", "torch", "doing sums")
    """
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise MissingExtra(package, extra, purpose)
