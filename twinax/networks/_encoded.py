"""A network behind encoders of its own."""

from __future__ import annotations

from typing import Any

import equinox as eqx


class Encoded(eqx.Module):
    """A network with encoders of its own: `net(encoder(observations), *rest)`.

    >>> import numpy as np
    >>> from twinax.networks import MLP
    >>> rng = np.random.default_rng(0)
    >>> encoder = MLP.xavier(rng, 3, (8,), 4)
    >>> Encoded(encoder, MLP.xavier(rng, 4, (8,), 2))(np.zeros((5, 3), np.float32)).shape
    (5, 2)
    """

    encoder: Any
    net: Any
    arguments: int = eqx.field(static=True, default=1)
    """How many of the first arguments it encodes: a metric of a state and a goal encodes both, and where it is 0 the
    network reads what was encoded before."""
    goal_encoder: Any = None
    """That of the argument after these, a goal, where it has another."""

    def __call__(self, *parts: Any) -> Any:
        encoders = [self.encoder] * self.arguments + ([] if self.goal_encoder is None else [self.goal_encoder])
        read = [part if part is None else encode(part) for encode, part in zip(encoders, parts, strict=False)]
        return self.net(*read, *parts[len(encoders) :])
