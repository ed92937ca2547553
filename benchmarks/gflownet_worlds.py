"""Training steps per second on GFlowNet worlds: twinax, and the peers gfnx and torchgfn.

    python benchmarks/gflownet_worlds.py                                          # what needs no files and no peers
    python benchmarks/gflownet_worlds.py --tfbind8 tfbind8.npz --qm9 qm9.npz --ds1 DS1.fasta \\
        --gfnx CLONE --gfnx-python VENV/bin/python --torchgfn-python VENV/bin/python
    python benchmarks/gflownet_worlds.py --only tfbind8,dag --turns 3 --modes jax,torch
    python benchmarks/gflownet_worlds.py --memory --ds1 DS1.fasta                 # peak memory of a process
    python benchmarks/gflownet_worlds.py --result bitseq                          # time to a result

Batch, network, heads and backward policy (uniform) of a row are those of its case; `gfnx-own` and the like have the
network of gfnx's baseline, `telling` shows networks the columns that tell trees apart in place of all. Every contender
has its own process, which compiles and then waits for its turns; rates are medians over turns, and ratios medians over
turns of the ratio in a turn, so that other work on the machine hits both. GFLOP/s are those that XLA counts in a
compiled step, beside the machine's rate of products of the case's own shape, which has its turns too. Where several
modes are asked for, parity of the case is checked first. The peers' scripts say what their environments need; clones
and environments belong outside of this repository. `twinax data tfbind8 WHEEL` makes tfbind8.npz. Results: JSON beside
the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from measuring import CACHE, ROOT, Contender, ask, machine, matrix_rate, rates, serve

PEERS = ROOT / "benchmarks" / "peers"


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    batch: int
    steps: int
    """Training steps of one turn, where nothing else is running about a second."""
    product: tuple[int, int]
    """Rows and width of the product that the machine's rate is taken of: those of the network's main layers."""
    wanted: Mapping[str, float]
    """How many times as fast as each peer it is meant to be."""
    gfnx: Mapping[str, int] = field(default_factory=dict)
    """Steps of a turn of gfnx, by its case."""
    torchgfn: int = 0
    needs: str = ""
    """The file that it needs, by the name of the option."""


CASES = {
    "tfbind8": Case(16, 400, (128, 256), {"gfnx": 3}, {"tfbind8": 80}, needs="tfbind8"),
    "qm9": Case(16, 400, (80, 256), {"gfnx": 3}, {"qm9": 80}, needs="qm9"),
    "bitseq": Case(16, 10, (3840, 64), {"gfnx": 1.5, "torchgfn": 10}, {"bitseq": 2}, torchgfn=1),
    "dag": Case(128, 10, (7040, 128), {"gfnx": 2, "torchgfn": 10}, {"dag": 4, "dag-own": 4}, torchgfn=2),
    "ising": Case(256, 2, (20736, 256), {"gfnx": 2}, {"ising": 1}),
    "phylo": Case(32, 1, (22464, 256), {"gfnx": 10}, {"phylo": 1, "phylo-own": 1}, needs="ds1"),
}
"""By name; batches are those of gfnx's baselines."""


