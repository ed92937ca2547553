"""Two checkouts of twinax by turns: is the newer one as fast?

    git worktree add ../before COMMIT
    python benchmarks/versions.py --before ../before                       # all cases, about ten minutes
    python benchmarks/versions.py --before ../before --only hypergrid ppo  # cases whose name begins so
    python benchmarks/versions.py --before ../before --quick               # one turn each, to see that it runs

A case is what follows `twinax train`, so that both sides mean the same whatever lies between a command and an engine.
Both wait in processes of their own, compiled and warm, and have their turns one after the other, the first of a pair by
turns as well; a ratio is the median over pairs of after / before, with the middle half beside it. The same checkout
twice shows what the machine itself adds (`--before .`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from measuring import CACHE, ROOT, Contender, machine, serve

HYPERGRID = "env=hypergrid env.dim=4 env.side=20 objective=tb"
CASES: dict[str, tuple[str, int, int]] = {
    "hypergrid, fresh": (f"{HYPERGRID} optimizer.learning_rate=1e-8", 50, 0),
    "hypergrid, trained": (HYPERGRID, 50, 2000),
    "hypergrid, torch": (HYPERGRID + " trainer.mode=torch", 5, 0),
    "ppo, CartPole": ("experiment=ppo env=cartpole ppo.normalise_observations=true ppo.normalise_rewards=true", 20, 0),
    "ppo, CartPole, torch": ("experiment=ppo env=cartpole ppo.normalise_rewards=true trainer.mode=torch", 2, 0),
    "robot, level 3": ("experiment=biped task=walk", 2, 0),
    "iql": ("experiment=offline agent=iql", 20, 0),
    "fb": ("experiment=offline agent=fb_repr", 20, 0),
    "treasure hunt": ("experiment=treasurehunt", 20, 0),
    "treasure hunt, torch": ("experiment=treasurehunt trainer.mode=torch", 2, 0),
}
"""By name: the words of the command, steps in one turn, steps before the first."""


def work(name: str) -> None:
    """Steps a second of one case, once for every turn, by the twinax that this process imports."""
    from twinax import conf
    from twinax.engines import make_engine

    words, steps, before = CASES[name]
    config = conf.compose(words.split())
    engine = make_engine(conf.build_problem(config), mode=config.trainer.mode, chunk=steps)
    engine.start(0)
    engine.run(max(before, steps))

    def turn() -> float:
        begin = time.perf_counter()
        engine.run(steps)
        return steps / (time.perf_counter() - begin)

    turn()
    serve({"compile_seconds": engine.compile_seconds, "parameters": engine.num_parameters}, turn)


def compare(name: str, before: Path, after: Path, turns: int) -> dict:
    """Rates and the ratio of one case."""
    sides = {}
    for side, tree in (("before", before), ("after", after)):
        own = tree / "benchmarks" / Path(__file__).name
        os.environ["PYTHONPATH"] = str(tree)  # read by the contender's process
        sides[side] = Contender(str(own if own.exists() else __file__), ["--work", name])
    if sides["before"].facts["parameters"] != sides["after"].facts["parameters"]:
        raise SystemExit(f"{name}: {sides['before'].facts} before and {sides['after'].facts} after are not one case")
    pairs = []
    for number in range(turns):
        order = list(sides) if number % 2 else list(sides)[::-1]
        pairs.append({side: sides[side].go() for side in order})
    facts = {side: one.facts for side, one in sides.items()}
    for one in sides.values():
        one.close()
    ratios = [pair["after"] / pair["before"] for pair in pairs]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    rates = {side: float(np.median([pair[side] for pair in pairs])) for side in sides}
    return {"rates": rates, "ratio": float(middle), "middle_half": [float(low), float(high)], "facts": facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of the older commit")
    parser.add_argument("--after", type=Path, default=ROOT, help="a checkout of the newer one (this)")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of the cases' names")
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default=str(CACHE / "versions.json"))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work)
        return
    if arguments.before is None or not (arguments.before / "twinax").is_dir():
        parser.error("--before needs a checkout of twinax")
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"{'case':24s} {'before/s':>10s} {'after/s':>10s} {'ratio':>7s} {'middle half':>15s} {'compile, s':>13s}")
    results = {}
    for name in CASES:
        if not name.startswith(tuple(arguments.only)):
            continue
        turns = 1 if arguments.quick else arguments.turns
        row = results[name] = compare(name, arguments.before.resolve(), arguments.after.resolve(), turns)
        low, high = row["middle_half"]
        compiled = " ".join(f"{row['facts'][side]['compile_seconds']:6.1f}" for side in ("before", "after"))
        print(
            f"{name:24s} {row['rates']['before']:10,.1f} {row['rates']['after']:10,.1f} {row['ratio']:7.3f} "
            f"{low:7.3f}-{high:7.3f} {compiled:>13s}",
            flush=True,
        )
    Path(arguments.out).write_text(json.dumps({"machine": machine(), "results": results}, indent=1))
    print("here: " + ", ".join(f"{name} {version}" for name, version in machine().items()))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
