"""Networks by name: those that read tokens, graphs and items, tables, and what installed packages add."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from twinax.errors import TwinaxError, UnknownName
from twinax.registry import Registry, is_code

NETWORKS: Registry[Any] = Registry(
    "network",
    {
        "transformer": "twinax.networks:TokenTransformer",
        "graph": "twinax.networks:GraphNetwork",
        "pairs": "twinax.networks:PairNetwork",
        "tabular": "twinax.networks:Tabular",
    },
)
"""What makes networks, by name; an MLP is what each family makes itself."""


def make_factory(
    name: str, options: Mapping[str, Any] | None = None, key: str = "network", besides: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """What makes networks by a name of `NETWORKS` or `package.module:Name`, with options: those of the class, or the
    arguments of the function after rng and spec.

    `key` is what the choice is called in sentences, and `besides` are names that the caller knows.

    >>> make_factory("transformer", {"width": 32}).width
    32
    """
    if not is_code(name) and name not in NETWORKS and name not in NETWORKS.installed:
        raise UnknownName(key, name, [*besides, *NETWORKS, *NETWORKS.installed, "package.module:Name"])
    target = NETWORKS.find(name)
    if not callable(target):
        raise TwinaxError(f"{key}={name} is a {type(target).__name__}; name a class or a function")
    given = dict(options or {})
    try:
        return target(**given) if isinstance(target, type) else functools.partial(target, **given)
    except TypeError as error:
        raise TwinaxError(f"{key}={name} cannot be made with its options: {error}") from error
