"""Several seeds on a CPU: one compiled program of a single seed, started by a thread for each.

XLA runs a program of small operations on one core, one after the other, and a program for all seeds at once is still
made of small operations. Programs that are started by several threads run side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from twinax.engines._devices import whole
from twinax.engines._engine import Engine
from twinax.engines.jax_engine import JaxEngine
from twinax.problem import Problem, State
from twinax.train_options import TrainOptions

T = TypeVar("T")


class SeedThreads(Engine):
    """The jax mode for several seeds, each bit for bit the run that it would be alone."""

    mode = "jax"

    def __init__(self, problem: Problem, options: TrainOptions):
        super().__init__(problem, options)
        self._one = JaxEngine(problem, dataclasses.replace(options, seeds=1))
        self._states: list[State] = []
        self._evaluation: Any = None
        self._threads = ThreadPoolExecutor(options.seeds, thread_name_prefix="twinax")

    def _load(self, state: State) -> None:
        self._states = [jax.tree.map(lambda x, k=k: self._one.placed(x[k]), state) for k in range(self.seeds)]

    def state(self) -> State:
        return jax.tree.map(lambda *seeds: np.stack([whole(x) for x in seeds]), *self._states)

    @property
    def step(self) -> int:
        return int(self._states[0].step)

    def _each(self, function: Callable[[State], T]) -> list[T]:
        """The function of every seed's state, all at the same time."""
        started = [self._threads.submit(function, state) for state in self._states]
        wait(started)
        return [one.result() for one in started]

    def _run(self, steps: int) -> dict[str, np.ndarray]:
        inputs = self._inputs()
        self._one.compile(self._states[0], inputs)
        self.compile_seconds = self._one.compile_seconds
        done = self._each(lambda state: self._one.advance(state, inputs, steps))
        self._states = [state for state, _ in done]
        return {name: np.stack([logs[name] for _, logs in done], 1) for name in done[0][1]}

    def _converted(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return jax.tree.map(lambda x: jnp.asarray(x, device=self._one.device), arrays)

    def _measure(self, tables: dict[str, Any]) -> Mapping[str, Any]:
        if self._evaluation is None:  # before the threads, of which each would compile it
            self._evaluation = jax.jit(self._one.evaluate_one).lower(self._states[0], tables).compile()
        measured = self._each(lambda state: jax.tree.map(whole, self._evaluation(state, tables)))
        return jax.tree.map(lambda *seeds: np.stack(seeds), *measured)

    def _phases(self, repeats: int) -> dict[str, float]:
        return self._one.phases(self._states[0], self._inputs(), repeats)
