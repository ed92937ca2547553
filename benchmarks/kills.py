"""Kills that change nothing: runs of every family and mode are killed, resumed, and compared with undisturbed ones.

    python benchmarks/kills.py                          # 100 kills, about half an hour on two quiet cores
    python benchmarks/kills.py --kills 12 --only ppo    # a pattern; as many kills as are wanted

Each case is trained once without disturbance, which counts what it does to the disk: files synced, renamed, removed,
and rows logged. Then it is trained again by processes that are killed with SIGKILL: three times out of four on purpose
at one of those moments, before it, after it, or within a row, and otherwise at a random time. What is left is resumed
until it has finished. Every array of the last checkpoint, the weights and the log (without its times) must be the same
to the bit. Exit code 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PLAN = ("trainer.log_every=3", "trainer.evaluate_every=10", "trainer.checkpoint_every=4", "trainer.chunk=4")
PPO = (
    "ppo.num_envs=4",
    "ppo.num_steps=8",
    "ppo.num_minibatches=2",
    "ppo.num_epochs=1",
    "ppo.hidden=[8]",
    "ppo.episodes=2",
)
FAMILIES: dict[str, tuple[str, ...]] = {
    "gflownet": (
        *("env.dim=2", "env.side=4", "policy.hidden=[8]", "metrics.samples=16", "metrics.fifo=64"),
        *("trainer.batch_size=4", "trainer.steps=40"),
    ),
    "treasurehunt": (
        *("experiment=treasurehunt", "world.turns=8", "world.height=5", "world.width=5", "world.num_agents=2"),
        *(
            "model.width=8",
            "replay.buffer_size=24",
            "replay.frame_stack=2",
            "evaluation.num_envs=2",
            "evaluation.film=false",
        ),
        *("trainer.batch_size=8", "trainer.steps=30"),
    ),
    "offline": (
        *("experiment=offline", "agent=iql", "agent.hidden=[8]", "task.walls=u", "task.episodes=2"),
        *(
            "data.trajectories=4",
            "data.steps=30",
            "phases.pretrain_steps=15",
            "trainer.batch_size=8",
            "trainer.steps=30",
        ),
    ),
    "ppo": ("experiment=ppo", "env=cartpole", *PPO, "ppo.film=false", "trainer.steps=30"),
    "biped": (
        *("experiment=biped", "task=stand", "level=3", *PPO, "ppo.pool=8", "ppo.film=false", "task.time_limit=10"),
        *("trainer.steps=16", "trainer.chunk=2"),
    ),
}
MODES = ("torch", "hybrid", "jax")
CASES = [(family, mode) for family in FAMILIES for mode in (MODES if family != "biped" else ("jax",))]
ON_PURPOSE = 0.75
"""The share of kills that hit a moment of writing."""


@dataclass(frozen=True)
class Moment:
    """Where a process waits for its end: at the n-th thing that it does to the disk, before it or after it."""

    number: int
    after: bool


@dataclass
class Outcome:
    """What became of a case."""

    on_purpose: int = 0
    at_random: int = 0
    attempts: int = 0
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)


def attempt(words: Sequence[str], moment: Moment | None, parent: Connection) -> None:
    """A command in this process, which stops for its killer at the moment that was asked for."""
    done = 0

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal done
            done += 1
            here = moment is not None and done == moment.number
            if here and moment is not None and not moment.after:
                wait(function.__name__)
            result = function(*arguments, **keywords)
            if here:
                wait(function.__name__)
            return result

        return call

    def wait(name: str) -> None:
        parent.send(name)
        signal.pause()

    from twinax.cli import main
    from twinax.runs import metrics

    write = metrics.MetricsFile.write

    def write_halves(self: metrics.MetricsFile, rows: Any) -> None:
        """Rows in two halves, so that a kill can leave half a line."""
        nonlocal done
        done += 1
        if moment is not None and done == moment.number:
            if moment.after:
                write(self, rows)
            else:
                text = "".join(json.dumps(row) + "\n" for row in rows)
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(text[: len(text) // 2])
            wait("half a row")
        write(self, rows)

    metrics.MetricsFile.write = write_halves
    for module, name in ((os, "replace"), (os, "fsync"), (shutil, "rmtree")):
        setattr(module, name, watched(getattr(module, name)))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    code = main(list(words))
    parent.send(done)
    sys.stderr.flush()
    os._exit(code)


def run(words: Sequence[str], moment: Moment | None = None, seconds: float | None = None) -> tuple[str, Any, float]:
    """Start a command and end it at a moment or after some seconds: ("killed", where), ("ended", its exit code)."""
    context = multiprocessing.get_context("forkserver")
    # Imports take longer than these trainings; JAX has computed nothing when a process is forked.
    context.set_forkserver_preload(
        ["jax", "optax", "equinox", "torch", "twinax.cli", "twinax.runs.trainer", "twinax.conf"]
    )
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=attempt, args=(words, moment, theirs))
    began = time.perf_counter()
    process.start()
    theirs.close()
    said: Any = None
    try:
        if mine.poll(seconds):
            said = mine.recv()
            if isinstance(said, str):
                process.kill()
        elif seconds is not None:
            process.kill()
    except EOFError:  # it ended with an error
        pass
    process.join(300)
    if process.is_alive():
        process.kill()
        process.join()
        return "ended", "no end after 300 seconds", time.perf_counter() - began
    mine.close()
    took = time.perf_counter() - began
    if process.exitcode == -signal.SIGKILL:
        return "killed", said or "at random", took
    return "ended", said if process.exitcode == 0 else f"exit code {process.exitcode}", took


def disturb(case: tuple[str, str], kills: int, place: Path, chance: random.Random) -> Outcome:
    """Train a case undisturbed and disturbed; what differs."""
    family, mode = case
    words = [*PLAN, *FAMILIES[family], f"trainer.mode={mode}"]
    outcome, began = Outcome(), time.perf_counter()
    whole, killed = place / f"{family}-{mode}", place / f"{family}-{mode}-killed"
    how, moments, _ = run(["train", "--quiet", *words, f"run.dir={whole}"])
    if how != "ended" or not isinstance(moments, int):
        outcome.differences.append(f"the undisturbed run: {moments}")
        return outcome
    # A second time, with everything compiled: random kills shall fall into the training.
    shutil.rmtree(whole)
    *_, seconds = run(["train", "--quiet", *words, f"run.dir={whole}"])
    hits: list[str] = []
    while True:
        outcome.attempts += 1
        begun = any((killed / "checkpoints").glob("[0-9]*"))
        command = ["resume", "--quiet", str(killed)] if begun else ["train", "--quiet", *words, f"run.dir={killed}"]
        left = kills - len(hits)
        if not left:
            how, said, _ = run(command)
        elif chance.random() < ON_PURPOSE:
            # Early moments, so that as many kills as were asked for find the run still unfinished.
            last = max(2, 2 * moments // (left + 1))
            how, said, _ = run(command, Moment(chance.randint(1, last), chance.random() < 0.5))
        else:
            how, said, _ = run(command, seconds=chance.uniform(0.2, 0.6) * seconds)
        if how == "killed":
            hits.append(said)
            if _status(killed) == "finished":  # it was killed on its way out: there is nothing left to resume
                break
            continue
        if not isinstance(said, int):
            outcome.differences.append(f"after {len(hits)} kills ({', '.join(hits[-3:])}), `{command[0]}`: {said}")
        break
    outcome.at_random = hits.count("at random")
    outcome.on_purpose = len(hits) - outcome.at_random
    if not outcome.differences:
        outcome.differences += compare(whole, killed)
    outcome.seconds = time.perf_counter() - began
    return outcome


def compare(whole: Path, killed: Path) -> list[str]:
    """What is not the same in two finished runs; times do not count."""
    import numpy as np
    from safetensors.numpy import load_file

    found = []
    names = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (whole, killed)]
    if names[0] != names[1]:
        found.append(f"checkpoints {names[1]} instead of {names[0]}")
    files = [Path("checkpoints") / names[0][-1] / "state.safetensors"]
    files += sorted(path.relative_to(whole) for path in (whole / "weights").rglob("*.safetensors"))
    for file in files:
        arrays = [load_file(run / file) for run in (whole, killed)]
        if arrays[0].keys() != arrays[1].keys():
            found.append(f"{file} has other arrays")
            continue
        # Bytes, so that NaN equals NaN and 0 is not -0.
        found += [
            f"{file}: {name}"
            for name, array in arrays[0].items()
            if array.dtype != arrays[1][name].dtype or not np.array_equal(_bytes(array), _bytes(arrays[1][name]))
        ]
    rows = [_rows(run / "metrics.jsonl") for run in (whole, killed)]
    if rows[0] != rows[1]:
        other = next((i for i, pair in enumerate(zip(*rows, strict=False)) if pair[0] != pair[1]), min(map(len, rows)))
        found.append(
            f"metrics.jsonl: {len(rows[1])} rows instead of {len(rows[0])}, the first other one is {other + 1}"
        )
    tables = [len((run / "metrics.csv").read_text().splitlines()) for run in (whole, killed)]
    if tables[0] != tables[1]:
        found.append(f"metrics.csv: {tables[1]} lines instead of {tables[0]}")
    if (status := _status(killed)) != "finished":
        found.append(f"the run is {status}")
    return found


def _status(run: Path) -> str:
    """How a run says that it ended; empty before it has said anything."""
    path = run / "summary.json"
    return json.loads(path.read_text())["status"] if path.exists() else ""


def _bytes(array: Any) -> Any:
    import numpy as np

    return np.frombuffer(array.tobytes(), np.uint8)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, shared out over the cases")
    parser.add_argument("--only", default="", help="cases whose name has this, such as ppo or torch")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    found = parser.parse_args()
    cases = [case for case in CASES if found.only in "-".join(case)]
    if not cases:
        parser.error(f"no case has '{found.only}'; there are {', '.join('-'.join(case) for case in CASES)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # as the command line has it, which comes after the import here
    chance, total, bad = random.Random(found.seed), 0, False
    print("| family | mode | kills while writing | at random | processes | seconds | differences |")
    print("|---|---|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        # Compiled programs are kept for the later processes, however small; kills fall into this writing too.
        os.environ |= {"JAX_COMPILATION_CACHE_DIR": f"{place}/jax", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        for index, case in enumerate(cases):
            share = found.kills // len(cases) + (index < found.kills % len(cases))
            one = disturb(case, share, Path(place), chance)
            total, bad = total + one.on_purpose + one.at_random, bad or bool(one.differences)
            counts = f"{one.on_purpose} | {one.at_random} | {one.attempts} | {one.seconds:.0f}"
            print(f"| {' | '.join(case)} | {counts} | {'; '.join(one.differences[:5]) or 'none'} |", flush=True)
    print(f"\n{total} kills, {'some runs differ' if bad else 'every run as if undisturbed, to the bit'}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
