"""What every engine offers, and the parts that do not depend on the framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.errors import TwinaxError
from twinax.memory import is_mapped
from twinax.networks import num_parameters
from twinax.problem import Inputs, Metrics, Problem, State
from twinax.train_options import TrainOptions

EVALUATION = 1
"""The noise stream of evaluations; training uses stream 0."""


class NonFinite(TwinaxError):
    """The loss stopped being a number."""

    def __init__(self, step: int, term: str, value: float):
        self.step, self.term = step, term
        super().__init__(f"the term '{term}' became {value} at step {step}; training stopped")


QUICK_COMPILE: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""XLA's options for programs that run a few times: compiling them well would take longer than running them."""


class Engine(ABC):
    """Runs a problem: `start` or `load`, then `run` and `evaluate` as often as needed."""

    mode: str
    processes: int = 1
    """How many processes train together; `state` and `evaluate` are then asked for by all of them."""
    compiler_options: dict[str, Any] | None = None
    """What XLA is told when it compiles what trains; None is its own choice, which is the fastest to run.

    Engines draw the same numbers to the bit if they have the same options, before the first step.
    """

    def __init__(self, problem: Problem, options: TrainOptions):
        self.problem, self.options = problem, options
        self.dtype, self.chunk, self.seeds = options.dtype, options.chunk, options.seeds
        self.settings: dict[str, np.ndarray] = {**problem.inputs().settings, **problem.optimizer.settings()}
        self.compile_seconds = 0.0
        self.num_parameters = 0
        self._tables: dict[str, Any] | None = None
        self._data: dict[str, Any] | None = None

    def start(self, seed: int) -> None:
        """Begin from a fresh state; several seeds are consecutive numbers."""
        states = [self.problem.init(seed + k) for k in range(self.seeds)]
        self.load(states[0] if self.seeds == 1 else jtu.tree_map(lambda *xs: np.stack(xs), *states))

    def load(self, state: State) -> None:
        """Go on from a state with NumPy leaves, as `state()` gives it or a checkpoint holds it."""
        held = int(np.prod(np.shape(state.step)))
        if np.ndim(state.step) != (self.seeds > 1) or held != self.seeds:
            raise TwinaxError(
                f"the state holds {held} seeds, but this engine trains {self.seeds}; give both one number"
            )
        self.num_parameters = num_parameters(state.networks) // self.seeds
        self._load(jtu.tree_map(self._widen, state))

    def _widen(self, x: Any) -> np.ndarray:
        x = np.asarray(x)
        # A mapped array may be larger than the memory, so it is not copied without need.
        return x.astype(self.dtype, copy=not is_mapped(x)) if x.dtype.kind == "f" else x

    def _inputs(self) -> Inputs:
        """What a step is given besides its state and draws: settings as they are now, and constant data."""
        if self._data is None:
            self._data = self._converted(jtu.tree_map(self._widen, self.problem.inputs().data))
        return Inputs(self._converted({name: self._widen(value) for name, value in self.settings.items()}), self._data)

    @abstractmethod
    def _load(self, state: State) -> None: ...

    @abstractmethod
    def state(self) -> State:
        """A copy of everything, as NumPy arrays."""

    def run(self, steps: int) -> dict[str, np.ndarray]:
        """Train; the loss and its terms at each step."""
        if steps < 1:
            raise TwinaxError(f"asked to run {steps} steps; it must be at least 1")
        parts = []
        for done in range(0, steps, self.chunk):
            before = self.step
            parts.append(self._run(min(self.chunk, steps - done)))
            self.problem.compile.watch(parts[-1])  # first, since it may know why something is not finite
            _refuse_non_finite(parts[-1], before)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @abstractmethod
    def _run(self, steps: int) -> dict[str, np.ndarray]: ...

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps done."""

    def evaluate(self) -> Metrics:
        """The problem's metrics with fresh draws; per-seed arrays when there are several seeds."""
        judge = self.problem.judge
        if self._tables is None:
            self._tables = self._converted(judge.tables())
        measured = self._measure(self._tables)
        if self.seeds == 1:
            return judge.summarise(measured)
        rows = [judge.summarise(jtu.tree_map(lambda x, k=k: x[k], measured)) for k in range(self.seeds)]
        return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}

    @abstractmethod
    def _converted(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """NumPy arrays in the engine's framework."""

    @abstractmethod
    def _measure(self, tables: dict[str, Any]) -> Mapping[str, Any]: ...

    def profile(self, steps: int = 20) -> dict[str, float]:
        """Seconds per step by phase, from steps that leave the state as it was."""
        phases = self._phases(steps)
        return {
            name: value * (1 if name == "sample" else self.problem.compile.updates) for name, value in phases.items()
        }

    @abstractmethod
    def _phases(self, repeats: int) -> dict[str, float]:
        """Seconds of sampling for a step (`sample`), and by phase of one update."""


def _refuse_non_finite(logs: Mapping[str, np.ndarray], before: int) -> None:
    bad: dict[str, Any] = {name: ~np.isfinite(values).reshape(len(values), -1).all(1) for name, values in logs.items()}
    rows = np.flatnonzero(np.any(list(bad.values()), axis=0))
    if not len(rows):
        return
    row = int(rows[0])
    # The loss is made of its terms, and gradients come from the loss: name the first in that chain.
    names = sorted((name for name in logs if bad[name][row]), key=lambda name: {"loss": 1, "grad_norm": 2}.get(name, 0))
    value = np.ravel(logs[names[0]][row])
    raise NonFinite(before + row + 1, names[0], float(value[~np.isfinite(value)][0]))
