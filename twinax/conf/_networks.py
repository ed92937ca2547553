"""Networks of one's own by name, for every section that makes networks."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from twinax.errors import TwinaxError, UnknownName
from twinax.networks import NetworkFactory
from twinax.registry import Registry, is_code

NETWORKS: Registry[Any] = Registry("network", {})
"""Networks that installed packages add."""


@dataclass
class NetworkSection:
    """What a section has that may be given a network of one's own."""

    network: str = "mlp"
    """What makes the networks: mlp, or package.module:Name of a factory (rng, spec) -> module of your own."""
    network_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the class that `network` names, or of the function after rng and spec; {} for none."""


def make_network(section: Any, key: str) -> NetworkFactory | None:
    """What makes networks of one's own; None for an MLP."""
    if section.network == "mlp":
        if section.network_options:
            raise TwinaxError(f"{key}.network_options are those of a network of your own; name it with {key}.network")
        return None
    if not is_code(section.network) and section.network not in NETWORKS.installed:
        raise UnknownName(f"{key}.network", section.network, ["mlp", *NETWORKS.installed, "package.module:Name"])
    target = NETWORKS.find(section.network)
    if not callable(target):
        raise TwinaxError(f"{key}.network={section.network} is a {type(target).__name__}; name a class or a function")
    try:
        made = target(**section.network_options) if isinstance(target, type) else None
    except TypeError as error:
        raise TwinaxError(f"{key}.network={section.network} cannot be made with its options: {error}") from error
    return made if made is not None else functools.partial(target, **section.network_options)
