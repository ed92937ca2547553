"""One line on standard error that says what a command is at, for who waits at a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def line(command: str) -> Iterator[Callable[[Sequence[str]], None]]:
    """A function that shows what comes next, such as ("samples", "jax"); silent where nobody watches."""
    begin, shown = time.monotonic(), sys.stderr.isatty()

    def say(now: Sequence[str]) -> None:
        if shown:
            what, where = now
            sys.stderr.write(f"\r\x1b[K{command}: {what} in {where} ({time.monotonic() - begin:.0f} s)")
            sys.stderr.flush()

    try:
        yield say
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
