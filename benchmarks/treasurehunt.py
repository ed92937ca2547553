"""Speed of the treasure hunt in the original's configuration: collecting, training and whole epochs apart.

    python benchmarks/treasurehunt.py                 # all modes, some minutes
    python benchmarks/treasurehunt.py --quick         # small repeats, to see that it runs

10 x 10, 5 agents, 50 turns, batch 256, width 250, 12 quantiles, one train step for each agent after an epoch, replay
full. Each mode runs in its own process; compilation is apart; rates are medians. Beside them stand the figures of the
original (Sorrel 1.4.0, one thread), which cannot be installed by name and are quoted, and the machine's rate of matrix
products. Results: JSON beside the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

import numpy as np
from measuring import CACHE, ask, matrix_rate

AGENTS, TURNS, BATCH, WIDTH, QUANTILES, COSINES, FRAMES = 5, 50, 256, 250, 12, 64, 5
QUOTED = {1.0: (1207.0, 11.1, 0.656), 0.6: (980.0, 11.4, 0.695), 0.0: (863.0, 11.8, 0.715)}
"""Sorrel, by epsilon: agent-steps/s collecting, train steps/s, seconds an epoch; one thread of a 2-core machine."""


def make_problem(epsilon: float, worlds: int = 1, parallel: bool = True):
    """The configuration of the original's jax example, at a fixed epsilon."""
    import twinax as tx

    learners = tx.iqn.Learners(
        count=AGENTS, width=WIDTH, quantiles=QUANTILES, batch_size=BATCH, epsilon=epsilon, epsilon_decay=0.0
    )
    world = tx.envs.TreasureHunt(variant="gem_food_bone", num_agents=AGENTS, turns=TURNS)
    return tx.iqn.problem(world, {"iqn": learners}, worlds=worlds, parallel=parallel, film=False)


def train_gigaflops() -> float:
    """Arithmetic of one agent's train step: three passes forward, and two products more for the one that learns."""
    rows, inputs = BATCH * QUANTILES, FRAMES * 150
    forward = BATCH * inputs * WIDTH + rows * (COSINES * WIDTH + WIDTH * WIDTH + WIDTH * 5)
    first = BATCH * inputs * WIDTH + rows * COSINES * WIDTH  # inputs and cosines need no gradient
    return (3 * 2 * forward + 2 * 2 * forward - 2 * first) / 1e9


# Parts that run in a process of their own


