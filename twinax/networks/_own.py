"""Networks of one's own: what a family asks for, and a trial of what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.errors import TwinaxError
from twinax.networks._registry import make_factory


@dataclass(frozen=True)
class NetworkSpec:
    """What a network is made for: `(rng, spec) -> module`.

    The module is called with what is observed, batch first, and gives an array with `outputs` columns: its heads side
    by side, in order. Its leaves are NumPy arrays drawn from `rng`.
    """

    role: str
    """What the network is: a family may ask for several, such as an actor and a critic."""
    observation: Any
    """What it sees, as NumPy arrays with a batch of 1."""
    heads: Mapping[str, int]
    """Columns of each head; none where the network may choose."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How the columns of a head are arranged, where it is not in one row: (places, words) has a column for each word at
    each place, place by place."""

    @property
    def outputs(self) -> int:
        """Columns of all heads."""
        return sum(self.heads.values())


NetworkFactory = str | Callable[[np.random.Generator, NetworkSpec], Any]
"""What makes networks: `(rng, spec) -> module`, or the name of such in `NETWORKS`."""


def factory_name(factory: NetworkFactory) -> str:
    """What a factory is called, in sentences for people."""
    if isinstance(factory, str):
        return factory
    made_by = getattr(factory, "func", factory)  # of a partial
    return getattr(made_by, "__name__", type(made_by).__name__)


def make_own(
    factory: NetworkFactory, rng: np.random.Generator, spec: NetworkSpec, heads_apart: type | None = None
) -> tuple[Any, Any]:
    """A network of one's own, tried once, and what it gave.

    Parameters that no engine could train and outputs of another shape are refused; `heads_apart` is a type of output
    that is left to the caller.
    """
    if isinstance(factory, str):
        factory = make_factory(factory)
    name = factory_name(factory)
    if isinstance(factory, type):
        raise TwinaxError(f"network is the class {name}; give what makes networks, such as an object of it, {name}()")
    made = _tried(lambda: factory(rng, spec), f"the network {name} cannot be made as {spec.role}")
    if not callable(made):
        raise TwinaxError(f"the network {name} made a {type(made).__name__}; it must make a module that can be called")
    strange = {type(leaf).__name__ for leaf in jtu.tree_leaves(made) if not isinstance(leaf, np.ndarray)}
    if strange:
        raise TwinaxError(
            f"the network {name} has leaves of type {', '.join(sorted(strange))}; parameters are NumPy arrays drawn "
            "from rng, and everything else is a static field (eqx.field(static=True))"
        )
    shapes = [tuple(np.shape(leaf)) for leaf in jtu.tree_leaves(spec.observation)]
    seen = ", ".join(map(str, shapes))
    out: Any = _tried(lambda: made(spec.observation), f"the network {name} fails on an observation of shape {seen}")
    if heads_apart is not None and isinstance(out, heads_apart):
        return made, out
    if not spec.heads:
        if np.ndim(out) != 2:
            raise TwinaxError(
                f"the network {name} gives the shape {tuple(np.shape(out))} for one observation; as {spec.role} it "
                "needs a row of numbers for each"
            )
        return made, out
    if tuple(np.shape(out)) != (1, spec.outputs):
        wanted = ", ".join(f"{size} {head}" for head, size in spec.heads.items())
        raise TwinaxError(
            f"the network {name} gives the shape {tuple(np.shape(out))} for one observation; as {spec.role} it needs "
            f"{spec.outputs} columns: {wanted}"
        )
    return made, out


def _tried(call: Callable[[], Any], said: str) -> Any:
    try:
        return call()
    except TwinaxError:
        raise
    except Exception as error:  # a stranger's network may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TwinaxError(f"{said}: {reason}") from error
