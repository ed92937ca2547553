"""Training steps per second of people's PyTorch code: eager, torch.compile, and `twinax.port.Step`.

    python benchmarks/port.py                                       # all cases that need no peer, on 1 and 2 threads
    python benchmarks/port.py --torchgfn-python VENV/bin/python     # with torchgfn's own modules and trajectories
    python benchmarks/port.py --only ppo,sac --threads 1 --turns 9
    python benchmarks/port.py --memory                              # of a process before and after 2,000 steps
    python benchmarks/port.py --loops                               # whole loops with the sampler in PyTorch

Every contender has its own process, which captures, proves and compiles, and then waits for its turns; rates are
medians over turns, and ratios medians over turns of the ratio in a turn, so that other work on the machine hits both.
Optimizers are PyTorch's fused ones on all sides, and the step's loss is proven equal to PyTorch's before anything is
timed. `products` is the rate of the machine's products of 256x256 in PyTorch and in JAX. The environment of
`--torchgfn-python` has torch, torchgfn 2.4.1 and what twinax needs. Results: JSON beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import CACHE, Contender, ask, machine, matrix_rate, rates, serve

LOOPS = Path(__file__).with_name("port_loops.py")
WARM = 5
SECONDS = 0.5
"""Of a turn, where nothing else is running."""
STEPS = 2000
"""Over which memory must not grow."""
LIMITS = {"sync": 0.03, "capture": 10, "compile": 20, "gain": 0.15}
"""The largest share of a step that is the module's parameters, seconds, and how far a loop's gain may be off."""


# Parts that run in a process of their own


def stepper(name: str, who: str) -> tuple[dict, Callable[[int], Any], Callable[[], float]]:
    """Facts, the step with the batch of a number, and the seconds of giving a module its parameters."""
    import port_cases
    import torch

    case = port_cases.make(name)
    facts = {"parameters": sum(p.numel() for p in case.module.parameters() if p.requires_grad)}
    begin = time.perf_counter()
    if who == "step":
        from twinax.port import Step

        step = Step(case.module, case.updates, targets=case.targets)
        batch = case.convert(case.batches[0])
        functions = [step.function(k, batch) for k in range(len(step.updates))]
        facts["capture"] = time.perf_counter() - begin
        for one in functions:
            one.check(batch).raise_if_different()
        facts["proof"] = time.perf_counter() - begin - facts["capture"]
        step.check = False
        step(batch)
        facts["compile"] = time.perf_counter() - begin - facts["proof"] - facts["capture"]

        def pushed() -> float:
            begin = time.perf_counter()
            step.push_parameters()
            return time.perf_counter() - begin

        return facts, lambda k: step(case.convert(case.batches[k % len(case.batches)])), pushed
    losses = [torch.compile(update.loss) for update in case.updates] if who == "compile" else None
    step = port_cases.eager(case, losses)
    step(case.batches[0])
    facts["compile"] = time.perf_counter() - begin
    return facts, lambda k: step(case.batches[k % len(case.batches)]), lambda: 0.0


def work(name: str, who: str, threads: int) -> None:
    """Steps a second of one contender, once for every turn."""
    import torch

    torch.set_num_threads(threads)
    try:
        facts, step, pushed = stepper(name, who)
    except Exception as error:
        if who != "compile":
            raise
        print(json.dumps({"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}), flush=True)
        return
    for k in range(WARM):
        step(k)
    begin = time.perf_counter()
    for k in range(WARM):
        step(k)
    count = int(max(2, min(1000, SECONDS * WARM / (time.perf_counter() - begin))))

    def turn() -> dict[str, float]:
        found = rates(lambda: [step(k) for k in range(count)], count)
        return {**found, "sync": float(np.median([pushed() for _ in range(9)])) * found["rate"]}

    serve(facts, turn)


def products(threads: int) -> None:
    """The machine's products of 256x256 by both, GFLOP/s, once for every turn."""
    import torch

    torch.set_num_threads(threads)
    a, b = torch.ones(256, 256), torch.full((256, 256), 1 / 256)

    def turn() -> dict[str, float]:
        best = np.inf
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(10):
                a @ b
            best = min(best, time.perf_counter() - begin)
        return {"torch": 10 * 2 * 256**3 / best / 1e9, "jax": matrix_rate(1, 256, 256)}

    serve({}, turn)


def memory(name: str) -> dict[str, float]:
    """Peak memory in GB when the step is warm, and after many more steps."""
    _, step, _ = stepper(name, "step")

    def peak(steps: int) -> float:
        for k in range(steps):
            step(k)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2

    return {"before": peak(200), "after": peak(STEPS)}


# The part that starts them


