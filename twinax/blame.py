"""Whose code an exception comes from: a stranger's rules, or this library.

Worlds, networks, rewards and objectives of somebody else run inside of training, and raise what they like. A person is
told which of their own lines did, without the frames of this library and of the frameworks around it.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from types import FrameType, TracebackType

from twinax import registry

_ROOT = os.path.dirname(os.path.abspath(__file__))
_OPS = os.path.join(_ROOT, "ops")
"""Called by everybody's rules, as NumPy is: what it raises is told of who called it."""


@dataclass(frozen=True)
class Stranger:
    """The code of somebody else that an exception comes from."""

    rule: str
    """What of it was called, such as Bits.step."""
    file: str
    line: int
    """Where it raised."""


def find_stranger(error: BaseException) -> Stranger | None:
    """Who raised an exception, if the innermost frame outside of libraries is not one of this library's own."""
    frames = [(frame, line) for frame, line in _frames(error.__traceback__) if not _is_library(frame)]
    if not frames or _is_ours(frames[-1][0]):
        return None
    inner, line = frames[-1]
    # What this library called is the rule; what it calls in turn says only where.
    first = next((k for k in reversed(range(len(frames))) if _is_ours(frames[k][0])), None)
    if first is None:  # nobody here called it
        return None
    code = frames[first + 1][0].f_code
    name = code.co_qualname
    owner = frames[first + 1][0].f_locals.get("self")
    if owner is not None and "<locals>" not in name:
        name = f"{type(owner).__name__}.{code.co_name}"
    return Stranger(name.removesuffix(".__call__"), inner.f_code.co_filename, line)


def tell(error: BaseException) -> str | None:
    """One sentence on what a stranger's code raised; None if it was not theirs."""
    stranger = find_stranger(error)
    if stranger is None:
        return None
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{stranger.rule} fails with {said} ({shown_path(stranger.file)}:{stranger.line})"


def shown_path(file: str) -> str:
    """A path from here, if it lies below."""
    near = os.path.relpath(file)
    return file if near.startswith(os.pardir) else near


def _frames(trace: TracebackType | None) -> list[tuple[FrameType, int]]:
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return frames


def _is_ours(frame: FrameType) -> bool:
    return _below(frame.f_code.co_filename, _ROOT)


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith("<"):  # such as the __init__ that dataclasses write
        return True
    if _is_ours(frame):
        return _below(file, _OPS)
    # A stranger's package may be installed beside the libraries; settings name it.
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] in registry.imported_packages:
        return False
    return any(_below(file, place) for place in _libraries())


def is_library_file(file: str) -> bool:
    """Whether a file is Python's, an installed package's or this library's, and so nobody's own code.

    >>> is_library_file(functools.__file__)
    True
    """
    return file.startswith("<") or any(_below(file, place) for place in (_ROOT, *_libraries()))


def _below(file: str, place: str) -> bool:
    return os.path.abspath(file).startswith(place + os.sep)


@functools.cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # here, because help must come at once

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
