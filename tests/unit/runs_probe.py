"""A problem and an engine in NumPy whose numbers are known: the runs layer is tested without a compiler.

The loss falls as the weights walk to the seed's target; the noise of a step depends on (seed, step) only.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any

import equinox as eqx
import numpy as np

from twinax import engines
from twinax.optimizer import Optimizer
from twinax.parts import Present
from twinax.problem import Problem, State


class Networks(eqx.Module):
    policy: Any
    log_z: Any


class ProbeProblem(Problem):
    """Options say how it misbehaves.

    width    size of the weights
    bad_at   the step at which the loss is not finite
    pause    seconds per step
    deaf     a step hangs in compiled code, where Python handles no signal but other threads run
    grow_at  the step at which a weight becomes `grow_to` while the loss stays as it is
    judged   called with the step at each evaluation
    """

    def __init__(self, width=3, bad_at=0, pause=0.0, deaf=False, grow_at=0, grow_to=1e10, judged=None):
        self.width, self.bad_at, self.pause, self.deaf = width, bad_at, pause, deaf
        self.grow_at, self.grow_to, self.judged = grow_at, grow_to, judged

    def init(self, seed):
        networks = Networks(policy={"weight": np.zeros(self.width, np.float32)}, log_z=np.zeros((), np.float32))
        return State(
            networks=networks,
            targets=None,
            carry={"seen": np.zeros((2, 2), np.int32), "flag": np.array(False)},
            optimizer=Optimizer().init(networks),
            step=np.zeros((), np.int32),
            seed=np.asarray(seed, np.uint32),
        )

    def draws(self):
        return {}

    def collect(self, state, draws, settings):
        raise NotImplementedError("the probe engine makes its own steps")

    def loss(self, networks, batch, size=None):
        raise NotImplementedError("the probe engine makes its own steps")

    film = False

    def show(self, state, seed):
        """A film that nobody asked for."""

    @property
    def present(self):
        facts = {"family": "probe", "width": self.width}
        return Present(describe=lambda: facts, show=self.show, film=self.film)


class ProbeEngine:
    """The engine's interface, one NumPy step at a time, for one or several seeds."""

    compile_seconds = 0.25
    num_parameters = 4
    processes = 1

    def __init__(self, problem, options):
        self.problem, self.options = problem, options
        self.mode, self.dtype, self.chunk, self.seeds = options.mode, options.dtype, options.chunk, options.seeds
        self.calls, self.settings = [], {}

    def start(self, seed):
        self.states = [self._cast(self.problem.init(seed + i)) for i in range(self.seeds)]

    def _cast(self, state):
        import jax.tree_util as jtu

        return jtu.tree_map(lambda x: x.astype(self.dtype) if x.dtype.kind == "f" else x.copy(), state)

    def load(self, state):
        import jax.tree_util as jtu

        if self.seeds == 1:
            self.states = [state]
        else:
            self.states = [jtu.tree_map(lambda x, i=i: x[i], state) for i in range(self.seeds)]

    def state(self):
        import jax.tree_util as jtu

        if self.seeds == 1:
            return jtu.tree_map(np.copy, self.states[0])
        return jtu.tree_map(lambda *leaves: np.stack(leaves), *self.states)

    def run(self, steps):
        if steps > self.chunk:
            raise ValueError("the trainer asked for more than a chunk")
        self.calls.append(steps)
        rows = [[self._step(i) for i in range(self.seeds)] for _ in range(steps)]
        return {
            name: np.array([[seed[name] for seed in row] if self.seeds > 1 else row[0][name] for row in rows])
            for name in rows[0][0]
        }

    def _step(self, index):
        state = self.states[index]
        step = int(state.step) + 1
        if step == self.problem.bad_at:
            raise engines.NonFinite(step, "log_z", float("nan"))
        time.sleep(self.problem.pause)
        if self.problem.deaf:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
        noise = np.random.default_rng([int(state.seed), step]).normal(size=self.problem.width)
        gap = 1 + int(state.seed) - state.networks.policy["weight"] + 0.01 * noise
        weight = (state.networks.policy["weight"] + 0.05 * gap).astype(self.dtype)
        if step == self.problem.grow_at:
            weight = np.full_like(weight, self.problem.grow_to)
        networks = Networks(policy={"weight": weight}, log_z=state.networks.log_z + np.asarray(0.1, self.dtype))
        self.states[index] = eqx.tree_at(
            lambda s: (s.networks, s.step, s.carry["seen"]),
            state,
            (networks, np.asarray(step, np.int32), state.carry["seen"] + 1),
        )
        return {"loss": np.mean(gap**2), "grad_norm": np.linalg.norm(gap)}

    def evaluate(self):
        if self.problem.judged is not None:
            self.problem.judged(int(self.states[0].step))
        weights = [state.networks.policy["weight"] for state in self.states]
        score = np.array([float(np.mean(weight)) for weight in weights])
        grid = np.outer(np.arange(1, 6), np.arange(1, 6)) / 225
        return {
            "total_variation": float(score[0]) if self.seeds == 1 else score,
            "kl": float("inf"),
            "picture/target": grid,
            "picture/learned": grid.T.copy(),
        }


def install():
    """Let `train` and `resume` use the probe engine; for subprocesses, which have no monkeypatch."""
    engines.make_engine = ProbeEngine


def kill_at(function_name: str, call: int):
    """Make the n-th call of a function of `os` kill this process before it does anything."""
    original, count = getattr(os, function_name), [0]

    def wrapper(*arguments, **keywords):
        count[0] += 1
        if count[0] == call:
            os.kill(os.getpid(), 9)
        return original(*arguments, **keywords)

    setattr(os, function_name, wrapper)
