"""Steps per second on the 20^4 hypergrid: the three modes, and the peers gfnx 0.0.1 and torchgfn 2.4.1.

    python benchmarks/gflownet_hypergrid.py                 # everything; first run trains the recipe (minutes)
    python benchmarks/gflownet_hypergrid.py --quick         # a few steps each, to see that it runs
    python benchmarks/gflownet_hypergrid.py --no-peers

Batch 16, MLP 256x2 with all heads, learned P_B, easy reward. Two stages: a fresh policy, and the policy after the
62,500-step trajectory-balance recipe (epsilon 0.1 to 0 over 30,000 steps, Adam 1e-3, log Z 0.1). Every one runs in
its own process, one after the other, in several rounds; compilation is apart; rates are medians over rounds. Step
sizes are 1e-8 while timing, so that every contender keeps the policy of its stage. Results: JSON beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"
RECIPE_STEPS = 62_500
OBJECTIVES = ("trajectory_balance", "detailed_balance", "subtrajectory_balance")
POINTS = 5
"""Stages of the recipe at which the modes are timed, to add up a whole recipe."""


def make_problem(objective: str, rate: float = 1e-3, epsilon: bool = False):
    """The problem of the recipe."""
    import twinax as tx

    exploration = tx.gflownet.Exploration(epsilon=0.1, epsilon_end=0.0, epsilon_steps=30_000) if epsilon else None
    return tx.gflownet.problem(
        tx.envs.Hypergrid(dim=4, side=20, reward=tx.envs.GridReward.easy()),
        objective,
        batch_size=16,
        exploration=exploration,
        optimizer=tx.Optimizer(learning_rate=rate, rates={"log_z": 100 * rate}),
    )


# Parts that run in a process of their own


def work(mode: str, objective: str, weights: str, steps: int, threads: int) -> dict:
    """Time one mode; `weights` is a file of a trained policy, or 'fresh'."""
    if mode != "jax" and threads:
        import torch

        torch.set_num_threads(threads)
    from twinax.engines import make_engine

    begin = time.perf_counter()
    problem = make_problem(objective, 1e-8)
    engine = make_engine(problem, mode=mode, chunk=50)
    state = problem.init(0)
    engine.load(state if weights == "fresh" else with_policy(state, weights))
    engine.run(1)
    start = time.perf_counter() - begin
    engine.run(min(steps, 20))
    rates, lengths = [], []
    for _ in range(3):
        begin = time.perf_counter()
        logs = engine.run(steps)
        rates.append(steps / (time.perf_counter() - begin))
        lengths.append(float(logs["length"].mean()))
    return {
        "rates": rates,
        "mean_length": float(np.mean(lengths)),
        "first_step_seconds": start,
        "compile_seconds": engine.compile_seconds,
        "parameters": engine.num_parameters,
        "profile": engine.profile(),
    }


def with_policy(state, path: str):
    """The state with a trained policy; a flow head that the file lacks keeps its fresh row."""
    import dataclasses

    from safetensors.numpy import load_file

    from twinax import tree

    stored, leaves = load_file(path), dict(tree.named_leaves(state.networks))
    for name, value in stored.items():
        if name in leaves:
            fresh = leaves[name].copy()
            fresh[tuple(slice(n) for n in value.shape)] = value
            leaves[name] = fresh
    return dataclasses.replace(state, networks=tree.with_leaves(state.networks, leaves))


def recipe(steps: int) -> dict:
    """Train the whole recipe in jax mode, keeping the policy at `POINTS` stages."""
    import twinax as tx
    from twinax.engines import make_engine

    engine = make_engine(make_problem("trajectory_balance", epsilon=True), mode="jax", chunk=250)
    engine.start(0)
    tx.bridge.save_weights(CACHE / "policy-0.safetensors", engine.state().networks)
    engine.run(1)
    curve, seconds = [], 0.0
    every = steps // (POINTS - 1)
    for k in range(1, POINTS):
        pieces = 5
        for _ in range(pieces):
            begin = time.perf_counter()
            engine.run(every // pieces)
            seconds += time.perf_counter() - begin
            metrics = {n: v for n, v in engine.evaluate().items() if not n.startswith("picture/")}
            curve.append({"step": engine.step, "seconds": seconds, **metrics})
        tx.bridge.save_weights(CACHE / f"policy-{k}.safetensors", engine.state().networks)
    return {"seconds": seconds, "steps": engine.step, "curve": curve, "compile_seconds": engine.compile_seconds}


# The part that starts them


def ask(command: list[str]) -> dict:
    """Run a process and read the JSON of its last line."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def peers_python(directory: Path) -> str:
    """A virtual environment with the two peers, installed by name."""
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "torch==2.13.0"], check=True)
        subprocess.run([*pip, "gfnx==0.0.1", "torchgfn==2.4.1", "equinox", "safetensors"], check=True)
    return str(python)


