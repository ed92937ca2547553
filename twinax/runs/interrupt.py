"""Ctrl-C between chunks: the first lets the running chunk end, the second stops at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from twinax.errors import TwinaxError

# Seconds that the second Ctrl-C gives Python before it ends the process: compiled code cannot be interrupted.
_GRACE = 1.0


class Interrupted(TwinaxError):
    """A training that was stopped by Ctrl-C (or SIGTERM); its text says how to go on.

    `exit_code` is what the process should return and `run` what was trained until then, or None.
    """

    def __init__(self, sentence: str, exit_code: int = 130, run: Any = None):
        super().__init__(sentence)
        self.exit_code = exit_code
        self.run = run


class Interrupts:
    """Watches SIGINT and SIGTERM while the block runs; outside the main thread it watches nothing.

    Python handles a signal only between two of its own instructions, which a compiled chunk delays. So the
    signal's arrival is also written to a socket that a thread listens on: it calls `notice` at once.
    """

    def __init__(self, notice: Callable[[], None]):
        self._notice = notice
        self._count = 0
        self._number = signal.SIGINT
        self._previous: dict[int, Any] = {}
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    @property
    def requested(self) -> bool:
        """Whether the training should save and stop."""
        return self._count > 0

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM: the shell's habit."""
        return 128 + self._number

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in (signal.SIGINT, signal.SIGTERM):
            # nohup and background jobs ignore SIGINT; that stays as it is.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        self._sockets = socket.socketpair()
        for end in self._sockets:
            end.setblocking(False)
        self._sockets[0].setblocking(True)
        self._previous_wakeup = signal.set_wakeup_fd(self._sockets[1].fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(self._sockets[0],), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sockets is None:
            return
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._sockets[1].close()  # the listener reads the end and closes its own side

    def _handle(self, number: int, _frame: object) -> None:
        self._number = signal.Signals(number)
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt

    def _listen(self, end: socket.socket) -> None:
        arrived = 0
        with end:
            while data := end.recv(16):
                arrived += sum(byte in self._previous for byte in data)
                if arrived == 1:
                    self._notice()
                elif arrived > 1 and not hasattr(sys, "ps1"):
                    end.settimeout(_GRACE)
                    try:
                        impatient = bool(end.recv(16))
                    except TimeoutError:
                        impatient = True
                    if impatient:
                        _end_process(128 + data[-1])
                    return


def _end_process(code: int) -> None:
    # The main thread is inside compiled code and cannot unwind. Checkpoints are renamed into place, so nothing
    # is lost; only the cursor that a progress bar hid has to come back.
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")
    os._exit(code)
