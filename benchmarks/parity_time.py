"""How long `twinax parity` takes for every family and agent at its default sizes, with other work on the machine.

    python benchmarks/parity_time.py                    # two busy loops beside it; 15 to 20 minutes on two cores
    python benchmarks/parity_time.py --busy 0 --only biped

Prints seconds from the start of the command to its answer. Exit code 1 when a command fails or takes longer than a
minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from twinax.offline.agents import AGENTS

LIMIT = 60
CASES = (
    "env=hypergrid",
    "env=hypergrid objective=db",
    "env=hypergrid objective=fm",
    "experiment=ppo env=cartpole",
    "experiment=treasurehunt",
    "experiment=treasurehunt world=cleanup",
    "experiment=biped",
    "experiment=biped amp=scripted",
    *(f"experiment=offline agent={name}" for name in AGENTS),
)


def time_parity(case: str) -> tuple[float, int, str]:
    """Seconds, exit code, and the last line that the command prints."""
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [sys.executable, "-m", "twinax.cli", "parity", *case.split(), f"run.dir={Path(elsewhere) / 'run'}"]
        begin = time.perf_counter()
        done = subprocess.run(command, text=True, capture_output=True, check=False)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return time.perf_counter() - begin, done.returncode, lines[-1] if lines else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=2, help="endless loops that run beside it")
    parser.add_argument("--only", default="", help="cases whose words contain this")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, {asked.busy} busy loops beside them; at most {LIMIT} s are wanted", flush=True)
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy)]
    good = True
    try:
        for case in CASES:
            if asked.only not in case:
                continue
            seconds, code, last = time_parity(case)
            good = good and code == 0 and seconds <= LIMIT
            print(f"{case:44} {seconds:6.1f} s" + (f"  exit {code}: {last}" if code else ""), flush=True)
    finally:
        for loop in loops:
            loop.kill()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