def contenders(arguments) -> dict[str, list[str]]:
    """The commands by name: 'who objective stage'."""
    python, here = sys.executable, str(Path(__file__).resolve())
    few = arguments.quick
    commands = {}
    trained = str(CACHE / f"policy-{POINTS - 1}.safetensors")
    for stage, weights in (("fresh", "fresh"), ("trained", trained)):
        for objective in OBJECTIVES:
            steps = {"jax": 10 if few else 400, "hybrid": 5 if few else 100, "torch": 5 if few else 100}
            for mode, number in steps.items():
                extra = [mode, objective, weights, str(number), str(arguments.threads)]
                commands[f"{mode} {objective} {stage}"] = [python, here, "--work", *extra]
    for k in range(1, POINTS - 1):
        for mode, number in (("jax", 10 if few else 300), ("torch", 5 if few else 60)):
            weights = str(CACHE / f"policy-{k}.safetensors")
            extra = [mode, "trajectory_balance", weights, str(number), str(arguments.threads)]
            commands[f"{mode} trajectory_balance point-{k}"] = [python, here, "--work", *extra]
    if not arguments.no_peers:
        other, folder = peers_python(Path(arguments.peers)), ROOT / "benchmarks" / "peers"
        for objective in OBJECTIVES:
            number = 2 if few else {"subtrajectory_balance": 10}.get(objective, 60)
            commands[f"gfnx {objective} any"] = [other, str(folder / "gfnx_hypergrid.py"), objective, str(number)]
        script = [other, str(folder / "torchgfn_hypergrid.py"), "3" if few else "15", str(arguments.threads or 2)]
        commands["torchgfn trajectory_balance fresh"] = script
        commands["torchgfn trajectory_balance trained"] = [*script, trained]
    return commands


def whole_recipe(rate: dict[str, float], mode: str) -> float:
    """Seconds for the recipe, from the rates at its stages (trapezoids of the time per step)."""
    stages = ["fresh", *(f"point-{k}" for k in range(1, POINTS - 1)), "trained"]
    times = [1.0 / rate[f"{mode} trajectory_balance {stage}"] for stage in stages]
    return float(np.trapezoid(times, np.linspace(0, RECIPE_STEPS, len(times))))


