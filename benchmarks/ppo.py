"""Speed of PPO on CartPole: every mode, two devices, 16 seeds at once, and PureJaxRL beside them in the same run.

    python benchmarks/ppo.py --purejaxrl CHECKOUT --python VENV/bin/python      # with the peer, about five minutes
    python benchmarks/ppo.py                                                    # without it
    python benchmarks/ppo.py --quick                                            # one turn each, to see that it runs

64 environments x 128 steps, 4 epochs of 4 minibatches, networks of 64x64 with tanh, time limits bootstrapped and
observations and rewards normalised, which PureJaxRL leaves out. Each case waits in its own process,
compiled and warm, and has its turns between those of the others; rates are medians of environment steps per second. Two
devices are two threads of this machine that share out the worlds and give the same parameters as one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measuring import CACHE, ROOT, Contender, machine, serve

STEPS = 64 * 128


class Case(NamedTuple):
    """What runs in one process."""

    mode: str
    iterations: int
    """In one turn."""
    devices: int = 1
    seeds: int = 1
    seeds_as: str = "auto"


CASES = {
    "jax": Case("jax", 40),
    "jax, one core": Case("jax", 40),
    "jax, 2 devices": Case("jax", 20, devices=2),
    "jax, 16 seeds": Case("jax", 5, seeds=16),
    "jax, 16 seeds in one program": Case("jax", 5, seeds=16, seeds_as="program"),
    "hybrid": Case("hybrid", 4),
    "torch": Case("torch", 4),
}


def work(case: Case) -> None:
    """One case, in a process of its own."""
    from twinax.engines import make_engine
    from twinax.engines._hosts import provide_devices
    from twinax.envs import CartPole
    from twinax.ppo import problem

    mode, iterations, devices, seeds, seeds_as = case
    provide_devices(devices)
    subject = problem(CartPole(), groups=devices, normalise_observations=True, normalise_rewards=True)
    engine = make_engine(subject, mode=mode, chunk=iterations, devices=devices, seeds=seeds, seeds_as=seeds_as)
    engine.start(0)

    def turn() -> float:
        begin = time.perf_counter()
        engine.run(iterations)
        return iterations * STEPS * seeds / (time.perf_counter() - begin)

    turn()
    facts = {"compile_seconds": engine.compile_seconds, "parameters": engine.num_parameters}
    if seeds == devices == 1:
        phases = engine.profile()
        facts["playing"] = phases["sample"] / sum(phases.values())
    serve(facts, turn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--purejaxrl", help="a clone of PureJaxRL")
    parser.add_argument("--python", help="the Python of a virtual environment with what PureJaxRL needs")
    parser.add_argument("--out", default=str(CACHE / "ppo.json"))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(CASES[arguments.work])
        return
    if (arguments.purejaxrl is None) != (arguments.python is None):
        parser.error("--purejaxrl and --python go together")
    CACHE.mkdir(parents=True, exist_ok=True)
    waiting = {
        name: Contender(__file__, ["--work", name], cores=1 if name.endswith("one core") else 0) for name in CASES
    }
    if arguments.purejaxrl:
        peer = str(ROOT / "benchmarks" / "peers" / "purejaxrl_cartpole.py")
        for name, *numbers in (("PureJaxRL", "20", "1"), ("PureJaxRL, 16 seeds", "5", "16")):
            waiting[name] = Contender(peer, [arguments.purejaxrl, *numbers], python=arguments.python)
    turns = [
        {name: one.go() for name, one in waiting.items()} for _ in range(1 if arguments.quick else arguments.turns)
    ]
    for one in waiting.values():
        one.close()
    rates = {name: float(np.median([turn[name] for turn in turns])) for name in waiting}
    print(f"{'case':30s} {'steps/s':>10s} {'middle half':>20s} {'compile s':>10s}")
    for name, one in waiting.items():
        low, high = np.quantile([turn[name] for turn in turns], [0.25, 0.75])
        print(f"{name:30s} {rates[name]:10,.0f} {low:9,.0f} - {high:8,.0f} {one.facts['compile_seconds']:10.1f}")
    cores = machine()["cores"]
    ratios = {
        "cost of 16 seeds / one": 16 * rates["jax"] / rates["jax, 16 seeds"],
        "the least it can be, each core busy with a seed": 16 * rates["jax"] / (cores * rates["jax, one core"]),
        "threads / one program for 16 seeds": rates["jax, 16 seeds"] / rates["jax, 16 seeds in one program"],
        "share of playing in an iteration on one core": waiting["jax, one core"].facts["playing"],
        "jax / torch": rates["jax"] / rates["torch"],
    }
    if "PureJaxRL" in rates:
        ratios["jax / PureJaxRL"] = rates["jax"] / rates["PureJaxRL"]
        ratios["16 seeds, jax / PureJaxRL"] = rates["jax, 16 seeds"] / rates["PureJaxRL, 16 seeds"]
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    facts = {name: one.facts for name, one in waiting.items()}
    stored = {"machine": machine(), "rates": rates, "ratios": ratios, "facts": facts, "turns": turns}
    Path(arguments.out).write_text(json.dumps(stored, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
