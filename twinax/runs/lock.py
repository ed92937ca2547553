"""One training per run directory: a file that the operating system locks for as long as a process lives."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinax.errors import TwinaxError
from twinax.runs import files

NAME = ".lock"


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the run directory; a second training in it gets a `TwinaxError` with the first one's process id.

    The lock belongs to the open file, so a killed process loses it and its file is taken over.
    """
    path = run_dir / NAME
    with files.writing("the lock file", path, run_dir):
        descriptor = _acquire(path)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have deleted the file between our open and our lock.
            if path.exists() and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            holder = _holder(os.read(descriptor, 1000))
            os.close(descriptor)
            raise TwinaxError(
                f"the run {path.parent} is being trained by {holder}; wait for it, stop it, or choose another run.dir"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(text: bytes) -> str:
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