def ratios(rate: dict[str, float]) -> dict[str, float]:
    """The figures that are asked for."""
    found = {}
    tb, db, sub = OBJECTIVES
    for objective in OBJECTIVES:
        for stage in ("fresh", "trained"):
            ours = rate.get(f"jax {objective} {stage}")
            theirs = rate.get(f"gfnx {objective} any")
            if ours and theirs:
                found[f"jax / gfnx, {objective}, {stage}"] = ours / theirs
            found[f"jax / torch, {objective}, {stage}"] = ours / rate[f"torch {objective} {stage}"]
            found[f"hybrid / torch, {objective}, {stage}"] = (
                rate[f"hybrid {objective} {stage}"] / rate[f"torch {objective} {stage}"]
            )
    for stage in ("fresh", "trained"):
        if f"torchgfn {tb} {stage}" in rate:
            found[f"torch / torchgfn, {tb}, {stage}"] = rate[f"torch {tb} {stage}"] / rate[f"torchgfn {tb} {stage}"]
    jax_recipe, torch_recipe = whole_recipe(rate, "jax"), whole_recipe(rate, "torch")
    found["jax / torch, whole recipe"] = torch_recipe / jax_recipe
    if f"gfnx {tb} any" in rate:
        found["jax / gfnx, whole recipe"] = RECIPE_STEPS / rate[f"gfnx {tb} any"] / jax_recipe
    return found


def hybrid_facts(results: dict[str, list[dict]], rate: dict[str, float]) -> dict[str, float]:
    """The gradient phase of hybrid against torch, and its predicted total against the measured one."""
    facts = {}
    for stage in ("fresh", "trained"):
        for objective in OBJECTIVES:
            plain = median_profile(results[f"torch {objective} {stage}"])
            mixed = median_profile(results[f"hybrid {objective} {stage}"])
            phases = ("loss", "backward", "optimizer")
            gradient, compiled = (sum(profile[name] for name in phases) for profile in (plain, mixed))
            facts[f"gradient phase torch / hybrid, {objective}, {stage}"] = gradient / compiled
            facts[f"hybrid predicted / measured total, {objective}, {stage}"] = (
                sum(mixed.values()) * rate[f"hybrid {objective} {stage}"]
            )
    return facts


def median_profile(rows: list[dict]) -> dict[str, float]:
    return {name: float(np.median([row["profile"][name] for row in rows])) for name in rows[0]["profile"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peers", default=str(ROOT / ".cache" / "peers"), help="virtual environment of the peers")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0, help="PyTorch threads; 0 leaves the default")
    parser.add_argument("--only", default="", help="run only contenders whose name contains this")
    parser.add_argument("--out", default=str(CACHE / "gflownet_hypergrid.json"))
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--recipe", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        mode, objective, weights, steps, threads = arguments.work
        print(json.dumps(work(mode, objective, weights, int(steps), int(threads))))
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    if arguments.recipe:
        print(json.dumps(recipe(arguments.recipe)))
        return
    report = CACHE / ("recipe-quick.json" if arguments.quick else "recipe.json")
    if not report.exists():
        steps = 400 if arguments.quick else RECIPE_STEPS
        print(f"training the recipe: {steps} steps", flush=True)
        report.write_text(json.dumps(ask([sys.executable, str(Path(__file__).resolve()), "--recipe", str(steps)])))
    results: dict[str, list[dict]] = {}
    for turn in range(arguments.rounds):
        for name, command in contenders(arguments).items():
            if arguments.only in name:
                results.setdefault(name, []).append(ask(command))
                print(f"round {turn + 1}  {name:44s} {np.median(results[name][-1]['rates']):9.1f} steps/s", flush=True)
    rate = {name: float(np.median([r for row in rows for r in row["rates"]])) for name, rows in results.items()}
    out = {"machine": machine(), "rates": rate, "results": results, "recipe": json.loads(report.read_text())}
    if not arguments.only:
        out["ratios"], out["hybrid"] = ratios(rate), hybrid_facts(results, rate)
        for name, value in {**out["ratios"], **out["hybrid"]}.items():
            print(f"{name:64s} {value:8.2f}")
        trained = out["recipe"]
        last = trained["curve"][-1]
        print(f"recipe: {trained['steps']} steps in {trained['seconds']:.0f} s, TV {last['total_variation']:.4f}")
    Path(arguments.out).write_text(json.dumps(out, indent=1))
    print(f"written to {arguments.out}")


def machine() -> dict:
    import jax
    import torch

    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    main()
