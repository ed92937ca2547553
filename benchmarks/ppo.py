"""Speed of PPO on CartPole: every mode, two devices, 16 seeds at once, and PureJaxRL beside them in the same run.

    python benchmarks/ppo.py --purejaxrl CHECKOUT --python VENV/bin/python      # with the peer, about five minutes
    python benchmarks/ppo.py                                                    # without it
    python benchmarks/ppo.py --quick                                            # few repeats, to see that it runs

64 environments x 128 steps, 4 epochs of 4 minibatches, networks of 64x64 with tanh. Each case runs in its own process,
all of them by turns in several rounds; compilation is apart; rates are medians of environment steps per second. Two
devices are two threads of this machine that share out the worlds and give the same parameters as one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from measuring import CACHE, ROOT, ask, machine, timed

STEPS = 64 * 128
CASES = {
    "jax": ("jax", 20, 1, 1),
    "jax, one core": ("jax", 20, 1, 1),
    "jax, 2 devices": ("jax", 20, 2, 1),
    "jax, 16 seeds": ("jax", 5, 1, 16),
    "hybrid": ("hybrid", 2, 1, 1),
    "torch": ("torch", 2, 1, 1),
}
"""Mode, iterations in one go, devices, seeds."""


def work(mode: str, chunk: int, devices: int, seeds: int, repeats: int) -> dict:
    """One case, in a process of its own."""
    from twinax.engines import make_engine
    from twinax.engines._hosts import provide_devices
    from twinax.envs import CartPole
    from twinax.ppo import problem

    provide_devices(devices)
    engine = make_engine(mode, problem(CartPole(), groups=devices), chunk=chunk, devices=devices, seeds=seeds)
    engine.start(0)

    def once() -> int:
        engine.run(chunk)
        return chunk * STEPS * seeds

    measured = timed(once, repeats)
    return {**measured, "compile_seconds": engine.compile_seconds, "parameters": engine.num_parameters}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--purejaxrl", help="a clone of PureJaxRL")
    parser.add_argument("--python", help="the Python of a virtual environment with what PureJaxRL needs")
    parser.add_argument("--out", default=str(CACHE / "ppo.json"))
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        mode, *numbers = arguments.work
        print(json.dumps(work(mode, *map(int, numbers))))
        return
    if (arguments.purejaxrl is None) != (arguments.python is None):
        parser.error("--purejaxrl and --python go together")
    CACHE.mkdir(parents=True, exist_ok=True)
    repeats = "1" if arguments.quick else "5"
    results: dict[str, list[dict]] = {}
    for _ in range(1 if arguments.quick else arguments.rounds):
        for name, case in CASES.items():
            threads = 1 if name.endswith("one core") else 0
            results.setdefault(name, []).append(ask(__file__, ["--work", *map(str, case), repeats], threads))
        if arguments.purejaxrl:
            script = str(ROOT / "benchmarks" / "peers" / "purejaxrl_cartpole.py")
            found = ask(script, [arguments.purejaxrl, "20", repeats], python=arguments.python)
            results.setdefault("PureJaxRL", []).append(found)
            results.setdefault("PureJaxRL, 16 seeds", []).append({"rates": found["rates_16"], "jax": found["jax"]})
    rates = {name: float(np.median([rate for one in rows for rate in one["rates"]])) for name, rows in results.items()}
    print(f"{'case':22s} {'steps/s':>10s} {'middle half':>20s} {'compile s':>10s}")
    for name, rows in results.items():
        low, high = np.quantile([rate for one in rows for rate in one["rates"]], [0.25, 0.75])
        compiled = np.median([one.get("compile_seconds", np.nan) for one in rows])
        print(f"{name:22s} {rates[name]:10,.0f} {low:9,.0f} - {high:8,.0f} {compiled:10.1f}")
    cores = machine()["cores"]
    ratios = {
        "cost of 16 seeds / one": 16 * rates["jax"] / rates["jax, 16 seeds"],
        "the least it can be, each core busy with a seed": 16 * rates["jax"] / (cores * rates["jax, one core"]),
        "jax / torch": rates["jax"] / rates["torch"],
    }
    if "PureJaxRL" in rates:
        ratios["jax / PureJaxRL"] = rates["jax"] / rates["PureJaxRL"]
        ratios["jax, 2 devices / PureJaxRL"] = rates["jax, 2 devices"] / rates["PureJaxRL"]
        ratios["16 seeds, jax / PureJaxRL"] = rates["jax, 16 seeds"] / rates["PureJaxRL, 16 seeds"]
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    stored = {"machine": machine(), "rates": rates, "ratios": ratios, "results": results}
    Path(arguments.out).write_text(json.dumps(stored, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
