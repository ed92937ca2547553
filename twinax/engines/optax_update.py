"""The optimizer in JAX: Optax transformations over the neutral `Moments`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

from twinax import tree
from twinax.optimizer import Moments, Optimizer


def apply_update(
    recipe: Optimizer, networks: Any, gradients: Any, moments: Moments, settings: Mapping[str, Any] | None = None
) -> tuple[Any, Moments, jax.Array]:
    """New networks, new moments, and the norm of the gradients before clipping; `settings` has the step sizes of now,
    which otherwise are the recipe's."""
    if recipe.separate:
        return _apply_separately(recipe, networks, gradients, moments, settings)
    return _apply_together(recipe, networks, gradients, moments, settings)


def _apply_together(recipe: Optimizer, networks: Any, gradients: Any, moments: Moments, settings: Any):
    """All parameters by one optimizer."""
    norm = jnp.sqrt(sum(_square_sum(g) for g in jax.tree.leaves(gradients)))
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
    # So that steps wait for all gradients, some of which read the parameters: these are then written in place, and not
    # copied first. Where there is a gradient that is no number, nothing else is lost: training stops.
    factor = jnp.where(jnp.isnan(norm), jnp.nan, factor)
    names = tree.named_leaves(networks)
    rates = [(settings[recipe.setting(name)] if settings else recipe.rate(name)) * factor for name in names]
    rates = jax.tree.unflatten(jax.tree.structure(networks), rates)

    def move(parameter, update, rate):
        # AdamW: p - rate (update + decay p), decay first as PyTorch does it
        return (
            parameter * (1 - rate * recipe.weight_decay) - rate * update
            if recipe.weight_decay
            else (parameter - rate * update)
        )

    return jax.tree.map(move, networks, updates, rates), Moments(count, first, second), norm


def _square_sum(gradient: jax.Array) -> jax.Array:
    # As a product of a matrix and ones: XLA's sums and its products of vectors add one number after the other on the
    # CPU, a nanosecond each.
    squares = (gradient * gradient).reshape(-1, gradient.shape[-1] if gradient.ndim else 1)
    ones = jnp.ones((squares.shape[1],), squares.dtype)
    return jnp.sum(jnp.matmul(squares, ones, precision=jax.lax.Precision.HIGHEST))


def _apply_separately(recipe: Optimizer, networks: Any, gradients: Any, moments: Moments, settings: Any):
    """Each network by an optimizer of its own."""
    trees = (networks, gradients, moments.first, moments.second)
    parts = [recipe.owned(tree.named_leaves(part)) for part in trees]
    counts, norms, new = {}, [], ({}, {}, {})
    for owner in parts[0]:
        mine, slopes, first, second = (part[owner] for part in parts)
        before = Moments(moments.count[owner], first, second)
        updated, after, norm = _apply_together(recipe, mine, slopes, before, settings)
        counts[owner] = after.count
        norms.append(norm)
        for whole, part in zip(new, (updated, after.first, after.second), strict=True):
            whole.update(part)
    moved, first, second = (tree.with_leaves(networks, whole) for whole in new)
    return moved, Moments(counts, first, second), jnp.sqrt(sum(norm * norm for norm in norms))
