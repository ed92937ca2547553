"""Speed of the treasure hunt in the original's configuration: collecting, training and whole epochs apart.

    python benchmarks/treasurehunt.py                                                # all modes, some minutes
    python benchmarks/treasurehunt.py --sorrel CHECKOUT --python VENV/bin/python     # beside the original
    python benchmarks/treasurehunt.py --quick                                        # few repeats, to see that it runs

10 x 10, 5 agents, 50 turns, batch 256, width 250, 12 quantiles, the original's habits, one train step for each agent
after an epoch, replay full. Each mode waits in its own process, and those of one epsilon and number of cores have their
turns one after the other; compilation is apart; rates are medians of seven turns. The original, Sorrel, has its turns
among them, from a clone and with a Python that has what it needs (`benchmarks/peers/sorrel_treasurehunt.py`); without
it nothing is compared. Beside it all stands the machine's rate of matrix products. Results: JSON beside the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measuring import CACHE, Contender, ask, machine, matrix_rate, serve

AGENTS, TURNS, BATCH, WIDTH, QUANTILES, COSINES, FRAMES = 5, 50, 256, 250, 12, 64, 5
HABITS = {"store_done": False, "clear_gap": False, "returns": False, "ring": False}
PEER = Path(__file__).resolve().parent / "peers" / "sorrel_treasurehunt.py"
GROUPS: dict[tuple[float, int], list[tuple[str, int]]] = {
    (1.0, 0): [("torch", 1), ("jax", 1), ("jax-sequential", 1), ("jax", 64)],
    (0.6, 0): [("jax", 1)],
    (0.0, 0): [("torch", 1), ("jax", 1), ("jax-sequential", 1), ("jax", 64)],
    (0.0, 1): [("torch", 1), ("jax", 1)],
}
"""Modes and numbers of worlds that are timed by turns, by epsilon and cores (0 is all)."""


def make_problem(epsilon: float, worlds: int = 1, parallel: bool = True):
    """The configuration of the original's example, at a fixed epsilon."""
    import twinax as tx

    learners = tx.iqn.Learners(
        count=AGENTS,
        width=WIDTH,
        num_quantiles=QUANTILES,
        batch_size=BATCH,
        epsilon=epsilon,
        epsilon_decay=0.0,
        replay=tx.iqn.ReplayOptions(**HABITS),
    )
    world = tx.envs.TreasureHunt(variant="gem_food_bone", num_agents=AGENTS, turns=TURNS)
    return tx.iqn.problem(world, {"iqn": learners}, num_envs=worlds, parallel=parallel, film=False)


def train_gigaflops() -> float:
    """Arithmetic of one agent's train step: three passes forward, and two products more for the one that learns."""
    rows, inputs = BATCH * QUANTILES, FRAMES * 150
    forward = BATCH * inputs * WIDTH + rows * (COSINES * WIDTH + WIDTH * WIDTH + WIDTH * 5)
    first = BATCH * inputs * WIDTH + rows * COSINES * WIDTH  # inputs and cosines need no gradient
    return (3 * 2 * forward + 2 * 2 * forward - 2 * first) / 1e9


# Parts that run in a process of their own