def work(mode: str, epsilon: float, worlds: int, repeats: int) -> dict:
    """Collecting and whole epochs of one mode: torch, hybrid, jax, or jax-sequential."""
    from twinax.engines import make_engine

    problem = make_problem(epsilon, worlds, parallel=mode != "jax-sequential")
    engine = make_engine(mode.split("-")[0], problem, chunk=5)
    engine.start(0)
    fill = -(-1024 // (TURNS + FRAMES - 1))
    begin = time.perf_counter()
    engine.run(1)
    first = time.perf_counter() - begin
    engine.run(fill)
    epochs = []
    for _ in range(repeats):
        begin = time.perf_counter()
        engine.run(5)
        epochs.append((time.perf_counter() - begin) / 5)
    collect = time_collect(engine, repeats)
    return {
        "epoch": epochs,
        "collect": collect,
        "train": [max(float(np.median(epochs) - c), 1e-9) for c in collect],
        "first_epoch_seconds": first,
        "compile_seconds": engine.compile_seconds,
        "parameters": engine.num_parameters,
        "replay_bytes": replay_bytes(engine.state().carry),
    }


def time_collect(engine, repeats: int, epochs: int = 10) -> list[float]:
    """Seconds of one epoch's playing and storing, draws included, training left out."""
    import jax
    import jax.numpy as jnp
    import torch

    from twinax.noise import key_draws, numpy_draws

    problem = engine.problem
    spec = {name: draw for name, draw in problem.draws().items() if not name.startswith("train/")}
    times = []
    if engine.mode == "jax":
        settings = {k: jnp.asarray(v) for k, v in problem.settings().items()}

        @jax.jit
        def play(state):
            def body(i, replays):
                draws = key_draws(spec, state.seed, state.step + i)
                return problem.remember(dataclasses.replace(state, carry=replays), draws, settings)[0]

            return jax.lax.fori_loop(0, epochs, body, state.carry)

        state = jax.tree.map(jnp.array, engine.state())
        jax.block_until_ready(play(state))
        for _ in range(repeats):
            begin = time.perf_counter()
            jax.block_until_ready(play(state))
            times.append((time.perf_counter() - begin) / epochs)
        return times
    settings = {k: torch.from_numpy(v) for k, v in problem.settings().items()}
    with torch.no_grad():
        for k in range(repeats):
            begin = time.perf_counter()
            draws = {n: torch.from_numpy(np.array(v)) for n, v in numpy_draws(spec, 0, 10_000 + k).items()}
            problem.remember(engine._state, draws, settings)
            times.append(time.perf_counter() - begin)
    return times


def replay_bytes(carry) -> dict[str, int]:
    """Bytes of the stored views, and of the same as float32 observations."""
    views = carry["iqn"].views
    return {"views": int(views.nbytes), "float32": int(np.prod(views.shape[:-1])) * 150 * 4}


# The part that starts them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="run only contenders whose name contains this")
    parser.add_argument("--out", default=str(CACHE / "treasurehunt.json"))
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--matrix", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        mode, epsilon, worlds, repeats = arguments.work
        print(json.dumps(work(mode, float(epsilon), int(worlds), int(repeats))))
        return
    if arguments.matrix is not None:
        print(json.dumps({"rate": matrix_rate(AGENTS, BATCH * QUANTILES, WIDTH)}))
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    repeats = "1" if arguments.quick else "5"
    cases = [(mode, epsilon, 1, 0) for epsilon in (1.0, 0.0) for mode in ("torch", "jax", "jax-sequential")]
    cases += [("jax", 0.6, 1, 0), ("jax", 0.0, 1, 1), ("torch", 0.0, 1, 1), ("jax", 1.0, 64, 0), ("jax", 0.0, 64, 0)]
    rates = {1: ask(__file__, ["--matrix", "1"], 1)["rate"], 2: ask(__file__, ["--matrix", "0"])["rate"]}
    print(f"matrix products: {rates[1]:.0f} GFLOP/s on one core, {rates[2]:.0f} on all")
    print(f"one train step of one agent: {train_gigaflops():.2f} GFLOP")
    columns = {"mode": -16, "eps": 4, "worlds": 6, "cores": 5, "agent-steps/s": 14, "train/s": 8, "GFLOP/s": 8}
    columns |= {"ms/epoch": 9, "compile": 8, "against Sorrel: collect, train, epoch": 40}
    print(" ".join(f"{name:{'<' if width < 0 else '>'}{abs(width)}s}" for name, width in columns.items()))
    results = {}
    for mode, epsilon, worlds, cores in cases:
        name = f"{mode} epsilon {epsilon} worlds {worlds}" + (" one core" if cores == 1 else "")
        if arguments.only not in name:
            continue
        found = ask(__file__, ["--work", mode, str(epsilon), str(worlds), repeats], cores)
        epoch, collect = float(np.median(found["epoch"])), float(np.median(found["collect"]))
        steps, trained = AGENTS * TURNS * worlds / collect, AGENTS / max(epoch - collect, 1e-9)
        theirs = QUOTED[epsilon]
        ratios = (steps / theirs[0], trained / theirs[1], theirs[2] / epoch)
        results[name] = {**found, "agent_steps": steps, "train_steps": trained, "ratios": ratios}
        print(
            f"{mode:16s} {epsilon:4.1f} {worlds:6d} {cores or os.cpu_count():5d} {steps:14,.0f} {trained:8.1f} "
            f"{trained * train_gigaflops():8.0f} {epoch * 1e3:9.1f} {found['compile_seconds']:8.1f}"
            f"{ratios[0]:14.0f}x {ratios[1]:8.1f}x {ratios[2]:8.1f}x",
            flush=True,
        )
    Path(arguments.out).write_text(
        json.dumps({"matrix": rates, "gigaflops": train_gigaflops(), "results": results}, indent=1)
    )
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
