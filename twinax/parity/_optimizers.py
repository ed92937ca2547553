"""The same gradients through each framework's optimizer, and through the formula itself in NumPy."""

from __future__ import annotations

from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import tree
from twinax.optimizer import Moments, Optimizer

INJECTED = 50
"""Updates with injected gradients."""
CORNER = 32
"""Entries along an axis by which a parameter is represented: an optimizer treats the entries of an array alike."""


def injected_updates(
    framework: str, recipe: Optimizer, networks: Any, updates: int, seed: int
) -> dict[str, np.ndarray]:
    """Parameters and moments by name after some updates, and the gradient norm at each.

    Every parameter is there, with a corner of its entries, so that large networks take no longer than small ones.
    """
    networks = jtu.tree_map(lambda x: np.array(x[tuple(slice(CORNER) for _ in x.shape)], order="C"), networks)
    function = {"torch": _in_torch, "numpy": _in_numpy, "jax": _in_jax}[framework]
    networks, moments, norms = function(recipe, networks, _gradients(networks, updates, seed))
    return tree.named_leaves({"networks": networks, "moments": moments, "norm at each update": np.array(norms)})


def _gradients(networks: Any, updates: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    # Of very different sizes, so that clipping is on in some updates and off in others.
    scales = 10.0 ** rng.uniform(-3, 1, updates)
    return [jtu.tree_map(lambda x, s=s: (s * rng.standard_normal(x.shape)).astype(x.dtype), networks) for s in scales]


def _in_torch(recipe: Optimizer, networks: Any, gradients: list[Any]) -> tuple[Any, Moments, list[float]]:
    import torch

    from twinax.engines.torch_engine import TorchUpdate, to_parameters

    parameters = to_parameters(networks, "cpu")
    blank = recipe.init(networks)
    update, norms = TorchUpdate(recipe, parameters, blank), []
    for gradient in gradients:
        for parameter, g in zip(jtu.tree_leaves(parameters), jtu.tree_leaves(gradient), strict=True):
            # A copy, since clipping writes in place; in the order of the parameter, which a fused optimizer takes for
            # granted.
            parameter.grad = torch.from_numpy(np.array(g, order="C")).to(parameter.device)
        norms.append(float(update.apply()))
    return jtu.tree_map(lambda p: p.detach().numpy(), parameters), update.moments(blank), norms


def _in_jax(recipe: Optimizer, networks: Any, gradients: list[Any]) -> tuple[Any, Moments, list[float]]:
    import jax
    import jax.numpy as jnp

    from twinax.engines.optax_update import apply_update

    update = jax.jit(lambda nets, g, moments: apply_update(recipe, nets, g, moments))
    networks, moments = jtu.tree_map(jnp.array, (networks, recipe.init(networks)))
    norms = []
    for gradient in gradients:
        networks, moments, norm = update(networks, gradient, moments)
        norms.append(float(norm))
    return *jtu.tree_map(np.array, (networks, moments)), norms


def _in_numpy(recipe: Optimizer, networks: Any, gradients: list[Any]) -> tuple[Any, Moments, list[float]]:
    blank = recipe.init(networks)
    values = {name: np.array(x) for name, x in tree.named_leaves(networks).items()}
    first, second = ({name: np.zeros_like(x) for name, x in values.items()} for _ in range(2))
    norms = []
    for count, gradient in enumerate(gradients):
        g = tree.named_leaves(gradient)
        norms.append(_norm(g))
        g = {name: x for part in recipe.owned(g).values() for name, x in _clip(recipe, part, _norm(part)).items()}
        for name, x in values.items():
            rate = recipe.rate(name) * recipe.factor(count)
            if recipe.name == "sgd":
                values[name] = x - rate * g[name]
                continue
            # m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
            first[name] = recipe.beta1 * first[name] + (1 - recipe.beta1) * g[name]
            second[name] = recipe.beta2 * second[name] + (1 - recipe.beta2) * np.square(g[name])
            m = first[name] / (1 - recipe.beta1 ** (count + 1))
            v = second[name] / (1 - recipe.beta2 ** (count + 1))
            # x <- x (1 - rate decay) - rate m / (sqrt(v) + eps)
            values[name] = x * (1 - rate * recipe.weight_decay) - rate * m / (np.sqrt(v) + recipe.eps)
    count = jtu.tree_map(lambda none: none + np.int32(len(gradients)), blank.count)
    moments = Moments(count, tree.with_leaves(blank.first, first), tree.with_leaves(blank.second, second))
    return tree.with_leaves(networks, values), moments, norms


def _norm(g: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(np.square(x)) for x in g.values())))


def _clip(recipe: Optimizer, g: dict[str, np.ndarray], norm: float) -> dict[str, np.ndarray]:
    if not recipe.clip_norm:
        return g
    if recipe.clip_by == "all":
        return {name: x * min(recipe.clip_norm / (norm + 1e-6), 1.0) for name, x in g.items()}
    clipped = {name: np.array(x) for name, x in g.items()}
    for first in {name.split(".")[0] for name in g}:
        mine = [name for name in g if name.split(".")[0] == first]
        for member in range(len(g[mine[0]])):
            norm = _norm({name: g[name][member] for name in mine})
            for name in mine:
                clipped[name][member] *= min(recipe.clip_norm / (norm + 1e-6), 1.0)
    return clipped
