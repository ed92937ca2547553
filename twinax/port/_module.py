"""The other way: a JAX function as an `nn.Module` whose backward is JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge import to_jax, to_torch
from twinax.errors import TwinaxError, require
from twinax.networks import as_torch_module


def module(function: Callable[..., Any], params: Any) -> Any:
    """An `nn.Module` with these parameters (copied), which calls `function(params, *inputs)` in JAX, compiled.

    Parameters are a tree of arrays and keep its names; inputs and results are tensors, alone or in trees. Gradients by
    parameters and by float inputs are JAX's; they cannot be differentiated again.

    >>> critic = tx.port.module(lambda params, x: x @ params["weight"], {"weight": np.ones((3, 1))})  # doctest: +SKIP
    >>> critic(torch.ones(2, 3)).sum().backward()  # doctest: +SKIP
    """
    require("torch", "torch", "twinax.port.module")
    if not callable(function):
        raise TwinaxError(f"a JAX function is wrapped, but this is a {type(function).__name__}")

    def run(floats: list[Any], rest: list[Any], structure: Any, places: tuple[bool, ...]) -> Any:
        def outputs(floats: list[Any]) -> Any:
            waiting, others = iter(floats), iter(rest)
            leaves = [next(waiting) if differentiated else next(others) for differentiated in places]
            made, *inputs = jtu.tree_unflatten(structure, leaves)
            return function(made, *inputs)

        return jax.vjp(outputs, floats)

    forward = jax.jit(run, static_argnums=(2, 3))
    backward = jax.jit(lambda pull, cotangents: pull(cotangents)[0])
    return as_torch_module(params, call=lambda tree, *inputs: _called(forward, backward, (tree, *inputs)))


def _called(forward: Any, backward: Any, given: Any) -> Any:
    import torch

    leaves, structure = jtu.tree_flatten(given)
    leaves = [x if isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in leaves]
    places = tuple(x.is_floating_point() for x in leaves)
    floats = [x for x, differentiated in zip(leaves, places, strict=True) if differentiated]
    rest = [to_jax(x, narrow="allow") for x, differentiated in zip(leaves, places, strict=True) if not differentiated]
    shape: list[Any] = []

    class Call(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, *tensors: Any) -> Any:
            made, pull = forward([_array(x) for x in tensors], rest, structure, places)
            results, shape[:] = jtu.tree_flatten(made)[0], [jtu.tree_structure(made)]
            context.pull, context.like = pull, results
            tensors = tuple(to_torch(x) for x in results)
            context.mark_non_differentiable(*(x for x in tensors if not x.is_floating_point()))
            return tensors

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context: Any, *gradients: Any) -> Any:
            cotangents = [_cotangent(g, x) for g, x in zip(gradients, context.like, strict=True)]
            found = backward(context.pull, jtu.tree_unflatten(shape[0], cotangents))
            return tuple(to_torch(x) for x in found)

    if not floats:
        return to_torch(forward([], rest, structure, places)[0])
    results = Call.apply(*floats)
    return jtu.tree_unflatten(shape[0], results)


def _array(tensor: Any) -> Any:
    """A copy: what JAX keeps for the backward must not change with a parameter."""
    return jnp.array(to_jax(tensor.detach(), narrow="refuse" if tensor.is_floating_point() else "allow"))


def _cotangent(gradient: Any, like: Any) -> Any:
    if not jnp.issubdtype(like.dtype, jnp.floating):
        return np.zeros(like.shape, jax.dtypes.float0)
    return jnp.zeros_like(like) if gradient is None else to_jax(gradient.detach().contiguous(), narrow="allow")
