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
    """One step of a problem that has halves; see `Problem.halves`."""

    def __init__(self, problem: Problem, draw: Callable[[State], dict[str, Any]], update: Update):
        halves = problem.halves()
        assert halves is not None
        one, other, join = halves

        def joined(state: State, first: Any, second: Any, settings) -> tuple[State, Metrics]:
            state, terms = join(state, first, second, draw(state), settings, update)
            return dataclasses.replace(state, step=state.step + 1), terms

        # Each program makes the draws that it needs; those that it does not use are never computed.
        self._one: Any = jax.jit(lambda state, settings: one(state, draw(state), settings))
        self._other: Any = jax.jit(lambda state, settings: other(state, draw(state), settings, update))
        self._join: Any = jax.jit(joined)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="twinax")

    def compile(self, state: State, settings: Any, options: dict[str, Any] | None) -> float:
        """Compile all three; seconds."""
        begin = time.perf_counter()
        shapes = (jax.eval_shape(self._one, state, settings), jax.eval_shape(self._other, state, settings))
        self._one = self._one.lower(state, settings).compile(options)
        self._other = self._other.lower(state, settings).compile(options)
        self._join = self._join.lower(state, *shapes, settings).compile(options)
        return time.perf_counter() - begin

    def step(self, state: State, settings: Any) -> tuple[State, Metrics]:
        """The state and the terms after one step."""
        first = self._thread.submit(lambda: jax.block_until_ready(self._one(state, settings)))
        second = jax.block_until_ready(self._other(state, settings))
        return self._join(state, first.result(), second, settings)
