"""Keys of a person: one by one from a terminal, or from a stream such as a pipe."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence

QUIT = "q"
MOVES = {"w": "up", "s": "down", "a": "left", "d": "right"}
FURTHER = "czxvbn"
"""Keys of the actions that are not moves, in their order."""

_ESCAPE = "\x1b"
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_PATIENCE = 0.05
"""Seconds within which the rest of an arrow key must follow its first character."""


def bindings(actions: Sequence[str]) -> dict[str, int]:
    """The action of each key; the arrow keys are named up, down, left and right.

    >>> bindings(("up", "down", "left", "right", "clean"))["c"], bindings(("left", "right"))
    (4, {'a': 0, 'd': 1, 'left': 0, 'right': 1})
    """
    letters = {key: move for key, move in MOVES.items() if move in actions}
    others = [action for action in actions if action not in MOVES.values()]
    letters |= dict(zip(FURTHER, others, strict=False))
    indices = {key: actions.index(action) for key, action in letters.items()}
    return indices | {move: actions.index(move) for move in MOVES.values() if move in actions}


@contextlib.contextmanager
def keys() -> Iterator[Callable[[], str]]:
    """A function that waits for the next key; it gives "" when there will be no more.

    A terminal passes keys on at once and does not show them until the block ends.
    """
    source = sys.stdin or io.StringIO()
    if not source.isatty():
        stream = getattr(source, "buffer", source)  # bytes: a pipe may hold anything

        def read() -> str:
            char = stream.read(1)
            return char.decode("latin-1") if isinstance(char, bytes) else char

        yield lambda: next_key(read, lambda: True)
        return
    import select
    import termios
    import tty

    terminal = source.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda: next_key(
            lambda: os.read(terminal, 1).decode("latin-1"),
            lambda: bool(select.select([terminal], [], [], _PATIENCE)[0]),
        )
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def next_key(read: Callable[[], str], waiting: Callable[[], bool]) -> str:
    """One key from characters: a letter, the name of an arrow, or the escape character for any other sequence.

    >>> characters = iter("D\\x1b[A\\x1b[5~q")
    >>> [next_key(lambda: next(characters), lambda: True) for _ in range(4)]
    ['d', 'up', '\\x1b', 'q']
    """
    char = read()
    if char != _ESCAPE:
        return char.lower()
    if not waiting() or read() not in ("[", "O"):
        return _ESCAPE
    while (char := read()) and not (char.isalpha() or char == "~"):
        pass
    return _ARROWS.get(char, _ESCAPE)
