"""The walking robot at every level and with every runner: steps per second, compilation, and the share of physics.

    python benchmarks/ppo_levels.py                 # every case, about ten minutes
    python benchmarks/ppo_levels.py --quick         # few repeats, to see that it runs
    python benchmarks/ppo_levels.py --only "level 3"     # a pattern; results of the others stay

The task `walk` as `twinax train experiment=biped` trains it: rollout, advantages, 32 updates, normalisers, a control
step being 5 steps of physics. `mujoco.rollout alone` replays the states and targets of such a training in MuJoCo's own
threads, and does nothing else. Each case waits in its own process, compiled, and they run by turns, in each turn the
same iterations (Brax's training is one call and runs at the end); rates are medians. The share of physics is the time
within MuJoCo in C, or for MJX that of a program of the physics alone, of the whole.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

import numpy as np
from measuring import CACHE, Contender, ask, machine, serve, timed

SUBSTEPS = 5
FEW = ("ppo.num_envs=32", "ppo.num_steps=4", "ppo.num_minibatches=4", "ppo.episodes=4", "task.time_limit=4")
CASES: dict[str, tuple[str, ...]] = {
    "mujoco.rollout alone": ("rollout",),
    "level 1, 16 robots": ("engine", "1", "level=1"),
    "level 1, 256 robots": ("engine", "1", "level=1", "ppo.num_envs=256", "ppo.num_steps=24", "task.threads=0"),
    "level 2, C": ("brax", "level=2"),
    "level 2, MJX, 32 robots": ("brax", "level=2", "task.runner=mjx", *FEW),
    "level 3, C": ("engine", "10", "level=3"),
    "level 3, C, pipelined": ("engine", "10", "level=3", "ppo.pipelined=true"),
    "level 3, C, 1024 robots": ("engine", "3", "level=3", "ppo.num_envs=1024"),
    "level 3, MJX, 128 robots": ("engine", "1", "level=3", "task.runner=mjx", "ppo.num_envs=128", "ppo.num_steps=8"),
    "level 4, C, 2 devices": ("engine", "10", "level=4"),
}
"""How it is run, iterations in one go, settings."""


class Stopwatch:
    """Seconds within the physics in C, in whatever thread."""

    def __init__(self):
        from twinax.envs.biped._physics_c import CPhysics

        self.seconds, own = 0.0, CPhysics._rows

        def watched(*arguments):
            begin = time.perf_counter()
            try:
                return own(*arguments)
            finally:
                self.seconds += time.perf_counter() - begin

        CPhysics._rows = watched  # ty: ignore


def configured(words: list[str]):
    """Configuration and problem of a command line."""
    from twinax import conf
    from twinax.engines._hosts import provide_devices

    config = conf.compose(["experiment=biped", "task=walk", *words])
    provide_devices(config.trainer.devices)
    return config, conf.build_problem(config)


def engine(chunk: str, *words: str) -> None:
    """Training by one of our engines: in each turn the same iterations."""
    from twinax.engines import make_engine

    config, problem = configured(list(words))
    watch, number = Stopwatch(), int(chunk)
    made = make_engine(problem, mode=config.trainer.mode, chunk=number, devices=config.trainer.devices)
    made.start(0)
    made.run(number)
    begun = made.state()
    alone = mjx_rate(problem) if config.task.runner == "mjx" else None

    def turn() -> dict:
        made.load(begun)
        begin, watch.seconds = time.perf_counter(), 0.0
        made.run(number)
        seconds = time.perf_counter() - begin
        rate = number * problem.num_envs * problem.num_steps / seconds
        # Devices call the physics at the same time, each from its own thread.
        share = watch.seconds / seconds / config.trainer.devices if alone is None else rate / alone
        return {"rate": rate, "share": share}

    serve({"compile_seconds": made.compile_seconds, "parameters": made.num_parameters}, turn)


def mjx_rate(problem) -> float:
    """Control steps per second of MJX alone, from fresh starts."""
    import jax
    import jax.numpy as jnp

    world, state = problem.world, problem.init(0).carry.playing.now.state
    qpos, qvel, push, variation = jax.tree.map(jnp.asarray, (state.qpos, state.qvel, state.push, state.variation))
    target = jnp.broadcast_to(jnp.asarray(world.target(np.zeros(10, np.float32))), (len(qpos), 10))

    @jax.jit
    def steps(qpos, qvel):
        return jax.lax.fori_loop(
            0, problem.num_steps, lambda _, now: world.physics(*now, target, push, variation), (qpos, qvel)
        )

    def once() -> int:
        jax.block_until_ready(steps(qpos, qvel))
        return problem.num_envs * problem.num_steps

    return timed(once, 3)["rate"]


def brax(repeats: str, *words: str) -> None:
    """Training by Brax's own function, which tells its speed after each of its epochs."""
    from twinax.brax.training import train_with_brax

    config, problem = configured(list(words))
    watch = Stopwatch()
    iterations = 2 if config.task.runner == "mjx" else 10
    epochs = int(repeats) + 1
    run = train_with_brax(problem, iterations * epochs, evaluations=epochs, progress=False)
    # The first epoch holds the compilation.
    rates = [row["environment_steps_per_second"] for row in run.metrics if "environment_steps_per_second" in row][1:]
    facts = {"share": None, "physics_seconds": watch.seconds, "parameters": run.summary["parameters"]}
    print(json.dumps({"rate": float(np.median(rates)), "rates": rates, **facts}))


