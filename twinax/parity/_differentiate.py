"""The value of a loss and of its terms, and the gradient of each part, in either framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import tree
from twinax.engines import QUICK_COMPILE
from twinax.errors import TwinaxError
from twinax.problem import Terms

Values = dict[str, np.ndarray]
Gradients = dict[str, dict[str, np.ndarray]]
LOSS = "loss"


@dataclass(frozen=True)
class LossResult:
    """What one side says of a loss."""

    values: Values
    """Of the parts, then of what is shown, then of the loss."""
    gradients: Gradients = field(default_factory=dict)
    """Of each part and of the loss, by the parameter's name; of NumPy none."""
    parts: tuple[str, ...] = ()
    """Names of the values that add up to the loss; none where the loss does not say."""
    loss: str = LOSS
    """The name of the loss itself."""

    @property
    def loss_of_itself(self) -> str:
        """What its parts are compared with."""
        return f"the {self.loss}"

    def named(self, prefix: str) -> LossResult:
        """The same of a loss that is one of several."""
        return LossResult(
            {prefix + name: value for name, value in self.values.items()},
            {prefix + name: gradient for name, gradient in self.gradients.items()},
            tuple(prefix + name for name in self.parts),
            prefix + self.loss,
        )


@dataclass(frozen=True)
class Named:
    """What a loss function returned, in any framework."""

    differentiated: dict[str, Any]
    """Scalars, the loss last: a difference is then found in the part before the whole."""
    shown: dict[str, Any]
    parts: tuple[str, ...]


def named_terms(result: Any) -> Named:
    """The terms of a result by name.

    A problem's loss gives `Terms`. A loss of one's own may give a scalar alone, or a dict of scalars of which each is
    differentiated and nothing is said about their sum.
    """
    loss, terms = result if isinstance(result, tuple) else (result, {})
    if isinstance(terms, Terms):
        named = Named({**terms.parts, LOSS: loss}, {**terms.shown, **terms.arrays}, tuple(terms.parts))
    elif isinstance(terms, Mapping):
        named = Named({**{name: value for name, value in terms.items() if name != LOSS}, LOSS: loss}, {}, ())
    else:
        raise TwinaxError(f"a loss returns a scalar or (scalar, terms by name); the terms are a {type(terms).__name__}")
    for name, value in named.differentiated.items():
        if tuple(np.shape(value)) != ():
            raise TwinaxError(f"the term '{name}' of a loss has shape {tuple(np.shape(value))}; it must be a scalar")
    return named


def evaluate_numpy(loss: Callable, networks: Any, batch: Any) -> LossResult:
    """Values in NumPy."""
    named = named_terms(loss(networks, batch))
    values = {name: np.asarray(value) for name, value in {**named.differentiated, **named.shown}.items()}
    return LossResult(_loss_last(values), {}, named.parts)


def differentiate_torch(loss: Callable, networks: Any, batch: Any) -> LossResult:
    """Values and gradients in PyTorch, from and to NumPy; a term that no parameter reaches has gradient 0."""
    import torch

    from twinax.bridge import to_torch

    def parameter(x):
        return x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    networks = jtu.tree_map(parameter, to_torch(networks))
    leaves = {n: x for n, x in tree.named_leaves(networks).items() if isinstance(x, torch.Tensor) and x.requires_grad}
    named = named_terms(loss(networks, to_torch(batch)))
    values, gradients = {}, {}
    for name, value in named.differentiated.items():
        value = torch.as_tensor(value)
        slopes: Any = [None] * len(leaves)
        if value.requires_grad:
            slopes = torch.autograd.grad(value, list(leaves.values()), retain_graph=True, allow_unused=True)
        values[name] = value.detach().numpy()
        gradients[name] = {
            n: np.zeros(tuple(x.shape)) if g is None else g.numpy()
            for (n, x), g in zip(leaves.items(), slopes, strict=True)
        }
    values |= {name: torch.as_tensor(value).detach().numpy() for name, value in named.shown.items()}
    return LossResult(_loss_last(values), gradients, named.parts)


def make_differentiate_jax(loss: Callable, compiled: bool = True) -> Callable[[Any, Any], LossResult]:
    """A function of JAX arrays that gives values and gradients as NumPy arrays; all parts from one backward program."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from twinax.bridge import to_numpy

    order: list[str] = []
    parts: list[str] = []

    def program(networks: Any, batch: Any) -> tuple[Any, Any, Any]:
        trained, rest = eqx.partition(networks, eqx.is_inexact_array)

        def stacked(trained):
            named = named_terms(loss(eqx.combine(trained, rest), batch))
            order[:], parts[:] = named.differentiated, named.parts
            return jnp.stack([jnp.asarray(value, float) for value in named.differentiated.values()]), named.shown

        values, pull, shown = jax.vjp(stacked, trained, has_aux=True)
        (rows,) = jax.vmap(pull)(jnp.eye(len(order), dtype=values.dtype))
        return values, rows, shown

    run = jax.jit(program, compiler_options=QUICK_COMPILE) if compiled else program

    def differentiate(networks: Any, batch: Any) -> LossResult:
        values, rows, shown = to_numpy(run(networks, batch))
        by_name = tree.named_leaves(rows)
        gradients = {name: {leaf: g[k] for leaf, g in by_name.items()} for k, name in enumerate(order)}
        return LossResult(_loss_last({**dict(zip(order, values, strict=True)), **shown}), gradients, tuple(parts))

    return differentiate


def _loss_last(named: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in named.items() if name != LOSS}, LOSS: named[LOSS]}
