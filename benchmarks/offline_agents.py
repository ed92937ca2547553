"""Speed of the offline agents at their published sizes: updates per second in each phase and mode.

    python benchmarks/offline_agents.py                # all nine agents, about fifteen minutes
    python benchmarks/offline_agents.py --quick        # few repeats, to see that it runs
    python benchmarks/offline_agents.py --only iql
    python benchmarks/offline_agents.py --modes jax,original --infom CHECKOUT --python VENV/bin/python

Observations of width 17, actions of width 6, batch 256, four hidden layers of 512, data on the device, the actor at
every fourth step of finetuning. Each mode has its own process, which waits for its turn; compilation is apart; rates
are medians of seven turns. `plain` is eager PyTorch module by module: each loss computes what it needs, has its own
backward pass and its own Adam. GFLOP/s are those that XLA counts in the compiled update, beside the machine's rate of
matrix products (2 x 256 x 512 x 512), which has its turns with the others. `original` is the published JAX code, in the
same turns (`benchmarks/peers/infom_agents.py`).
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measuring import CACHE, Contender, ask, matrix_rate, serve

D, A, BATCH, ROWS = 17, 6, 256, 100_000
AGENTS = (
    "iql",
    "rebrac",
    "hilp",
    "crl_infonce",
    "td_infonce",
    "fb_repr",
    "mbpo_rebrac",
    "dino_rebrac",
    "infom",
)
PHASES = ("pretrain", "finetune")
PEER = Path(__file__).resolve().parent / "peers" / "infom_agents.py"


def dataset():
    """Random walks: their numbers do not matter for speed."""
    from twinax.offline import from_arrays

    rng = np.random.default_rng(0)
    states = rng.normal(size=(ROWS + 1, D)).astype(np.float32)
    ends = np.zeros(ROWS, bool)
    ends[999::1000] = True
    return from_arrays(
        {
            "observations": states[:-1],
            "next_observations": states[1:],
            "actions": rng.uniform(-1, 1, (ROWS, A)).astype(np.float32),
            "rewards": rng.normal(size=ROWS),
            "terminals": ends,
        }
    )


def make_problem(name: str, phase: str):
    """One phase of an agent as it is published."""
    from twinax.offline import AGENTS, problem

    data = dataset()
    agent = AGENTS[name]()
    if phase == "pretrain":
        return problem(agent, pretraining=data, pretrain_steps=1, batch_size=BATCH)
    return problem(agent, finetuning=data, batch_size=BATCH)


# Parts that run in a process of their own


def work(name: str, phase: str, mode: str, steps: int) -> None:
    """Seconds of an update, once for every turn."""
    subject = make_problem(name, phase)
    if mode == "plain":
        serve({}, plain(subject, phase, steps))
        return
    from twinax.engines import make_engine

    engine = make_engine(subject, mode=mode, chunk=steps)
    engine.start(0)

    def turn() -> float:
        begin = time.perf_counter()
        engine.run(steps)
        return (time.perf_counter() - begin) / steps

    turn()
    serve({"compile": engine.compile_seconds, "parameters": engine.num_parameters}, turn)


def gigaflops(name: str, phase: str) -> float:
    """What XLA counts in a mean update of the phase, the actor's share included."""
    import jax
    import jax.numpy as jnp

    from twinax.agents import jax_agent
    from twinax.noise import key_draws
    from twinax.offline import Sizes

    subject = make_problem(name, phase)
    state, update, begin_finetuning = jax_agent(subject.agent, Sizes(D, A, BATCH))
    data = jax.tree.map(jnp.asarray, subject.arrays())
    found = key_draws(subject.draws(), jnp.uint32(0), jnp.int32(0))
    own = {key.removeprefix(f"{phase}/"): value for key, value in found.items()}
    carry = {"latent": jnp.ones(getattr(subject.agent, "width", 1))}
    rows = subject.rows(phase, data, own, carry)
    state = begin_finetuning(state, rows) if phase == "finetune" else state

    def count(full: bool) -> float:
        def one(networks, targets, optimizer):
            from dataclasses import replace

            now = replace(state, networks=networks, targets=targets, optimizer=optimizer)
            new, terms = update(now, rows, own, full)
            return new.networks, new.targets, terms

        moving = set(subject.agent.trained[phase])
        compiled = jax.jit(one).lower(state.networks, state.targets, state.optimizer).compile()
        total = compiled.cost_analysis()["flops"]
        # The optimizer of networks that stand still is not run in training.
        still = [x.size for name in state.networks if name not in moving for x in jax.tree.leaves(state.networks[name])]
        return (total - 12 * sum(still)) / 1e9

    if phase == "pretrain" or not subject.agent.gated:
        return count(True)
    often = subject.agent.actor_freq
    return (count(True) + (often - 1) * count(False)) / often