def run(name: str, threads: int, arguments: Any) -> dict | None:
    """One case on so many threads: its contenders by turns."""
    import port_cases

    wanted = port_cases.CASES[name][1]
    python = arguments.torchgfn_python if name == "torchgfn" else sys.executable
    if not python:
        print(f"{name:12s} is left out: it needs --torchgfn-python", flush=True)
        return None
    waiting = {"products": Contender(__file__, ["--products", str(threads)], cores=threads)}
    for who in arguments.who.split(","):
        waiting[who] = Contender(__file__, ["--work", name, who, str(threads)], python, cores=threads)
        if failed := waiting[who].facts.get("failed"):
            print(f"{name:12s} {threads:7d} {who:8s} is left out: {failed}", flush=True)
            waiting.pop(who).close()
    turns, load = [], []
    for _ in range(arguments.turns):
        turns.append({who: one.go() for who, one in waiting.items()})
        load.append(os.getloadavg()[0])
    facts = {who: one.facts for who, one in waiting.items()}
    for one in waiting.values():
        one.close()
    median = {who: {key: middle([turn[who][key] for turn in turns]) for key in turns[0][who]} for who in waiting}
    ratios = {
        who: {
            key: middle([turn[who][key] / turn["eager"][key] for turn in turns]) for key in ("rate", "processor_rate")
        }
        for who in waiting
        if who != "products"
    }
    for who, ratio in ratios.items():
        line = f"{name:12s} {threads:7d} {who:8s} {facts[who]['parameters']:10,d} {1e3 / median[who]['rate']:9.3f} ms"
        line += f" {1e3 / median[who]['processor_rate']:9.3f} ms {ratio['rate']:7.2f} {ratio['processor_rate']:9.2f}"
        if who == "step":
            parts = {key: facts[who][key] for key in ("capture", "proof", "compile")}
            line += f"  wanted {wanted:g}; sync {median[who]['sync']:.1%}; "
            line += ", ".join(f"{key} {seconds:.1f} s" for key, seconds in parts.items())
        print(line, flush=True)
    rate = median["products"]
    print(
        f"{'':12s} {threads:7d} products {rate['torch']:.0f} GFLOP/s in PyTorch, {rate['jax']:.0f} in JAX; "
        f"load {min(load):.1f} to {max(load):.1f} on {os.cpu_count()} cores",
        flush=True,
    )
    return {"median": median, "ratios": ratios, "facts": facts, "turns": turns, "load": load, "wanted": wanted}


def loop(name: str, threads: int, arguments: Any) -> dict:
    """A whole loop by turns, eager and with the step, beside what the step's profile expects."""
    waiting = {who: Contender(str(LOOPS), [name, who, str(threads)], cores=threads) for who in ("eager", "step")}
    turns = []
    for _ in range(arguments.turns):
        turns.append({who: one.go() for who, one in waiting.items()})
    for one in waiting.values():
        one.close()
    expected, ceiling = (middle([turn["step"][key] for turn in turns]) for key in ("expected", "ceiling"))
    gain = middle([turn["eager"]["seconds"] / turn["step"]["seconds"] for turn in turns])
    used = middle([turn["eager"]["processor"] / turn["step"]["processor"] for turn in turns])
    seconds = {who: middle([turn[who]["seconds"] for turn in turns]) for who in waiting}
    print(
        f"{name:5s} {threads} threads: eager {seconds['eager']:.2f} s, with the step {seconds['step']:.2f} s: "
        f"{gain:.2f}x by the clock, {used:.2f}x by processor time; expected {expected:.2f}x, off by "
        f"{abs(gain / expected - 1):.0%} (wanted within {LIMITS['gain']:.0%}); ceiling {ceiling:.2f}x; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return {"gain": gain, "processor_gain": used, "expected": expected, "ceiling": ceiling, "turns": turns}


def middle(values: list[float]) -> float:
    return float(np.median(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases or loops by name, with commas; the others stay")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--who", default="eager,compile,step", help="contenders; the first is always eager")
    parser.add_argument("--torchgfn-python", default="", help="the Python of an environment with torchgfn and twinax")
    parser.add_argument("--memory", action="store_true", help="measure memory in place of speed")
    parser.add_argument("--loops", action="store_true", help="measure whole loops in place of steps")
    parser.add_argument("--out", default=str(CACHE / "port.json"))
    hidden: dict[str, tuple[int, Callable]] = {
        "work": (3, lambda name, who, threads: work(name, who, int(threads))),
        "products": (1, lambda threads: products(int(threads))),
        "peak": (1, lambda name: print(json.dumps(memory(name)))),
    }
    for name, (number, _) in hidden.items():
        parser.add_argument(f"--{name}", nargs=number, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name, (_, function) in hidden.items():
        if words := getattr(arguments, name):
            function(*words)
            return
    import port_cases

    cases = ("ppo", "sac") if arguments.loops else tuple(port_cases.CASES)
    names = arguments.only.split(",") if arguments.only else list(cases)
    if unknown := set(names) - set(cases):
        parser.error(f"--only has {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
    CACHE.mkdir(parents=True, exist_ok=True)
    out = Path(arguments.out)
    kept = json.loads(out.read_text()) if out.exists() else {}
    about = {**machine(), "python": platform.python_version(), "processor": platform.processor()}
    print(", ".join(f"{key} {value}" for key, value in about.items() if value), flush=True)
    threads = [int(word) for word in arguments.threads.split(",")]
    if not (arguments.memory or arguments.loops):
        print(f"{'case':12s} threads who      parameters        clock    processor   ratio  by processor", flush=True)
    for name in names:
        for number in threads:
            kind = "memory" if arguments.memory else "loops" if arguments.loops else "cases"
            if arguments.memory:
                python = arguments.torchgfn_python if name == "torchgfn" else sys.executable
                found = ask(__file__, ["--peak", name], threads=number, python=python) if python else None
                if found:
                    print(f"{name:12s} peak {found['before']:.3f} GB, {found['after']:.3f} GB after {STEPS:,} steps")
            else:
                found = (loop if arguments.loops else run)(name, number, arguments)
            if found:
                kept.setdefault(kind, {})[f"{name} {number}"] = found
                out.write_text(json.dumps({**kept, "machine": about}, indent=1))
    print(f"written to {out.name}")


if __name__ == "__main__":
    main()
