"""The value of a loss and of each of its terms, and the gradient of each, in either framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import tree
from twinax.errors import TwinaxError

Values = dict[str, np.ndarray]
Gradients = dict[str, dict[str, np.ndarray]]


def named_terms(result: Any) -> dict[str, Any]:
    """What a loss function returned, by name: its terms, then the loss. A bare scalar has no terms.

    A name with a slash is no term but an array that the problem itself reads after an update.
    """
    loss, terms = result if isinstance(result, tuple) else (result, {})
    if not isinstance(terms, Mapping):
        raise TwinaxError(f"a loss returns a scalar or (scalar, terms by name); the terms are a {type(terms).__name__}")
    named = loss_last({**{name: value for name, value in terms.items() if "/" not in name}, "loss": loss})
    for name, value in named.items():
        if tuple(np.shape(value)) != ():
            raise TwinaxError(f"the term '{name}' of a loss has shape {tuple(np.shape(value))}; it must be a scalar")
    return named


def loss_last(named: Mapping[str, Any]) -> dict[str, Any]:
    """Terms before the loss: a difference is then found in the part before the whole."""
    return {**{name: value for name, value in named.items() if name != "loss"}, "loss": named["loss"]}


def differentiate_torch(loss: Callable, networks: Any, batch: Any) -> tuple[Values, Gradients]:
    """Values and gradients in PyTorch, from and to NumPy; a term that no parameter reaches has gradient 0."""
    import torch

    from twinax.bridge import to_torch

    def parameter(x):
        return x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    networks = jtu.tree_map(parameter, to_torch(networks))
    leaves = {n: x for n, x in tree.named_leaves(networks).items() if isinstance(x, torch.Tensor) and x.requires_grad}
    values, gradients = {}, {}
    for name, value in named_terms(loss(networks, to_torch(batch))).items():
        value = torch.as_tensor(value)
        found: Any = [None] * len(leaves)
        if value.requires_grad:
            found = torch.autograd.grad(value, list(leaves.values()), retain_graph=True, allow_unused=True)
        values[name] = value.detach().numpy()
        gradients[name] = {
            n: np.zeros(tuple(x.shape)) if g is None else g.numpy()
            for (n, x), g in zip(leaves.items(), found, strict=True)
        }
    return values, gradients


def differentiate_jax(loss: Callable, networks: Any, batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values and gradients (trees like the networks) in JAX; traceable, all terms from one backward program."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    trained, rest = eqx.partition(networks, eqx.is_inexact_array)
    names: list[str] = []

    def stacked(trained):
        named = named_terms(loss(eqx.combine(trained, rest), batch))
        names[:] = named
        return jnp.stack([jnp.asarray(value, float) for value in named.values()])

    values, pull = jax.vjp(stacked, trained)
    (rows,) = jax.vmap(pull)(jnp.eye(len(names), dtype=values.dtype))
    gradients = {name: jax.tree.map(lambda g, k=k: g[k], rows) for k, name in enumerate(names)}
    return dict(zip(names, values, strict=True)), gradients
