"""Where the tasks of a sweep run: processes of this machine, a Ray cluster, SLURM.

A place takes tasks and gives them back, each with what became of it, as they end. The work is the same everywhere:
`carry_out` starts `twinax train` or `twinax resume` in a process of its own.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinax.cli import _child
from twinax.cli._errors import INTERRUPTED
from twinax.errors import TwinaxError
from twinax.runs.sweeps import Task

Ended = tuple[Task, str]
"""A task and its error, empty when it ended well."""


@dataclass(frozen=True)
class Wanted:
    """What each task may use."""

    at_once: int | None = None
    """Most tasks at one time; None leaves it to the place."""
    cpus: int = 1
    gpus: int = 0
    tries: int = 3
    """How often a task is begun whose process was ended by a signal (but Ctrl-C) or whose machine went away."""
    address: str | None = None
    """Of a Ray cluster; None starts one on this machine."""
    slurm: dict[str, Any] = field(default_factory=dict)
    """Options of submitit's executor, such as partition and timeout_min."""


class Running:
    """Processes of this machine that are told to end together; nothing is begun again after that.

    They have sessions of their own: Ctrl-C reaches the sweep alone, which passes it on once.
    """

    def __init__(self):
        self.stopping = False
        self._children: set[subprocess.Popen] = set()
        self._lock = threading.Lock()

    def call(self, command: list[str], **given: Any) -> int:
        """The exit code of a command."""
        with self._lock:
            if self.stopping:
                return INTERRUPTED
            child = subprocess.Popen(command, start_new_session=True, **given)
            self._children.add(child)
        try:
            return child.wait()
        finally:
            self._children.discard(child)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Tell all of them."""
        with self._lock:
            self.stopping = True
            for child in list(self._children):
                child.send_signal(number)


def carry_out(task: Task, home: str, tries: int = 1, running: Running | None = None) -> str:
    """Begin a task or go on with it, in a process of its own; the last line of its error, empty if it ended well."""
    # A machine of the cluster may not have the directory that the sweep was started in.
    cwd = home if Path(home).is_dir() else None
    for attempt in range(tries):
        words = task.command()
        if not words:
            return ""
        task.log.parent.mkdir(parents=True, exist_ok=True)
        with task.log.open("a", encoding="utf-8") as log:
            call = subprocess.call if running is None else running.call
            code = call(_child.command(*words), env=_child.environment(), stdout=log, stderr=log, cwd=cwd)
        # A process that was killed saved what it could: try again. One that failed would fail again.
        if not _killed(code) or attempt == tries - 1 or (running is not None and running.stopping):
            break
    return _error(task, code)


def _killed(code: int) -> bool:
    """Whether a process was ended from outside: by a signal, or by SIGTERM, after which it saves and exits with 143.

    Ctrl-C is a person's wish to stop (130, or the signal itself while the process still begins).
    """
    return code == 128 + signal.SIGTERM or (code < 0 and code != -signal.SIGINT)


def _error(task: Task, code: int) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"was ended by signal {-code}"
    lines = [line for line in task.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    return said.removeprefix("error: ") or f"exit code {code}"


def local(tasks: Sequence[Task], wanted: Wanted) -> Iterator[Ended]:
    """Processes of this machine."""
    home = os.getcwd()
    pool, running = ThreadPoolExecutor(wanted.at_once or 1), Running()
    waiting = {pool.submit(carry_out, task, home, wanted.tries, running): task for task in tasks}
    with _child.terminated_like_ctrl_c():
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            running.stop()
            try:
                pool.shutdown(cancel_futures=True)  # when they have saved
            except KeyboardInterrupt:
                running.stop(signal.SIGKILL)
                raise


def ray(tasks: Sequence[Task], wanted: Wanted) -> Iterator[Ended]:
    """A Ray cluster: the one at an address, or one of this machine that ends with the sweep."""
    if wanted.address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise TwinaxError("sweeps on Ray need pip install 'twinax[ray]'") from error
    here = {"num_cpus": max(wanted.cpus * (wanted.at_once or 0), os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(
            address=wanted.address, log_to_driver=False, logging_level=logging.ERROR, **({} if wanted.address else here)
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise TwinaxError(f"there is no Ray cluster at {wanted.address}: {' '.join(str(error).split())}") from error
    try:
        work = ray.remote(
            num_cpus=wanted.cpus, num_gpus=wanted.gpus, max_retries=wanted.tries - 1, retry_exceptions=False
        )(carry_out)
        yield from _ray_tasks(ray, work, tasks, wanted)
    finally:
        ray.shutdown()


def _ray_tasks(ray: Any, work: Any, tasks: Sequence[Task], wanted: Wanted) -> Iterator[Ended]:
    home, left, running = os.getcwd(), list(tasks), {}
    while left or running:
        while left and len(running) < (wanted.at_once or len(tasks)):
            task = left.pop(0)
            running[work.remote(task, home, wanted.tries)] = task
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            task = running.pop(reference)
            try:
                yield task, ray.get(reference)
            except ray.exceptions.RayError as error:
                yield task, str(error).strip().splitlines()[-1]


def slurm(tasks: Sequence[Task], wanted: Wanted) -> Iterator[Ended]:
    """A job for each task, by submitit."""
    if shutil.which("srun") is None:
        raise TwinaxError("there is no SLURM here: srun is not on the path; sweep on this machine or with --on ray")
    yield from submitted(tasks, wanted, "slurm")


def submitted(tasks: Sequence[Task], wanted: Wanted, cluster: str) -> Iterator[Ended]:
    """Tasks as jobs of one of submitit's clusters."""
    try:
        import submitit
        from submitit.core.utils import FailedJobError
        from submitit.helpers import as_completed as jobs_completed
    except ImportError as error:
        raise TwinaxError("sweeps on SLURM need pip install 'twinax[slurm]'") from error
    executor = submitit.AutoExecutor(Path(tasks[0].sweep) / "slurm", cluster=cluster)
    limits = {"slurm_array_parallelism": wanted.at_once} if wanted.at_once and cluster == "slurm" else {}
    try:
        executor.update_parameters(
            name="twinax", cpus_per_task=wanted.cpus, gpus_per_node=wanted.gpus, **limits, **wanted.slurm
        )
    except (NameError, TypeError, ValueError) as error:
        raise TwinaxError(f"submitit refused the options: {' '.join(str(error).split())[:300]}") from error
    home = os.getcwd()
    try:
        jobs = executor.map_array(carry_out, tasks, [home] * len(tasks), [wanted.tries] * len(tasks))
    except FailedJobError as error:
        raise TwinaxError(f"the jobs could not be submitted: {' '.join(str(error).split())}") from error
    by_job = {job.job_id: task for job, task in zip(jobs, tasks, strict=True)}
    for job in jobs_completed(jobs):
        failure = job.exception()
        yield by_job[job.job_id], job.result() if failure is None else str(failure).strip().splitlines()[-1]


PLACES: dict[str, Callable[[Sequence[Task], Wanted], Iterator[Ended]]] = {"local": local, "ray": ray, "slurm": slurm}