def make_problem(name: str, file: str = "", columns: str = "all", batch: int = 0):
    """The problem of a case."""
    import twinax as tx
    from twinax.gflownet import PolicyOptions, TargetOptions, objectives
    from twinax.networks import GraphNetwork, PairNetwork, TokenTransformer

    def made(env, objective, rate, hidden=(256, 256), optimizer=None, **more):
        options = {"batch_size": batch or CASES[name].batch, "policy": PolicyOptions(hidden=hidden, backward="uniform")}
        optimizer = optimizer or tx.Optimizer(learning_rate=rate, rates={"log_z": 0.05})
        return tx.gflownet.problem(env, objective, optimizer=optimizer, **options, **more)

    if name == "tfbind8":
        return made(tx.envs.TFBind8(file), "trajectory_balance", 5e-4)
    if name == "qm9":
        return made(tx.envs.QM9Small(file), "trajectory_balance", 5e-4)
    if name == "ising":
        env = tx.envs.Ising(side=9, sigma=0.1)
        return made(env, "trajectory_balance", 1e-3, hidden=(256,) * 4)
    if name == "bitseq":
        adam = tx.Optimizer(name="adamw", learning_rate=1e-3, weight_decay=1e-5, rates={"log_z": 0.05})
        env, network = tx.envs.BitSequences(order="any"), TokenTransformer()
        return made(env, "trajectory_balance", 1e-3, optimizer=adam, network=network)
    if name == "dag":
        i, j = np.arange(100)[:, None], np.arange(5)[None]
        env = tx.envs.DAG(data=np.sin(1 + i * (j + 1)) + (j > 0) / 2 * np.sin(1 + i * j))
        objective = objectives.ModifiedDetailedBalance(residual_loss="huber")
        network, targets = GraphNetwork(width=128, layers=1), TargetOptions(every=1000)
        return made(env, objective, 1e-4, network=network, targets=targets)
    env = tx.envs.PhylogeneticTree(data=file, columns=columns)
    network = PairNetwork(width=32, layers=6, heads=8, feedforward=128, hidden=(256, 256, 128))
    objective = objectives.ForwardLooking(residual_loss="huber")
    return made(env, objective, 3e-4, network=network, targets=TargetOptions(rate=0.005))


# Parts that run in a process of their own


def work(name: str, mode: str, steps: int, file: str) -> None:
    """Steps a second of a case in a mode such as jax or jax-telling, once for every turn."""
    from twinax.engines import make_engine

    mode, _, columns = mode.partition("-")
    engine = make_engine(make_problem(name, file, columns or "all"), mode=mode, chunk=steps)
    engine.start(0)
    begin = time.perf_counter()
    logs = engine.run(steps)
    first = time.perf_counter() - begin

    facts = {"parameters": engine.num_parameters, "compile_seconds": engine.compile_seconds, "first_call": first}
    serve({**facts, "mean_length": float(np.mean(logs["length"]))}, lambda: rates(lambda: engine.run(steps), steps))


def gigaflops(name: str, file: str, columns: str) -> float:
    """What XLA counts in a step: its loops written out once for every turn they make, and the loss of the batch and in
    the size that the step gives to its update."""
    import jax

    from twinax.gflownet._reading import Reader
    from twinax.noise import key_draws

    problem = make_problem(name, file, columns)
    state, inputs = jax.tree.map(jax.numpy.asarray, (problem.init(0), problem.inputs()))
    draws = key_draws(problem.draws(), jax.numpy.uint32(0), jax.numpy.int32(0))

    def counted(function, *arguments) -> float:
        costs: Any = jax.jit(function).lower(*arguments).compile().cost_analysis()
        return float(costs["flops"]) / 1e9

    env = problem.env.given(inputs.data.get("constants", {}))
    states = jax.tree.map(jax.numpy.asarray, env.reset(problem.batch_size))

    def act(networks, held, states):
        return Reader.of(env, networks.policy).step(held, states, 0)

    held = Reader.of(env, state.networks.policy).start(states, env.max_steps)
    acting = counted(act, state.networks, held, states)
    given = []
    problem.step(state, draws, inputs, lambda state, loss, batch, still=(): (given.append(batch) or state, {}))
    batch, sizes = given[0], problem.compile.sizes
    rows = {"size": min(size for size in sizes if size >= int(problem.compile.count(batch)))} if sizes else {}
    loss = counted(jax.grad(lambda networks: problem.loss(networks, batch, **rows)[0], allow_int=True), state.networks)
    return env.max_steps * acting + loss


def memory(name: str, file: str, columns: str, mode: str) -> dict:
    """Peak memory of a process that builds a case and makes three training steps."""
    from twinax.engines import make_engine

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2

    before = peak()
    engine = make_engine(make_problem(name, file, columns), mode=mode, chunk=1)
    engine.start(0)
    ready = peak()
    engine.run(3)
    return {"imports": before, "ready": ready, "peak": peak()}


