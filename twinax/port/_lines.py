"""The line of a person's code that something comes from."""

from __future__ import annotations

import linecache
import re

from twinax import blame
from twinax.port._program import Line

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<number>\d+), in .*\n\s*(?P<text>[^\n]*)')


def innermost_line(trace: str) -> Line | None:
    """The innermost line of a printed traceback that is not a library's, or the innermost of all."""
    frames = [Line(m["file"], int(m["number"]), m["text"].strip()) for m in _FRAME.finditer(trace)]
    own = [line for line in frames if not blame.is_library_file(line.file)]
    return (own or frames or [None])[-1]


def line_of_error(error: BaseException) -> Line | None:
    """The innermost line of a person's own code that an exception passed through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        file, number = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        if not blame.is_library_file(file):
            found = Line(file, number, linecache.getline(file, number).strip())
        trace = trace.tb_next
    return found
