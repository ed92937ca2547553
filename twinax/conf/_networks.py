"""Networks by name, for every section that makes networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from twinax.errors import TwinaxError
from twinax.networks import NetworkFactory, make_factory


@dataclass
class NetworkSection:
    """What a section has that may be given a network of one's own."""

    network: str = "mlp"
    """What makes the networks: mlp, transformer, graph or pairs (for what shows tokens, graphs or items), tabular (a
    row for each of few observations), or package.module:Name of a factory (rng, spec) -> module of your own."""
    network_options: dict[str, Any] = field(default_factory=dict)
    """Options of the network other than an MLP, such as {width: 32, layers: 2} of a transformer: arguments of the class
    that `network` names, or of the function after rng and spec; {} for none."""


@dataclass
class WorldNetworkSection(NetworkSection):
    """The same where a world has a network that suits it."""

    network: str | None = None
    """What makes the networks: mlp, transformer (reads tokens), graph (reads graphs), pairs (reads items), tabular (a
    row for each of few observations), or package.module:Name of a factory (rng, spec) -> module of your own; null takes
    what suits the world."""


def make_network(section: NetworkSection, key: str, suits: str | None = None) -> NetworkFactory | None:
    """What makes networks as a section says; None where it leaves that to the family.

    A family whose worlds say what `suits` them also takes the name mlp.
    """
    name = section.network or suits or "mlp"
    if name == "mlp":
        if section.network_options:
            raise TwinaxError(
                f"{key}.network_options are those of a network other than mlp; name it with {key}.network"
            )
        return section.network if suits else None
    if section.network is None and not section.network_options:
        return None
    return make_factory(name, section.network_options, f"{key}.network", ("mlp",))