@dataclass(frozen=True)
class Result:
    """What a case is trained to, and how."""

    metric: str
    goal: float
    sign: int
    """Whether more (1) or less (-1) of the metric is better."""
    words: str
    """What `twinax train` is given, but for the file."""
    every: int
    """Training steps between evaluations."""


RESULTS = {
    "tfbind8": Result(
        "total_variation",
        0.05,
        -1,
        "env=tfbind8 policy.network=tabular exploration.epsilon=0 optimizer.learning_rate=0.05 "
        "trainer.batch_size=2048 trainer.steps=1500",
        every=100,
    ),
    "bitseq": Result(
        "test_spearman",
        0.9,
        1,
        # With words in their order there is one way to a string, so that one trajectory back makes log P exact.
        "env=bitseq proxy.beta=1 proxy.scale=1 policy.network=mlp policy.hidden=[512,512] optimizer.name=adam "
        "optimizer.weight_decay=0 optimizer.log_z_learning_rate=0.3 trainer.batch_size=64 trainer.steps=2000 "
        "metrics.test_size=7200 metrics.rollouts=1",
        every=250,
    ),
}


def result(name: str, file: str, steps: int, every: int) -> None:
    """Train with the settings of a case until its metric is there, by the clock and by the time of processors, without
    compilation and evaluations."""
    from twinax import conf
    from twinax.engines import make_engine

    wanted, given = RESULTS[name], f" data={file}" if file else ""
    print(f"twinax train {wanted.words}{given}", flush=True)
    config = conf.compose(f"{wanted.words}{given}".split())
    every, steps = every or wanted.every, steps or config.trainer.steps
    engine = make_engine(conf.build_problem(config), mode="jax", chunk=every)
    engine.start(0)
    engine.run(1)  # compiles; then everything from the beginning
    engine.start(0)
    seconds = processor = 0.0
    while engine.step < steps:
        begin, used = time.perf_counter(), time.process_time()
        engine.run(every)
        seconds, processor = seconds + time.perf_counter() - begin, processor + time.process_time() - used
        reached = float(engine.evaluate()[wanted.metric])
        print(
            f"{name} {wanted.metric} {reached:.4f} after {engine.step} steps of {config.trainer.batch_size}, "
            f"{seconds:.0f} s by the clock and {processor:.0f} s of processors, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        if wanted.sign * reached >= wanted.sign * wanted.goal:
            return
    print(f"{name} did not reach {wanted.goal} in {engine.step} steps", flush=True)


def knowing(numbers: tuple[int, ...] = (10, 20, 40, 50)) -> None:
    """What the rank correlation of bit sequences is for who knows some of the 60 modes, or only what they are made of:
    less than 0.9 does not say that a sampler is wrong about what it has found."""
    import twinax as tx
    from twinax.envs._bit_modes import BLOCKS, as_bits
    from twinax.gflownet._metrics import held_out_correlations

    env = tx.envs.BitSequences()
    modes, test = as_bits(env.reward.strings(env.bits)), env.test_states(0)
    assert test is not None
    bits = env.bits_of(test)
    distances = (bits[:, None] != modes).sum(-1)
    blocks = (bits.reshape(len(bits), -1, 1, 8) != as_bits(BLOCKS)).sum(-1).min(-1).sum(-1)
    guesses = {"the blocks": blocks, **{f"{k} modes": distances[:, :k].min(-1) for k in numbers}}
    for who, guess in guesses.items():
        found = held_out_correlations(-guess.astype(float), -distances.min(-1).astype(float))
        print(f"bitseq test_spearman {found['test_spearman']:.2f} for who knows {who}", flush=True)


def check_parity(name: str, file: str, modes: str) -> None:
    """Compare modes of a case with a small batch in float64; nothing is timed where they differ."""
    from twinax.parity import check

    check(make_problem(name, file, batch=2), modes.split(","), steps=1).raise_if_different()


# The part that starts them


def waiting_for(name: str, arguments, file: str) -> dict[str, Contender]:
    """The contenders of a case, compiled and waiting."""
    case, here = CASES[name], __file__
    rows, width = case.product
    found = {"products": Contender(here, ["--products", str(rows), str(width)])}
    modes = arguments.modes.split(",")
    if name == "phylo" and "jax" in modes:
        modes.append("jax-telling")
    for mode in modes:
        steps = case.steps if mode.startswith("jax") else max(1, case.steps // 4)
        found[mode] = Contender(here, ["--work", name, mode, str(scaled(steps, arguments)), file])
    if arguments.gfnx:
        for theirs, steps in case.gfnx.items():
            words = [arguments.gfnx, theirs, str(case.batch), str(scaled(steps, arguments)), *([file] if file else [])]
            shown = "gfnx-own" if theirs.endswith("-own") else "gfnx"
            found[shown] = Contender(str(PEERS / "gfnx_worlds.py"), words, python=arguments.gfnx_python)
    if arguments.torchgfn_python and case.torchgfn:
        words = [name, str(case.batch), str(case.torchgfn)]
        found["torchgfn"] = Contender(str(PEERS / "torchgfn_worlds.py"), words, python=arguments.torchgfn_python)
    return found


def scaled(steps: int, arguments) -> int:
    return max(1, round(steps * arguments.scale))


def run(name: str, arguments) -> dict | None:
    """One case: its contenders by turns."""
    case = CASES[name]
    file = str(Path(getattr(arguments, case.needs)).resolve()) if case.needs and getattr(arguments, case.needs) else ""
    if case.needs and not file:
        print(f"{name:8s} is left out: it needs --{case.needs} FILE", flush=True)
        return None
    if len(arguments.modes.split(",")) > 1:
        ask(__file__, ["--parity", name, file, arguments.modes])
    flops = ask(__file__, ["--flops", name, file, "all"])["gigaflops"]
    waiting, load = waiting_for(name, arguments, file), []
    turns = []
    for _ in range(arguments.turns):
        turns.append({who: one.go() for who, one in waiting.items()})
        load.append(os.getloadavg()[0])
    for one in waiting.values():
        one.close()
    first, *others = [who for who in waiting if who != "products"]
    median = {who: {key: middle([turn[who][key] for turn in turns]) for key in turns[0][who]} for who in waiting}
    # A ratio within a turn is hit on both sides by what else the machine does; by processors' time it hardly is at all.
    ratios = {
        who: {key: middle([turn[first][key] / turn[who][key] for turn in turns]) for key in ("rate", "processor_rate")}
        for who in others
    }
    for who in (first, *others):
        line = (
            f"{name:8s} {who:12s} {case.batch:5d} {waiting[who].facts['parameters']:9,d} {median[who]['rate']:9.2f}/s"
        )
        if who == first:
            share = middle([turn[who]["rate"] * flops / turn["products"]["rate"] for turn in turns])
            line += (
                f"  {flops:.3g} GFLOP a step, {share:.0%} of the {median['products']['rate']:.0f} GFLOP/s of products"
            )
        else:
            goal = f", wanted {case.wanted[who]:g}x" if who in case.wanted else ""
            clock, processor = ratios[who].values()
            line += f"  {first} is {clock:.1f}x by the clock, {processor:.1f}x by processor time{goal}"
            if "mean_length" in waiting[who].facts:
                line += ", actions of a trajectory: " + ", ".join(
                    f"{one} {waiting[one].facts['mean_length']:.1f}" for one in (first, who)
                )
        print(line, flush=True)
    facts = {who: one.facts for who, one in waiting.items()}
    print(f"{'':8s} load {min(load):.1f} to {max(load):.1f} on {os.cpu_count()} cores", flush=True)
    return {"rates": median, "ratios": ratios, "turns": turns, "facts": facts, "gigaflops": flops, "load": load}


def middle(values: list[float]) -> float:
    return float(np.median(values))


def show_memory(arguments) -> dict:
    """Peak memory by case, GB."""
    found = {}
    asked = [("bitseq", "", "all", 1.0)]
    if arguments.ds1:
        file = str(Path(arguments.ds1).resolve())
        asked += [("phylo", file, "all", 2.0), ("phylo", file, "telling", 2.0)]
    for name, file, columns, most in asked:
        for mode in arguments.modes.split(","):
            one = ask(__file__, ["--peak", name, file, columns, mode])
            found[f"{name} {columns} {mode}"] = one
            print(
                f"{name:8s} {columns:8s} {mode:6s} peak {one['peak']:.2f} GB (wanted below {most:g}), of which "
                f"{one['imports']:.2f} were there before the problem was made",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases by name, with commas; the others keep their figures")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="steps of a turn, as a multiple of the usual number")
    parser.add_argument("--modes", default="jax", help="modes of twinax, with commas")
    parser.add_argument("--gfnx", default="", help="a clone of gfnx")
    parser.add_argument("--gfnx-python", default="", help="the Python of the environment that it needs")
    parser.add_argument("--torchgfn-python", default="", help="the Python of an environment with torchgfn")
    for name, what in (("tfbind8", "TFBind8"), ("qm9", "QM9-small"), ("ds1", "the alignment DS1")):
        parser.add_argument(f"--{name}", default="", help=f"file of {what}")
    parser.add_argument("--memory", action="store_true", help="measure memory in place of speed")
    parser.add_argument("--result", choices=RESULTS, help="train one case until its metric is reached")
    parser.add_argument("--steps", type=int, default=0, help="training steps at most, with --result; 0: its command's")
    parser.add_argument("--every", type=int, default=0, help="steps between evaluations, with --result; 0: the case's")
    parser.add_argument("--out", default=str(CACHE / "gflownet_worlds.json"))
    hidden: dict[str, tuple[int, Callable]] = {
        "work": (4, lambda name, mode, steps, file: work(name, mode, int(steps), file)),
        "flops": (3, lambda *words: print(json.dumps({"gigaflops": gigaflops(*words)}))),
        "peak": (4, lambda *words: print(json.dumps(memory(*words)))),
        "parity": (3, lambda *words: (check_parity(*words), print(json.dumps("equal")))),
        "products": (2, lambda rows, width: serve({}, lambda: {"rate": matrix_rate(1, int(rows), int(width))})),
    }
    for name, (number, _) in hidden.items():
        parser.add_argument(f"--{name}", nargs=number, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name, (_, function) in hidden.items():
        if words := getattr(arguments, name):
            function(*words)
            return
    if bool(arguments.gfnx) != bool(arguments.gfnx_python):
        parser.error("--gfnx and --gfnx-python go together")
    if arguments.result:
        needed = CASES[arguments.result].needs
        file = getattr(arguments, needed) if needed else ""
        if arguments.result == "bitseq":
            knowing()
        result(arguments.result, file, arguments.steps, arguments.every)
        return
    names = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"--only has {', '.join(sorted(unknown))}; cases are {', '.join(CASES)}")
    CACHE.mkdir(parents=True, exist_ok=True)
    out = Path(arguments.out)
    kept = json.loads(out.read_text()) if out.exists() else {"cases": {}}
    about = {**machine(), "python": platform.python_version(), "processor": platform.processor()}
    print(", ".join(f"{key} {value}" for key, value in about.items() if value), flush=True)
    if arguments.memory:
        kept["memory"] = show_memory(arguments)
    else:
        print(f"{'world':8s} {'who':12s} {'batch':>5s} {'weights':>9s} {'steps':>11s}", flush=True)
        for name in names:
            if found := run(name, arguments):
                kept["cases"][name] = found
                out.write_text(json.dumps({**kept, "machine": about}, indent=1))
    out.write_text(json.dumps({**kept, "machine": about}, indent=1))
    print(f"written to {out.name}")


if __name__ == "__main__":
    main()