def plain(subject, phase: str, steps: int) -> Callable[[], float]:
    """Eager PyTorch, one loss after the other, each with its own backward pass and its own optimizer."""
    import jax.tree_util as jtu
    import torch

    from twinax.networks import frozen
    from twinax.offline import Nets

    agent, sizes = subject.agent, subject.widths
    start = subject.init(0)
    networks = jtu.tree_map(lambda x: torch.nn.Parameter(torch.from_numpy(x)), start.networks)
    targets = jtu.tree_map(torch.from_numpy, start.targets)
    optimizers = {name: torch.optim.Adam(jtu.tree_leaves(net), lr=3e-4) for name, net in networks.items()}
    data = jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), subject.arrays())
    generator = torch.Generator().manual_seed(0)
    owners = {"flow_occupancy": ("field", "intention"), "fb_repr": ("forward", "backward"), "repr": ("encoder",)}
    owners |= {"bc": ("actor",), "fb_actor": ("actor",)}
    carry = {"latent": torch.ones(getattr(agent, "width", 1))}
    memory = jtu.tree_map(torch.from_numpy, agent.memory(sizes))

    def one(step: int) -> None:
        nonlocal memory
        from twinax.noise import generator_draws

        spec = {key.removeprefix(f"{phase}/"): draw for key, draw in subject.draws().items()}
        draws = generator_draws(spec, generator)
        rows = subject.rows(phase, data, draws, carry)
        if phase == "finetune":
            memory = agent.imagine(frozen(networks), memory, rows, draws)
            rows = agent.recalled(memory, rows, draws)
        full = phase == "pretrain" or (step + 1) % agent.actor_freq == 0
        for name, loss in agent.losses(phase).items():
            if phase == "finetune" and not full and name in agent.gated:
                continue
            nets = Nets(networks, frozen(networks), frozen(targets))
            value, _ = loss(nets, agent.prepared(nets, rows, draws, phase), draws)
            mine = owners.get(name, (name,))
            for owner in mine:
                optimizers[owner].zero_grad()
            value.backward()
            for owner in mine:
                optimizers[owner].step()
        if full or not agent.follows_when_full:
            for name in agent.followed[phase]:
                with torch.no_grad():
                    for target, own in zip(
                        jtu.tree_leaves(targets[name]), jtu.tree_leaves(networks[name]), strict=True
                    ):
                        target.copy_(agent.tau * own + (1 - agent.tau) * target)

    def turn() -> float:
        begin = time.perf_counter()
        for step in range(steps):
            one(step)
        return (time.perf_counter() - begin) / steps

    turn()
    return turn


# The part that starts them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--only", default="", help="run only agents whose name matches this; the others keep their figures"
    )
    parser.add_argument("--modes", default="jax,torch,plain")
    parser.add_argument("--infom", help="a clone of the original agents")
    parser.add_argument("--python", help="the Python of a virtual environment with what they need")
    parser.add_argument("--out", default=str(CACHE / "offline_agents.json"))
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--flops", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--matrix", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work[:3], int(arguments.work[3]))
        return
    if arguments.flops:
        print(json.dumps({"gigaflops": gigaflops(*arguments.flops)}))
        return
    if arguments.matrix:
        serve({}, lambda: matrix_rate(2, BATCH, 512))
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    modes = arguments.modes.split(",")
    if "original" in modes and not (arguments.infom and arguments.python):
        parser.error("the mode original needs --infom and --python")
    out = Path(arguments.out)
    results = json.loads(out.read_text())["results"] if arguments.only and out.exists() else {}
    print(f"{'agent':12s} {'phase':9s} {'GFLOP':>6s} " + " ".join(f"{mode + '/s':>9s}" for mode in modes) + "  GFLOP/s")
    for name in AGENTS:
        if not re.search(arguments.only, name):
            continue
        for phase in PHASES:
            work_of = ask(__file__, ["--flops", name, phase])["gigaflops"]
            steps = max(4, 4 * round((8 if arguments.quick else 120) / (4 * max(work_of, 1.0))))
            waiting = {"products": Contender(__file__, ["--matrix"])}
            for mode in modes:
                if mode == "original":
                    words = [arguments.infom, name, phase, str(steps)]
                    waiting[mode] = Contender(str(PEER), words, python=arguments.python)
                else:
                    waiting[mode] = Contender(__file__, ["--work", name, phase, mode, str(steps)])
            turns = [{mode: one.go() for mode, one in waiting.items()} for _ in range(1 if arguments.quick else 7)]
            for one in waiting.values():
                one.close()
            products = float(np.median([turn["products"] for turn in turns]))
            found = {mode: {**waiting[mode].facts, "seconds": [turn[mode] for turn in turns]} for mode in modes}
            speed = {mode: 1 / float(np.median(part["seconds"])) for mode, part in found.items()}
            row = {"gigaflops": work_of, "products": products, "updates": speed, "found": found}
            results[f"{name} {phase}"] = row
            print(
                f"{name:12s} {phase:9s} {work_of:6.2f} "
                + " ".join(f"{speed[mode]:9.2f}" for mode in modes)
                + f"  {speed.get('jax', np.nan) * work_of:7.0f} of {products:.0f}"
                + (
                    f"  {speed['jax'] / speed['original']:.2f}x of the original"
                    if {"jax", "original"} <= set(speed)
                    else ""
                ),
                flush=True,
            )
    order = [f"{name} {phase}" for name in AGENTS for phase in PHASES]
    results = {case: results[case] for case in order if case in results}
    out.write_text(json.dumps({"results": results}, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
