"""Train on several processes that share out the worlds: on this machine, or one of many on a cluster.

twinax launch --processes 2 train experiment=ppo ppo.groups=2
twinax launch --coordinator host:1234 --processes 8 --process 3 train ...     # the same on each host
srun --ntasks 8 twinax launch train ...                                       # SLURM says who is who
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence

from twinax.cli import _child
from twinax.cli._errors import BAD_INPUT, FAILED, INTERRUPTED, STOPPED
from twinax.errors import TwinaxError

HELP = "train on several processes that share out the worlds"
ALLOWED = ("train", "resume")
GRACE = 10.0
"""Seconds that a process is given to end."""
SETTLE = 5.0
"""Seconds in which others that fail for the same reason may say so themselves."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, help="how many processes take part")
    parser.add_argument("--process", type=int, help="which of them this is, from 0; without it all are started here")
    parser.add_argument("--coordinator", help="HOST:PORT of process 0")
    parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND", help="train or resume, with its settings")


def run(arguments: Namespace) -> int:
    words = list(arguments.words)
    if not words or words[0] not in ALLOWED:
        what = f"'{words[0]}'" if words else "nothing"
        raise TwinaxError(f"launch was given {what} to run; it runs train or resume")
    if words[0] == "resume" and run_directory(words) is None:
        raise TwinaxError("launch was given resume without a run: launch --processes N resume RUN")
    if arguments.processes is not None and arguments.processes < 1:
        raise TwinaxError(f"--processes is {arguments.processes}; it must be at least 1")
    if arguments.process is not None:
        if arguments.processes is None or arguments.coordinator is None:
            raise TwinaxError("--process needs --processes and --coordinator as well")
        return take_part(words, arguments.coordinator, arguments.processes, arguments.process)
    if (tasks := slurm_tasks()) > 1:
        if arguments.processes not in (None, tasks):
            raise TwinaxError(
                f"--processes is {arguments.processes}, but SLURM has started {tasks} tasks; leave it out"
            )
        return take_part(words, arguments.coordinator)
    if arguments.coordinator is not None:
        raise TwinaxError("--coordinator needs --process K as well, which of the processes this is")
    if arguments.processes is None:
        raise TwinaxError("launch needs --processes N, or SLURM's environment that says it")
    return start_all(arguments.processes, words)


def slurm_tasks() -> int:
    """How many tasks SLURM has started beside this one, itself included; 0 where this is none of srun's."""
    return int(os.environ["SLURM_NTASKS"]) if {"SLURM_STEP_NODELIST", "SLURM_NTASKS"} <= os.environ.keys() else 0


def take_part(words: list[str], coordinator: str | None, number: int | None = None, index: int | None = None) -> int:
    """Be one of the processes."""
    from twinax.cli._main import run as run_command
    from twinax.engines import is_leader, join
    from twinax.runs import Interrupted

    join(coordinator, number, index)
    try:
        return run_command(words)
    except Interrupted as stopped:
        if is_leader():
            raise
        return stopped.exit_code  # process 0 has saved, and says so


def start_all(number: int, words: list[str]) -> int:
    """Start every process here, and end all of them when one ends badly."""
    common = ["launch", "--processes", str(number), "--coordinator", f"localhost:{free_port()}"]
    # What the others say is shown only if process 0 does not say it.
    said = [None, *(tempfile.TemporaryFile("w+") for _ in range(number - 1))]
    with _child.terminated_like_ctrl_c():
        # A session of their own: Ctrl-C reaches this process alone, which passes it on.
        children = [
            subprocess.Popen(
                _child.command(*common, "--process", str(k), *words),
                env=_child.environment(),
                stderr=said[k],
                start_new_session=True,
            )
            for k in range(number)
        ]
        try:
            wait_for(children)
            return told(children, words, said)
        except KeyboardInterrupt:
            return stop(children, words)
        finally:
            end(children)


def wait_for(children: Sequence[subprocess.Popen]) -> None:
    """Until all have ended, or a moment after the first that ended badly."""
    limit = float("inf")
    while any(child.poll() is None for child in children) and time.monotonic() < limit:
        if limit == float("inf") and any(child.poll() not in (None, 0, *STOPPED) for child in children):
            limit = time.monotonic() + SETTLE
        time.sleep(0.2)


def told(children: Sequence[subprocess.Popen], words: list[str], said: Sequence) -> int:
    """The exit code of all, with a sentence on the first that ended badly."""
    codes = [child.poll() for child in children]
    bad = next((k for k, code in enumerate(codes) if code), None)
    if bad is None:
        return 0
    if all(code in STOPPED for code in codes) or (
        codes[0] == BAD_INPUT and not any(code and code < 0 for code in codes)
    ):
        return codes[0] or FAILED  # process 0 has said why
    code = codes[bad]
    assert code is not None
    if bad:
        said[bad].seek(0)
        print("".join(said[bad].readlines()[-20:]), end="", file=sys.stderr)
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    way = f"; continue with: {again(len(codes), words)}" if code != BAD_INPUT else ""
    print(f"error: process {bad} of {len(codes)} {how}; the others were stopped{way}", file=sys.stderr)
    return code if code > 0 else FAILED


def stop(children: Sequence[subprocess.Popen], words: list[str]) -> int:
    """After Ctrl-C all finish their chunk, and process 0 saves and says so; after another one they end at once."""
    sentence = "stopped before the training had begun"
    try:
        for child in children:
            child.terminate()
        wait_for(children)
    except KeyboardInterrupt:
        sentence = f"stopped at once; continue with: {again(len(children), words)}"
    if not all(child.poll() in (0, *STOPPED) for child in children):
        print(sentence, file=sys.stderr)
    return INTERRUPTED


def run_directory(words: list[str]) -> str | None:
    """The run that a command speaks of, if it names one."""
    named = [word.partition("=")[2] for word in words if word.startswith("run.dir=")]
    if words[0] == "resume":
        named += [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return named[-1] if named else None


def again(number: int, words: list[str]) -> str:
    """The command that goes on with the run."""
    return f"twinax launch --processes {number} resume {run_directory(words) or 'RUN'}"


def end(children: Sequence[subprocess.Popen]) -> None:
    """No process outlives this one."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    limit = time.monotonic() + GRACE
    for child in children:
        try:
            child.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]
