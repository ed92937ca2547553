"""The optimizer in JAX: Optax transformations over the neutral `Moments`."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

from twinax import tree
from twinax.optimizer import Moments, Optimizer


def apply_update(recipe: Optimizer, networks: Any, gradients: Any, moments: Moments) -> tuple[Any, Moments, jax.Array]:
    """New networks, new moments, and the norm of the gradients before clipping."""
    if isinstance(moments.count, dict):
        return _apply_separately(recipe, networks, gradients, moments)
    # As products: XLA's plain sum on the CPU adds one number after the other.
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients)))
    clipped = recipe.clipped(tree.named_leaves(gradients), norm)
    gradients = jax.tree.unflatten(jax.tree.structure(gradients), list(clipped.values()))
    if recipe.name == "sgd":
        updates, count, first, second = gradients, moments.count + 1, moments.first, moments.second
    else:
        adam = optax.scale_by_adam(recipe.beta1, recipe.beta2, recipe.eps)
        before = optax.ScaleByAdamState(moments.count, moments.first, moments.second)
        updates, after = cast(tuple[Any, optax.ScaleByAdamState], adam.update(gradients, before))
        count, first, second = after.count, after.mu, after.nu
    # Divided as an integer, the count would be a float32 even in a float64 run.
    factor = recipe.factor(moments.count.astype(norm.dtype))
    rates = [recipe.rate(name) * factor for name in tree.named_leaves(networks)]
    rates = jax.tree.unflatten(jax.tree.structure(networks), rates)

    def move(parameter, update, rate):
        # AdamW: p - rate (update + decay p), decay first as PyTorch does it
        return (
            parameter * (1 - rate * recipe.weight_decay) - rate * update
            if recipe.weight_decay
            else (parameter - rate * update)
        )

    return jax.tree.map(move, networks, updates, rates), Moments(count, first, second), norm


def _apply_separately(recipe: Optimizer, networks: dict[str, Any], gradients: dict[str, Any], moments: Moments):
    """Each network by an optimizer of its own."""
    new, norms = {}, []
    for name, network in networks.items():
        part = moments.only([name])
        alone = Moments(part.count[name], part.first, part.second)
        found, after, norm = apply_update(recipe, {name: network}, {name: gradients[name]}, alone)
        moments = moments.merged(Moments({name: after.count}, after.first, after.second))
        new |= found
        norms.append(norm)
    return new, moments, jnp.sqrt(sum(norm * norm for norm in norms))
