"""Speed of the biped: MuJoCo's physics alone, whole steps of the world in each framework, and MJX.

    python benchmarks/biped_physics.py                 # all cases, a few minutes
    python benchmarks/biped_physics.py --quick         # small repeats, to see that it runs

A step of the world is 5 physics steps, rewards, ends and both observations, with random actions from states in which
the robots stand, step and fall. Each case runs in its own process; compilation is apart; rates are medians. Beside the
rate by the clock stands the rate by the processors' time, which other programs on the machine change less.
Results: JSON beside the table.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from measuring import CACHE, ask, timed

SUBSTEPS = 5
CASES = (
    ("rollout", 256, 1),
    ("rollout", 256, 2),
    ("varied rollout", 256, 1),
    ("numpy", 256, 1),
    ("numpy", 256, 2),
    ("torch", 256, 1),
    ("callback", 256, 1),
    ("callback", 256, 2),
    ("callback", 2048, 2),
    ("mjx", 16, 1),
    ("mjx", 128, 1),
    ("mjx", 128, 2),
)
"""What runs, worlds, cores."""


# The part that runs in a process of its own


def work(kind: str, worlds: int, cores: int, repeats: int) -> dict:
    """One case."""
    from twinax.envs.biped import VARIED, Ranges, make_biped
    from twinax.noise import numpy_draws

    ranges = VARIED if kind == "varied rollout" else Ranges()
    runner = {"mjx": "mjx", "callback": "callback"}.get(kind, "c")
    world = make_biped("walk", runner=runner, threads=cores, ranges=ranges)
    state = world.reset(numpy_draws(world.reset_draws(worlds), 0, 0))
    draws = numpy_draws(world.step_draws(worlds), 0, 1)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, worlds, 10)).astype(np.float32)

    def steps(state, actions, draws, start):
        for action in actions:
            # Worlds that have ended begin again, as a trainer does it.
            moved = world.step(state, action, draws)
            world.observe_critic(moved.state)
            state = again(moved, start)
        return state

    if kind.endswith("rollout"):
        return timed(lambda: physics(world, state, actions), repeats)
    if kind == "numpy":
        return timed(lambda: len(steps(state, actions, draws, state).time) * len(actions), repeats)
    if kind == "torch":
        import torch

        torch.set_num_threads(cores)
        state, actions, draws = _tree(torch.from_numpy, (state, actions, draws))
        return timed(lambda: len(steps(state, actions, draws, state).time) * len(actions), repeats)
    return compiled(world, state, actions, draws, repeats)


def _tree(function, value):
    from twinax import tree

    return tree.map_leaves(function, value)


def again(moved, start):
    """The states after a step, those of the beginning where a world has ended."""
    from twinax import ops

    def one(now, then):
        return ops.where(moved.terminated.reshape(-1, *[1] * (now.ndim - 1)), then, now)

    from twinax import tree

    return tree.map_leaves(one, moved.state, start)


def physics(world, state, actions) -> int:
    """Control steps of the physics alone; worlds that fell go on lying."""
    qpos, qvel = state.qpos, state.qvel
    for action in actions:
        qpos, qvel = world.physics(qpos, qvel, world.target(action), state.push, state.variation)
    return len(actions) * len(qpos)


def compiled(world, state, actions, draws, repeats: int) -> dict:
    """Steps in one JAX program."""
    import jax
    import jax.numpy as jnp

    def run(state, actions, draws):
        def body(now, action):
            moved = world.step(now, action, draws)
            return again(moved, state), (moved.reward, world.observe(moved.state), world.observe_critic(moved.state))

        return jax.lax.scan(body, state, actions)

    arguments = jax.tree.map(jnp.asarray, (state, actions, draws))
    begin = time.perf_counter()
    program = jax.jit(run).lower(*arguments).compile()
    seconds = time.perf_counter() - begin

    def once() -> int:
        jax.block_until_ready(program(*arguments))
        return actions.shape[0] * actions.shape[1]

    return {"compile_seconds": seconds, **timed(once, repeats)}


# The part that starts them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="run only cases whose name contains this")
    parser.add_argument("--out", default=str(CACHE / "biped_physics.json"))
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        kind, *numbers = arguments.work
        print(json.dumps(work(kind, *map(int, numbers))))
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    repeats = "1" if arguments.quick else "7"
    print(
        f"{'case':16s} {'worlds':>6s} {'cores':>5s} {'steps/s':>10s} {'physics/s':>10s} {'by processor':>13s} compile"
    )
    results = {}
    for kind, worlds, cores in CASES:
        name = f"{kind} {worlds} worlds {cores} cores"
        if arguments.only not in name:
            continue
        found = ask(__file__, ["--work", kind, str(worlds), str(cores), repeats], cores)
        found["physics_rate"] = SUBSTEPS * found["rate"]
        results[name] = found
        print(
            f"{kind:16s} {worlds:6d} {cores:5d} {found['rate']:10,.0f} {found['physics_rate']:10,.0f} "
            f"{SUBSTEPS * found['processor_rate']:13,.0f} {found.get('compile_seconds', 0.0):7.1f}",
            flush=True,
        )
    Path(arguments.out).write_text(json.dumps({"substeps": SUBSTEPS, "results": results}, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
