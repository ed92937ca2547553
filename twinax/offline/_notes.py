"""Sentences on what a reader found and did not use: said once for each source, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

_said: set[tuple[Path, str]] = set()


def say(source: str, text: str) -> None:
    """One sentence that begins with the source; the same one is not repeated in a process."""
    if (key := (Path(source).resolve(), text)) not in _said:
        _said.add(key)
        print(f"{source}: {text}" if source else text, file=sys.stderr)


def say_unused(source: str, names: Iterable[str]) -> None:
    """Which arrays nobody reads; those of a group are named by the group."""
    shown = sorted({f"{name.partition('/')[0]}/*" if "/" in name else name for name in names})
    if shown:
        say(source, f"{'these arrays are' if len(shown) > 1 else 'this array is'} not used: {', '.join(shown)}")