def rollout() -> None:
    """MuJoCo's own threads alone, with the states and targets of a training that has begun."""
    import mujoco
    from mujoco.rollout import Rollout

    from twinax.engines import make_engine
    from twinax.envs.biped._physics_c import CPhysics

    _, problem = configured(["level=3"])
    made = make_engine(problem, mode="jax", chunk=10)
    made.start(0)
    made.run(10)
    calls, own = [], CPhysics._step

    def recorded(self, rows):
        state, target, *_ = np.split(rows, self._parts, 1)
        start = np.concatenate([np.zeros((len(state), 1)), state], 1)
        calls.append((start, np.repeat(target[:, None], SUBSTEPS, 1)))
        return own(self, rows)

    CPhysics._step = recorded  # ty: ignore
    made.run(10)
    physics = problem.world.physics
    data = [mujoco.MjData(physics.model) for _ in range(physics.threads)]
    with Rollout(nthread=physics.threads) as pool:

        def turn() -> dict:
            begin = time.perf_counter()
            for start, control in calls:
                pool.rollout(physics.model, data, start, control)
            return {"rate": sum(len(start) for start, _ in calls) / (time.perf_counter() - begin), "share": 1.0}

        turn()
        serve({}, turn)


HOW = {"engine": engine, "brax": brax, "rollout": rollout}


def by_turns(cases: dict[str, tuple[str, ...]], number: int) -> dict[str, dict]:
    """Cases that wait in their processes, compiled, and run one after the other, that many times."""
    waiting = {name: Contender(__file__, ["--work", *case]) for name, case in cases.items()}
    turns = [{name: one.go() for name, one in waiting.items()} for _ in range(number)]
    for one in waiting.values():
        one.close()
    results = {}
    for name, one in waiting.items():
        rates = [turn[name]["rate"] for turn in turns]
        share = float(np.median([turn[name]["share"] for turn in turns]))
        results[name] = {"rate": float(np.median(rates)), "rates": rates, "share": share, **one.facts}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="run only such cases again, of those so far")
    parser.add_argument("--out", default=str(CACHE / "ppo_levels.json"))
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        how, *words = arguments.work
        HOW[how](*words)
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    print(f"{'case':26s} {'steps/s':>10s} {'physics/s':>10s} {'compile s':>10s} {'in physics':>10s}")
    out = Path(arguments.out)
    results = json.loads(out.read_text())["results"] if arguments.only and out.exists() else {}
    asked = {name: case for name, case in CASES.items() if re.search(arguments.only, name)}
    repeats = 1 if arguments.quick else 5
    results |= by_turns({name: case for name, case in asked.items() if case[0] != "brax"}, repeats)
    for name, (how, *words) in asked.items():
        if how == "brax":
            results[name] = ask(__file__, ["--work", how, str(repeats), *words])
        found = results[name]
        compiled, share = found.get("compile_seconds"), found["share"]
        print(
            f"{name:26s} {found['rate']:10,.0f} {SUBSTEPS * found['rate']:10,.0f} "
            f"{'-' if compiled is None else f'{compiled:.1f}':>10s} {'-' if share is None else f'{share:.0%}':>10s}",
            flush=True,
        )
    ratios = {}
    if "level 3, C" in results:
        for case in ("level 3, C, pipelined", "level 3, C, 1024 robots"):
            if case in results and "mujoco.rollout alone" in results:
                rate = results["mujoco.rollout alone"]["rate"]
                ratios[f"{case} / mujoco.rollout alone"] = results[case]["rate"] / rate
        for other in ("mujoco.rollout alone", "level 1, 16 robots", "level 1, 256 robots", "level 2, C"):
            if other in results:
                ratios[f"level 3, C / {other}"] = results["level 3, C"]["rate"] / results[other]["rate"]
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    results = {name: results[name] for name in CASES if name in results}
    out.write_text(
        json.dumps({"machine": machine(), "ratios": ratios, "results": results, "substeps": SUBSTEPS}, indent=1)
    )
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
