"""A problem's sampling, loss and gradients in each mode, with NumPy arrays in and out.

A mode is where it samples and where it differentiates: torch in PyTorch, jax in JAX, hybrid one after the other. The
NumPy side has values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import tree
from twinax.bridge import to_numpy
from twinax.parity._differentiate import (
    Gradients,
    Values,
    differentiate_jax,
    differentiate_torch,
    loss_last,
    named_terms,
)
from twinax.problem import Problem, State


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

    def collect(self, state: State, draws: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, Any]:
        """`(carry, batch)` of one step."""
        if self.samples_in == "jax":
            if "collect" not in self.programs:
                import jax

                self.programs["collect"] = jax.jit(self.problem.collect)
            return to_numpy(self.programs["collect"](*_jax((state, draws, settings))))
        arrays = _copy((state, draws, settings))  # rings are written in place
        found: Any
        if self.samples_in == "numpy":
            found = self.problem.collect(*arrays)
            return found
        import torch

        from twinax.engines._torch import to_tensors

        with torch.no_grad():
            found = self.problem.collect(*to_tensors(arrays))
        return to_numpy(found)

    def values(self, networks: Any, batch: Any) -> Values:
        """The loss and its terms."""
        return self.differentiate(networks, batch)[0]

    def differentiate(self, networks: Any, batch: Any, spare: int = 0) -> tuple[Values, Gradients]:
        """The loss and each of its terms, and the gradient of each by the parameter's name.

        `spare` takes a static size that many steps larger than needed, which must change nothing.
        """
        if self.differentiates_in == "numpy":
            return to_numpy(named_terms(self.problem.loss(networks, batch))), {}
        if self.differentiates_in == "torch":
            return differentiate_torch(self.problem.loss, networks, batch)
        size = self._size(batch, spare)
        if size not in self.programs:
            import jax

            def loss(networks, batch):
                return self.problem.loss(networks, batch, **({} if size is None else {"size": size}))

            self.programs[size] = jax.jit(lambda networks, batch: differentiate_jax(loss, networks, batch))
        values, gradients = self.programs[size](*_jax((networks, batch)))
        return to_numpy(loss_last(values)), to_numpy({name: tree.named_leaves(of) for name, of in gradients.items()})

    def _size(self, batch: Any, spare: int) -> int | None:
        if not self.problem.sizes:
            return None
        needed = int(self.problem.count(batch))
        enough = [size for size in self.problem.sizes if size >= needed]
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
