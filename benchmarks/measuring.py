"""What several benchmarks need: parts in processes of their own, and the machine's rate of matrix products."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"


def ask(script: str, arguments: list[str], threads: int = 0, python: str = sys.executable) -> dict:
    """Run a script in its own process, perhaps on one core, and read the JSON of its last line."""
    command = [python, str(Path(script).resolve()), *arguments]
    environment = _environment()
    if threads == 1:
        command = ["taskset", "-c", "0", *command]
        environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _environment() -> dict[str, str]:
    # The checkout that the script lies in is measured, not one that happens to be installed.
    found = {"PYTHONPATH": str(ROOT), **os.environ}
    return {**found, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Contender:
    """A script that waits in its own process, so that several can be timed by turns.

    It prints a line of JSON when it is ready, and one more for every line that it is sent (`serve`).
    """

    def __init__(self, script: str, arguments: list[str], python: str = sys.executable, cores: int = 0):
        self._words = [python, str(Path(script).resolve()), *arguments]
        if cores:
            self._words = ["taskset", "-c", f"0-{cores - 1}", *self._words]
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(),
            cwd=ROOT,
        )
        self.facts: dict = self._heard()

    def _heard(self):
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise SystemExit(f"{' '.join(self._words)} failed:\n{self._errors.read()[-2000:]}")
        return json.loads(line)

    def go(self):
        """What one more turn gives."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._heard()

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()


def serve(facts: dict, turn: Callable[[], object]) -> None:
    """The part of a `Contender` that runs in its process."""
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        print(json.dumps(turn()), flush=True)


def rates(function: Callable[[], object], steps: int) -> dict[str, float]:
    """Steps a second by the clock and by the processors' time of one call that makes so many steps."""
    begin, used = time.perf_counter(), time.process_time()
    function()
    return {
        "rate": steps / (time.perf_counter() - begin),
        "processor_rate": steps / (time.process_time() - used),
    }


def timed(function: Callable[[], int], repeats: int) -> dict:
    """Steps a second by the clock and by the processors' time, medians; the function says how many it did."""
    function()
    clock, processor = [], []
    for _ in range(repeats):
        begin, used = time.perf_counter(), time.process_time()
        steps = function()
        clock.append(steps / (time.perf_counter() - begin))
        processor.append(steps / (time.process_time() - used))
    return {"rate": float(np.median(clock)), "processor_rate": float(np.median(processor)), "rates": clock}


def machine() -> dict:
    """What the figures depend on."""
    from importlib.metadata import version

    return {"cores": len(os.sched_getaffinity(0)), **{name: version(name) for name in ("jax", "torch", "numpy")}}


def matrix_rate(members: int, rows: int, width: int) -> float:
    """GFLOP/s of products (members, rows, width) x (members, width, width) in XLA, the best of five."""
    import jax
    import jax.numpy as jnp

    a, b = jnp.ones((members, rows, width)), jnp.full((members, width, width), 1 / width)
    many = jax.jit(lambda a, b: jax.lax.fori_loop(0, 10, lambda _, x: x @ b, a))
    jax.block_until_ready(many(a, b))
    best = np.inf
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready(many(a, b))
        best = min(best, time.perf_counter() - begin)
    return 10 * 2 * members * rows * width * width / best / 1e9
