"""A problem's sampling, loss and gradients in each mode, with NumPy arrays in and out.

A mode is where it samples and where it differentiates: torch in PyTorch, jax in JAX, hybrid one after the other. The
NumPy side has values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.bridge import to_numpy
from twinax.engines import QUICK_COMPILE
from twinax.parity._differentiate import LossResult, Values, differentiate_torch, evaluate_numpy, make_differentiate_jax
from twinax.problem import Inputs, Loss, Problem, State


@dataclass
class Side:
    """One mode's way through a training step. Sides of one problem may share compiled programs."""

    name: str
    """The mode."""
    problem: Problem
    """What it runs."""
    samples_in: str
    """Framework that collects."""
    differentiates_in: str
    """Framework of the loss."""
    programs: dict[Any, Any] = field(default_factory=dict)
    """Compiled functions by what they do."""

    def collect(self, state: State, draws: Mapping[str, Any], inputs: Inputs) -> tuple[Any, Any]:
        """`(carry, batch)` of one step."""
        if self.samples_in == "jax":
            if "collect" not in self.programs:
                import jax

                self.programs["collect"] = jax.jit(self.problem.collect, compiler_options=QUICK_COMPILE)
            return to_numpy(self.programs["collect"](*_jax((state, draws, inputs))))
        arrays = _copy((state, draws, inputs))  # rings are written in place
        collected: Any
        if self.samples_in == "numpy":
            collected = self.problem.collect(*arrays)
            return collected
        import torch

        from twinax.engines.torch_engine import to_tensors

        with torch.no_grad():
            collected = self.problem.collect(*to_tensors(arrays, "cpu"))
        return to_numpy(collected)

    def values(self, networks: Any, batch: Any, loss: Loss | None = None) -> Values:
        """The loss and its terms."""
        return self.differentiate(networks, batch, loss=loss).values

    def differentiate(self, networks: Any, batch: Any, spare: int = 0, loss: Loss | None = None) -> LossResult:
        """The loss and its terms, and the gradient of each part by the parameter's name.

        `spare` takes a static size that many steps larger than needed, which must change nothing. `loss` is another
        one than the problem's own, with a batch that is never ragged.
        """
        function = loss or self.problem.loss
        if self.differentiates_in == "numpy":
            return evaluate_numpy(function, networks, batch)
        if self.differentiates_in == "torch":
            return differentiate_torch(function, networks, batch)
        size = None if loss else self._size(batch, spare)
        key = (loss, size)
        if key not in self.programs:
            sized = function if size is None else partial(function, size=size)
            self.programs[key] = make_differentiate_jax(sized)
        return self.programs[key](*_jax((networks, batch)))

    def _size(self, batch: Any, spare: int) -> int | None:
        rules = self.problem.compile
        if not rules.sizes:
            return None
        needed = int(rules.count(batch))
        enough = [size for size in rules.sizes if size >= needed]
        # Past the largest size the probe simply adds rows.
        return enough[spare] if spare < len(enough) else enough[-1] + 16 * spare


def make_sides(modes: Iterable[str], problem: Problem) -> dict[str, Side]:
    """The side of each mode, and the NumPy reference."""
    programs: dict[Any, Any] = {}

    def side(mode: str) -> Side:
        samples_in, differentiates_in = ("torch", "jax") if mode == "hybrid" else (mode, mode)
        return Side(mode, problem, samples_in, differentiates_in, programs)

    return {mode: side(mode) for mode in (*modes, "numpy")}


def widened(values: Any, dtype: str) -> Any:
    """NumPy copies with floating-point numbers in one precision."""

    def one(x):
        x = np.array(x)
        return x.astype(dtype) if x.dtype.kind == "f" else x

    return jtu.tree_map(one, values)


def _copy(values: Any) -> Any:
    return jtu.tree_map(lambda x: np.array(x), values)


def _jax(values: Any) -> Any:
    import jax.numpy as jnp

    return jtu.tree_map(jnp.array, values)
