"""The hybrid engine: PyTorch samples, JAX differentiates and updates, parameters go back through one buffer."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import torch

from twinax.bridge import ParameterSync, to_jax
from twinax.engines._threads import one_torch_thread
from twinax.engines.jax_engine import make_update, time_gradients
from twinax.engines.torch_engine import TorchEngine, seconds_of_laps, to_arrays
from twinax.optimizer import Moments
from twinax.problem import Loss, Metrics, Problem, State
from twinax.train_options import TrainOptions


class HybridEngine(TorchEngine):
    """The torch engine with another update primitive."""

    mode = "hybrid"

    def __init__(self, problem: Problem, options: TrainOptions):
        super().__init__(problem, options)
        self._trained: list[jax.Array] = []
        self._structure: Any = None
        self._programs: dict[Any, Any] = {}
        self._sync: Any = None
        self._rates: dict[str, jax.Array] = {}

    def _load(self, state: State) -> None:
        super()._load(state)
        for parameter in jtu.tree_leaves(self._state.networks):
            parameter.requires_grad_(False)
        self._sync = ParameterSync(self._state.networks)
        # Networks and moments as JAX arrays, in a plain list: a call then costs no walk through modules.
        leaves, self._structure = jtu.tree_flatten((state.networks, state.optimizer))
        self._trained = [jnp.array(leaf) for leaf in leaves]
        self._update = self._cross

    def _trees(self) -> tuple[Any, Moments]:
        return jtu.tree_unflatten(self._structure, self._trained)

    def state(self) -> State:
        s = self._state
        networks, moments = jtu.tree_map(np.array, self._trees())
        carry, targets = to_arrays((s.carry, s.targets))
        return State(networks, targets, carry, moments, np.array(int(s.step), np.int32), np.array(s.seed, np.uint32))

    def _program(self, loss: Loss, still: tuple[str, ...] = ()):
        """One compiled update per loss and networks left out.

        `(trained, batch, step sizes) -> (trained, terms)`, trained as in `_trained`.
        """
        key = (getattr(loss, "__func__", loss), still)
        if key not in self._programs:

            def step(trained: list[Any], batch, rates):
                update = make_update(self.problem, rates)
                networks, moments = jtu.tree_unflatten(self._structure, trained)
                state, terms = update(State(networks, None, None, moments, None, None), loss, batch, still)
                return jtu.tree_leaves((state.networks, state.optimizer)), terms

            self._programs[key] = jax.jit(step, donate_argnums=0, compiler_options=self.compiler_options)
        return self._programs[key]

    def _take_rates(self) -> None:
        """The step sizes in the settings of now."""
        names = self.problem.optimizer.settings()
        self._rates = {name: jnp.asarray(self.settings[name], self.dtype) for name in names}

    def _cross(self, state: State, loss: Loss, batch: Any, still: tuple[str, ...] = ()) -> tuple[State, Metrics]:
        batch, program = to_jax(batch, narrow="allow"), self._program(loss, still)
        first = not self.compile_seconds
        begin = time.perf_counter()
        self._trained, terms = program(self._trained, batch, self._rates)
        if first:
            jax.block_until_ready(terms)
            self.compile_seconds = time.perf_counter() - begin
        self._sync.push(self._trees()[0])
        return state, {name: torch.from_numpy(np.array(value)).to(self.device) for name, value in terms.items()}

    def _run(self, steps: int) -> dict[str, np.ndarray]:
        inputs = self._inputs()
        self._take_rates()
        logs = []
        with torch.no_grad(), one_torch_thread():
            for _ in range(steps):
                draws = self._draws(int(self._state.step))
                state, terms = self.problem.step(self._state, draws, inputs, self._update)
                self._state = dataclasses.replace(state, step=state.step + 1)
                logs.append(terms)
        return {name: np.array([to_arrays(row[name]) for row in logs]) for name in logs[0]}

    @torch.no_grad()
    def _phases(self, repeats: int) -> dict[str, float]:
        with one_torch_thread():
            return self._crossing_phases(repeats)

    def _crossing_phases(self, repeats: int) -> dict[str, float]:
        kept, inputs = self.state(), self._inputs()
        self._take_rates()
        program, batch = self._program(self.problem.loss), None

        def laps(k: int) -> Iterator[None]:
            nonlocal batch
            _, batch = self.problem.collect(self._state, self._draws(int(self._state.step) + k), inputs)
            yield
            batch = to_jax(batch, narrow="allow")
            yield
            self._trained, _ = program(self._trained, batch, self._rates)
            jax.block_until_ready(self._trained)
            yield
            self._sync.push(self._trees()[0])
            yield

        sample, convert, step, push = seconds_of_laps(laps, repeats)
        loss, both, _ = time_gradients(self.problem, self._trees()[0], batch, repeats)
        self._load(kept)
        # One program does all three; the parts are timed on their own and the optimizer is what remains.
        return {
            "sample": sample,
            "loss": min(loss, step),
            "backward": max(min(both, step) - loss, 0.0),
            "optimizer": max(step - both, 0.0),
            "sync": convert + push,
        }
