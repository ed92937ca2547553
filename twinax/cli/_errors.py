"""Which errors are people's to mend, and the sentence and exit code for each."""

from __future__ import annotations

import os
import sys

from twinax import blame
from twinax.errors import TwinaxError
from twinax.platforms import explain

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
STOPPED = (INTERRUPTED, 143)
"""Exit codes of who was asked to stop, by Ctrl-C or SIGTERM."""


def of_the_configuration() -> tuple[type[BaseException], ...]:
    """Errors of the libraries that read settings, if these were imported."""
    names = (("hydra.errors", "HydraException"), ("omegaconf.errors", "OmegaConfBaseException"))
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)


def describe(error: BaseException) -> tuple[str | None, int]:
    """One line for the person and the exit code; None when it is a defect of ours and needs its traceback."""
    if isinstance(error, ImportError):
        error = _interrupt_behind(error) or error
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return text or "interrupted", getattr(error, "exit_code", INTERRUPTED)
    if isinstance(error, TwinaxError):
        return text, _code(error)
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone (`twinax list | head`): nothing is left to say to anyone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "the reader of the output has closed it", FAILED
    if isinstance(error, OSError) and blame.find_stranger(error) is None:
        where = f" '{error.filename}'" if error.filename else ""
        return f"{error.strerror or text}{where}", FAILED
    if isinstance(error, MemoryError) or _out_of_memory(text):
        return "not enough memory; make the networks, the batch or the environment smaller", FAILED
    if isinstance(error, ImportError):
        # A library that is missing or broken; one of our own modules that is missing is a defect.
        ours = error.name is not None and error.name.partition(".")[0] == "twinax"
        sentence = f"a library cannot be imported ({text}); `twinax doctor` shows what is wrong"
        return None if ours else sentence, FAILED
    if isinstance(error, of_the_configuration()):
        return text, BAD_INPUT
    if isinstance(error, RuntimeError | AssertionError) and (reason := explain(error)):
        return reason, BAD_INPUT
    theirs = blame.tell(error)
    return f"{theirs}; TWINAX_DEBUG=1 shows the whole traceback" if theirs else None, FAILED


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that made an import fail, if one did."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _code(error: TwinaxError) -> int:
    # What ends a training carries its own code; a loss that goes bad or a full disk is a failure, the rest bad input.
    code = getattr(error, "exit_code", None)
    if code is not None:
        return int(code)
    failed = type(error).__name__ in ("NonFinite", "BadCheckpoint") or isinstance(error.__cause__, OSError)
    return FAILED if failed else BAD_INPUT


def _out_of_memory(text: str) -> bool:
    signs = ("RESOURCE_EXHAUSTED", "can't allocate memory", "out of memory", "Out of memory")
    return any(sign in text for sign in signs)
