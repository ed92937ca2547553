"""Ctrl-C and SIGTERM from the first line of a command on, until a training takes them over.

Two places lose an exception: a library that is being imported (it may catch everything, and an extension module that is
left half-way can crash), and a callback of the garbage collector, such as JAX's, in which whatever is raised is printed
and dropped. So an interrupt during an import ends the process at once, when there is nothing to save yet, and one that
was dropped is sent again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

_PAUSE = 0.01
"""Seconds after which a dropped interrupt is sent again: longer than a callback, shorter than a person notices."""


class Stopped(KeyboardInterrupt):
    """A signal that asks a command to end."""

    def __init__(self, number: int):
        super().__init__()
        self.exit_code = 128 + number

    def __str__(self) -> str:
        return "interrupted" if self.exit_code == 128 + signal.SIGINT else "terminated"


class Watch:
    """While the block runs, SIGINT and SIGTERM are raised as `Stopped`, and none of them is lost."""

    def __init__(self):
        self.arrived: Stopped | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Watch:
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                # Who ignores signals, such as nohup, or handles them, such as a program that calls us, goes on so.
                if signal.getsignal(number) is usual:
                    self._previous[number] = signal.signal(number, self._raise)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.arrived = Stopped(number)
        if _is_importing(frame):
            os.write(2, f"{self.arrived}\n".encode())
            os._exit(self.arrived.exit_code)
        raise self.arrived

    def _dropped(self, unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, Stopped):
            # From another thread: raised here, it would be dropped again.
            threading.Thread(target=_send_again, args=(unraisable.exc_value.exit_code - 128,), daemon=True).start()
        else:
            self._hook(unraisable)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _send_again(number: int) -> None:
    time.sleep(_PAUSE)
    os.kill(os.getpid(), number)
