"""Where published agents keep the encoders of their networks.

Here an encoder stands in front of the network that it belongs to. There it may lie beside its layers (`encoder`), in a
wrapper of a goal-conditioned network (`gc_encoder/state_encoder`, `gc_encoder/goal_encoder`), or, where a network has
two sides, beside both of them (`state_encoder`, `goal_encoder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinax.bridge._flax_layers import Names, under

Pairs = list[tuple[tuple[str, Any], str, Any]]
"""(name here, part of the network), name there, parameters."""
Sides = dict[str, tuple[Any, tuple[str, ...]]]
"""Parts of a network by name, and what their encoders may be called."""
WRAPPER = "gc_encoder"
OF_STATES = ("encoder", "state_encoder")
OF_GOALS = ("goal_encoder",)


def has_encoder(node: Any) -> bool:
    """Whether this is a network behind an encoder."""
    from twinax.offline.networks import Encoded

    return isinstance(node, Encoded)


def encoder_pairs(node: Any, parameters: Mapping[str, Any], names: Names) -> Pairs | None:
    """What belongs together in a network with encoders; None for another one, or if its encoders have other names."""
    from twinax.offline.networks import Bilinear, Encoded, Metric

    there = dict(parameters)
    inner = there.pop(WRAPPER, None)
    places = {key: (key, value) for key, value in there.items()}
    if isinstance(inner, Mapping):
        places |= {key: (under(WRAPPER, key), value) for key, value in inner.items()}
    elif inner is not None:
        return None
    if isinstance(node, Bilinear) and has_encoder(node.phi) and has_encoder(node.psi):
        return _sides({"phi": (node.phi, OF_STATES), "psi": (node.psi, OF_GOALS)}, places, names)
    if isinstance(node, Metric) and has_encoder(node.phi):
        return _sides({"phi": (node.phi, OF_STATES)}, places, names)
    if not isinstance(node, Encoded):
        return None
    encoders: Sides = {"encoder": (node.encoder, OF_STATES)}
    if node.goal_encoder is not None:
        encoders["goal_encoder"] = (node.goal_encoder, OF_GOALS)
    pairs: Pairs = []
    for label, (part, known) in encoders.items():
        if (key := _key(label, known, places, names)) is None:
            return None
        place, value = places.pop(key)
        pairs.append(((label, part), place, value))
    rest = dict(places.values())
    return [*pairs, (("net", node.net), "", rest)]


def _sides(sides: Sides, places: dict[str, tuple[str, Any]], names: Names) -> Pairs | None:
    """Networks with their encoders beside them, where nothing else is."""
    pairs: Pairs = []
    for label, (part, known) in sides.items():
        key = _key("encoder", known, places, names)
        if key is None or label not in places:
            return None
        for piece, name in ((part.encoder, key), (part.net, label)):
            field = "encoder" if piece is part.encoder else "net"
            place, value = places.pop(name)
            pairs.append(((f"{label}.{field}", piece), place, value))
    return None if places else pairs


def _key(label: str, known: tuple[str, ...], places: Mapping[str, Any], names: Names) -> str | None:
    given = names.get(label)
    return next((key for key in ((given,) if isinstance(given, str) else known) if key in places), None)
