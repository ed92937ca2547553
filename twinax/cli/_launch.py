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
import time
from argparse import REMAINDER, ArgumentParser, Namespace

from twinax.cli import _child
from twinax.errors import TwinaxError

HELP = "train on several processes that share out the worlds"
ALLOWED = ("train", "resume")
GRACE = 10.0
"""Seconds that a process is given to end."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, help="how many processes take part")
    parser.add_argument("--process", type=int, help="which of them this is, from 0; without it all are started here")
    parser.add_argument("--coordinator", help="HOST:PORT of process 0")
    parser.add_argument("words", nargs=REMAINDER, metavar="COMMAND", help="train or resume, with its settings")


def run(found: Namespace) -> int:
    words = list(found.words)
    if not words or words[0] not in ALLOWED:
        what = f"'{words[0]}'" if words else "nothing"
        raise TwinaxError(f"launch was given {what} to run; it runs train or resume")
    if found.processes is not None and found.processes < 1:
        raise TwinaxError(f"--processes is {found.processes}; it must be at least 1")
    if found.process is not None or (found.processes is None and "SLURM_NTASKS" in os.environ):
        return take_part(found, words)
    if found.processes is None:
        raise TwinaxError("launch needs --processes N, or SLURM's environment that says it")
    return start_all(found.processes, words)


def take_part(found: Namespace, words: list[str]) -> int:
    """Be one of the processes."""
    from twinax.cli._main import run as run_command
    from twinax.engines._hosts import join

    if found.process is not None and (found.processes is None or found.coordinator is None):
        raise TwinaxError("--process needs --processes and --coordinator as well")
    join(found.coordinator, found.processes, found.process)
    return run_command(words)


def start_all(number: int, words: list[str]) -> int:
    """Start every process here, and end all of them when one ends badly."""
    address = f"localhost:{free_port()}"
    common = ["launch", "--processes", str(number), "--coordinator", address]
    # A session of their own: Ctrl-C reaches this process alone, which ends the others.
    children = [
        subprocess.Popen(
            _child.command(*common, "--process", str(k), *words), env=_child.environment(), start_new_session=True
        )
        for k in range(number)
    ]
    try:
        return watch(children, words)
    except KeyboardInterrupt:
        print(f"stopped at once; continue with: {again(number, words)}", file=sys.stderr)
        return 130
    finally:
        end(children)


def watch(children: list[subprocess.Popen], words: list[str]) -> int:
    """Wait for all, or for the first that ends badly."""
    while True:
        codes = [child.poll() for child in children]
        bad = [k for k, code in enumerate(codes) if code]
        if bad:
            code = codes[bad[0]]
            assert code is not None
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            number = len(children)
            print(
                f"error: process {bad[0]} of {number} {how}; the others were stopped; "
                f"continue with: {again(number, words)}",
                file=sys.stderr,
            )
            return code if code > 0 else 1
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.2)


def again(number: int, words: list[str]) -> str:
    """The command that goes on with the run."""
    run = words[1] if words[0] == "resume" else "RUN"
    for word in words:
        run = word.partition("=")[2] if word.startswith("run.dir=") else run
    return f"twinax launch --processes {number} resume {run}"


def end(children: list[subprocess.Popen]) -> None:
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
