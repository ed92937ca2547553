"""Commands in a process of their own: clean timings, their own threads, their own float64 switch."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import twinax
from twinax.errors import TwinaxError

if TYPE_CHECKING:
    from subprocess import CompletedProcess


def command(*words: str) -> list[str]:
    """`twinax WORDS` for a new process."""
    return [sys.executable, "-m", "twinax.cli", *words]


def environment() -> dict[str, str]:
    """Variables of a new process."""
    # The package may have been found through a script's own directory, which a child would not search.
    home = str(Path(twinax.__file__).resolve().parents[1])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM is an interrupt as well, for who has to end other processes first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def start(*words: str, capture: bool) -> CompletedProcess[str]:
    """Run `twinax WORDS` in a new process; without `capture` its output is shown as it comes."""
    import subprocess

    sys.stdout.flush()
    return subprocess.run(
        command(*words),
        env=environment(),
        text=True,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE if capture else None,
        check=False,
    )


def succeeds(*words: str) -> bool:
    """Whether a command says yes (0) or no (1); its output is shown. Anything else is an error."""
    done = start(*words, capture=False)
    if done.returncode not in (0, 1):
        raise TwinaxError(f"`twinax {words[0]}` ended with exit code {done.returncode}; its message is above")
    return done.returncode == 0


def result(what: str, *words: str) -> dict[str, Any]:
    """The JSON object on the last line of a command's output."""
    done = start(*words, capture=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines()
        last = said[-1].removeprefix("error: ") if said else f"exit code {done.returncode}"
        raise TwinaxError(f"{what} failed: {last}")
    return json.loads(lines[-1])
