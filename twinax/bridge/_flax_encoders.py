"""Where published agents keep the encoders of their networks.

Here an encoder stands in front of the network that it belongs to. There it may lie beside its layers (`encoder`), in a
wrapper of a goal-conditioned network (`gc_encoder/state_encoder`, `gc_encoder/goal_encoder`), or, where a network has
two sides, beside both of them (`state_encoder`, `goal_encoder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinax.bridge._flax_layers import Names, under
from twinax.networks import Encoded

Pairs = list[tuple[tuple[str, Any], str, Any]]
"""(name here, part of the network), name there, parameters."""
Sides = dict[str, tuple[Any, tuple[str, ...]]]
"""Parts of a network by name, and what their encoders may be called."""
WRAPPER = "gc_encoder"
ENCODERS = {"state": ("encoder", "state_encoder"), "goal": ("goal_encoder",)}
"""What the encoder of each may be called there."""


def has_encoder(node: Any) -> bool:
    """Whether this is a network behind an encoder."""
    return isinstance(node, Encoded)


def encoder_pairs(node: Any, parameters: Mapping[str, Any], names: Names) -> Pairs | None:
    """What belongs together in a network with encoders; None for another one, or if its encoders have other names.

    A network of several sides says in `SIDES` what each of them places: a state or a goal.
    """
    there = dict(parameters)
    inner = there.pop(WRAPPER, None)
    places = {key: (key, value) for key, value in there.items()}
    if isinstance(inner, Mapping):
        places |= {key: (under(WRAPPER, key), value) for key, value in inner.items()}
    elif inner is not None:
        return None
    sides = {label: (getattr(node, label), ENCODERS[what]) for label, what in getattr(node, "SIDES", {}).items()}
    if sides and all(has_encoder(part) for part, _ in sides.values()):
        return _sides(sides, places, names)
    if not isinstance(node, Encoded):
        return None
    encoders: Sides = {"encoder": (node.encoder, ENCODERS["state"])}
    if node.goal_encoder is not None:
        encoders["goal_encoder"] = (node.goal_encoder, ENCODERS["goal"])
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