def work(mode: str, epsilon: float, worlds: int, epochs: int) -> None:
    """Seconds of an epoch, whole and without its training, once for every turn."""
    from twinax.engines import make_engine

    problem = make_problem(epsilon, worlds, parallel=mode != "jax-sequential")
    engine = make_engine(problem, mode=mode.split("-")[0], chunk=epochs)
    engine.start(0)
    engine.run(-(-1024 // (TURNS + 1)))
    collect = collector(engine)

    def turn() -> dict[str, float]:
        begin = time.perf_counter()
        engine.run(epochs)
        whole = (time.perf_counter() - begin) / epochs
        return {"epoch": whole, "collect": (alone := collect()), "train": max(whole - alone, 1e-9)}

    turn()
    facts = {
        "compile_seconds": engine.compile_seconds,
        "parameters": engine.num_parameters,
        "replay_bytes": replay_bytes(engine.state().carry),
        "threads": _threads(engine.mode),
    }
    serve(facts, turn)


def _threads(mode: str) -> int:
    if mode == "jax":
        return len(os.sched_getaffinity(0))
    import torch

    return torch.get_num_threads()


def collector(engine, epochs: int = 10) -> Callable[[], float]:
    """A function that gives the seconds of one epoch's playing and storing, draws included, training left out."""
    import jax
    import jax.numpy as jnp
    import torch

    from twinax.noise import key_draws, numpy_draws

    problem = engine.problem
    spec = {name: draw for name, draw in problem.draws().items() if not name.startswith("train/")}
    if engine.mode == "jax":
        inputs = jax.tree.map(jnp.asarray, problem.inputs())

        @jax.jit
        def play(state):
            def body(i, replays):
                draws = key_draws(spec, state.seed, state.step + i)
                return problem.remember(dataclasses.replace(state, carry=replays), draws, inputs)[0]

            return jax.lax.fori_loop(0, epochs, body, state.carry)

        state = jax.tree.map(jnp.array, engine.state())
        jax.block_until_ready(play(state))

        def compiled() -> float:
            begin = time.perf_counter()
            jax.block_until_ready(play(state))
            return (time.perf_counter() - begin) / epochs

        return compiled
    inputs = jax.tree.map(torch.from_numpy, problem.inputs())
    steps = iter(range(10_000, 2**31))

    def eager() -> float:
        begin = time.perf_counter()
        with torch.no_grad():
            draws = {n: torch.from_numpy(np.array(v)) for n, v in numpy_draws(spec, 0, next(steps)).items()}
            problem.remember(engine._state, draws, inputs)
        return time.perf_counter() - begin

    return eager


def replay_bytes(carry) -> dict[str, int]:
    """Bytes of the stored views, and of the same as float32 observations."""
    views = carry["iqn"].views
    return {"views": int(views.nbytes), "float32": int(np.prod(views.shape[:-1])) * 150 * 4}


# The part that starts them


def time_group(
    modes: list[tuple[str, int]], epsilon: float, cores: int, turns: int, sorrel: str | None, python: str
) -> dict[str, dict]:
    """Medians of those that have their turns together, by name; the original among them, if there is one."""
    epochs = 5 if turns > 1 else 1
    waiting = {}
    if sorrel:
        words = [sorrel, str(epsilon), str(min(epochs, 2))]
        waiting["original", 1] = Contender(str(PEER), words, python=python, cores=cores)
    for mode, worlds in modes:
        words = ["--work", mode, str(epsilon), str(worlds), str(epochs)]
        waiting[mode, worlds] = Contender(__file__, words, cores=cores)
    found = [{who: one.go() for who, one in waiting.items()} for _ in range(turns)]
    for one in waiting.values():
        one.close()
    rows = {}
    for (mode, worlds), one in waiting.items():
        parts = {part: [turn[mode, worlds][part] for turn in found] for part in ("epoch", "collect", "train")}
        middle = {part: float(np.median(times)) for part, times in parts.items()}
        name = f"{mode} epsilon {epsilon} worlds {worlds}" + (" one core" if cores == 1 else "")
        rows[name] = {
            **one.facts,
            "seconds": parts,
            "epoch": middle["epoch"],
            "agent_steps": AGENTS * TURNS * worlds / middle["collect"],
            "train_steps": AGENTS / middle["train"],
        }
    theirs = next((row for name, row in rows.items() if name.startswith("original")), None)
    for row in rows.values():
        row["ratios"] = compare(row, theirs)
    return rows


def compare(ours: dict, theirs: dict | None) -> list[float] | None:
    """How many times the original's speed: collecting, training, epochs; only between networks of one size."""
    if theirs is None or theirs is ours:
        return None
    if ours["parameters"] != theirs["parameters"]:
        raise SystemExit(f"{ours['parameters']} parameters stand beside the original's {theirs['parameters']}")
    rates = [ours[part] / theirs[part] for part in ("agent_steps", "train_steps")]
    return [*rates, theirs["epoch"] / ours["epoch"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="run only contenders whose name contains this")
    parser.add_argument("--sorrel", help="a clone of the original")
    parser.add_argument("--python", help="the Python of a virtual environment with what the original needs")
    parser.add_argument("--out", default=str(CACHE / "treasurehunt.json"))
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--matrix", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        mode, epsilon, worlds, epochs = arguments.work
        work(mode, float(epsilon), int(worlds), int(epochs))
        return
    if arguments.matrix is not None:
        print(json.dumps({"rate": matrix_rate(AGENTS, BATCH * QUANTILES, WIDTH)}))
        return
    if bool(arguments.sorrel) != bool(arguments.python):
        parser.error("the original needs both --sorrel and --python")
    CACHE.mkdir(parents=True, exist_ok=True)
    rates = {1: ask(__file__, ["--matrix", "1"], 1)["rate"], 2: ask(__file__, ["--matrix", "0"])["rate"]}
    print(f"matrix products: {rates[1]:.0f} GFLOP/s on one core, {rates[2]:.0f} on all")
    print(f"one train step of one agent: {train_gigaflops():.2f} GFLOP")
    columns = {"mode": -16, "eps": 4, "worlds": 6, "threads": 7, "parameters": 10, "agent-steps/s": 14, "train/s": 8}
    columns |= {"GFLOP/s": 8, "ms/epoch": 9, "compile": 8, "times the original: collect, train, epoch": 42}
    print(" ".join(f"{name:{'<' if width < 0 else '>'}{abs(width)}s}" for name, width in columns.items()))
    results, original = {}, None
    for (epsilon, cores), modes in GROUPS.items():
        modes = [(mode, worlds) for mode, worlds in modes if arguments.only in f"{mode} epsilon {epsilon}"]
        if not modes:
            continue
        rows = time_group(modes, epsilon, cores, 1 if arguments.quick else 7, arguments.sorrel, arguments.python)
        results |= rows
        for name, row in rows.items():
            mode, _, _, _, worlds, *_ = name.split()
            original = row if mode == "original" else original
            ratios = "".join(f"{ratio:13.1f}x" for ratio in row["ratios"] or [])
            compiled = f"{row['compile_seconds']:8.1f}" if "compile_seconds" in row else f"{'-':>8s}"
            print(
                f"{mode:16s} {epsilon:4.1f} {worlds:>6s} {row['threads']:7d} {row['parameters']:10,d} "
                f"{row['agent_steps']:14,.0f} {row['train_steps']:8.1f} {row['train_steps'] * train_gigaflops():8.0f} "
                f"{row['epoch'] * 1e3:9.1f} {compiled} {ratios}",
                flush=True,
            )
    written = {"matrix": rates, "gigaflops": train_gigaflops(), "machine": machine(), "results": results}
    if original:
        written["original"] = {name: original[name] for name in ("sorrel", "python", "torch", "numpy")}
        print("original: " + ", ".join(f"{name} {version}" for name, version in written["original"].items()))
    print("here: " + ", ".join(f"{name} {version}" for name, version in written["machine"].items()))
    Path(arguments.out).write_text(json.dumps(written, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
