"""Layers without arrays, in PyTorch and as functions of JAX: a converted sequence keeps them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from twinax.bridge.conversion._layers import Plain


def flatten_channels_first(x: Any) -> Any:
    """(rows, *places, channels) to the vectors that PyTorch's Flatten makes of (rows, channels, *places)."""
    return jnp.moveaxis(x, -1, 1).reshape(x.shape[0], -1)


def identity(x: Any) -> Any:
    """The input."""
    return x


exact_gelu = functools.partial(jax.nn.gelu, approximate=False)
FUNCTIONS: dict[str, tuple[Callable, ...]] = {
    "relu": (jax.nn.relu,),
    "leaky_relu": (jax.nn.leaky_relu,),
    "tanh": (jnp.tanh, jax.nn.tanh, jax.lax.tanh),
    "sigmoid": (jax.nn.sigmoid, jax.lax.logistic),
    "silu": (jax.nn.silu,),
    "elu": (jax.nn.elu,),
    "softplus": (jax.nn.softplus,),
    "gelu": (exact_gelu,),
    "gelu_tanh": (jax.nn.gelu,),
    "flatten": (flatten_channels_first, jnp.ravel),
    "identity": (identity,),
}
"""What each is in JAX, the first one where we build it."""
MODULES = {
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "silu": "SiLU",
    "elu": "ELU",
    "softplus": "Softplus",
    "gelu": "GELU",
    "gelu_tanh": "GELU",
    "flatten": "Flatten",
    "identity": "Identity",
    "dropout": "Dropout",
}
"""What each is in PyTorch."""
DEFAULTS = {"negative_slope": 0.01, "alpha": 1.0, "beta": 1, "threshold": 20, "start_dim": 1, "end_dim": -1}
"""Options of PyTorch's modules at which they are those of JAX."""


def plain_function(function: Any) -> Plain | None:
    """The layer that a function of JAX is, if it is known."""
    if isinstance(function, functools.partial) and function.func is jax.nn.gelu and not function.args:
        exact = not function.keywords.get("approximate", True)
        return Plain("gelu" if exact else "gelu_tanh")
    names = [name for name, known in FUNCTIONS.items() if any(function is one for one in known)]
    return Plain(names[0]) if names else None


def plain_module(module: Any) -> Plain | None:
    """The layer that a module of PyTorch is, if it is known and has the options that JAX's function has."""
    title = type(module).__name__
    if title == "GELU":
        return Plain("gelu" if module.approximate == "none" else "gelu_tanh")
    if title in ("Dropout", "Identity"):
        return Plain(title.lower(), float(getattr(module, "p", 0.0)))
    usual = all(getattr(module, key, value) == value for key, value in DEFAULTS.items())
    return next((Plain(name) for name, known in MODULES.items() if known == title and usual), None)


def plain_torch(plain: Plain) -> Any:
    """The layer as a module of PyTorch."""
    import torch

    options: dict[str, Any] = {"approximate": "tanh"} if plain.name == "gelu_tanh" else {}
    options |= {"p": plain.value} if plain.name == "dropout" else {}
    return getattr(torch.nn, MODULES[plain.name])(**options)
