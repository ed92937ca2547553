"""Steps whose two halves run at the same time, each a program of its own.

XLA runs one program's parts on a CPU one after the other, also where they need nothing of each other. Two programs that
are started by two threads do run side by side: while one waits for physics on the host, the other computes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from twinax.problem import Metrics, Problem, State, Update


class SideBySide:
    """One step of a problem that has halves; see `Compile.halves`."""

    def __init__(self, problem: Problem, draw: Callable[[State], dict[str, Any]], make: Callable[[Any], Update]):
        halves = problem.compile.halves
        assert halves is not None
        one, other, join = halves

        def joined(state: State, first: Any, second: Any, inputs) -> tuple[State, Metrics]:
            state, terms = join(state, first, second, draw(state), inputs, make(inputs))
            return dataclasses.replace(state, step=state.step + 1), terms

        # Each program makes the draws that it needs; those that it does not use are never computed.
        self._one: Any = jax.jit(lambda state, inputs: one(state, draw(state), inputs))
        self._other: Any = jax.jit(lambda state, inputs: other(state, draw(state), inputs, make(inputs)))
        self._join: Any = jax.jit(joined)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="twinax")

    def compile(self, state: State, inputs: Any, options: dict[str, Any] | None) -> float:
        """Compile all three; seconds."""
        begin = time.perf_counter()
        shapes = (jax.eval_shape(self._one, state, inputs), jax.eval_shape(self._other, state, inputs))
        self._one = self._one.lower(state, inputs).compile(options)
        self._other = self._other.lower(state, inputs).compile(options)
        self._join = self._join.lower(state, *shapes, inputs).compile(options)
        return time.perf_counter() - begin

    def step(self, state: State, inputs: Any) -> tuple[State, Metrics]:
        """The state and the terms after one step."""
        first = self._thread.submit(lambda: jax.block_until_ready(self._one(state, inputs)))
        second = jax.block_until_ready(self._other(state, inputs))
        return self._join(state, first.result(), second, inputs)
