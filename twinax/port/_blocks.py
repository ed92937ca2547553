"""Parameters that are moved together lie in one vector: few arrays to hand over, and few loops in a program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from twinax.port._memory import Managed
from twinax.port._updates import Target


@dataclass(frozen=True)
class Block:
    """One such vector."""

    names: tuple[str, ...]
    """Its parameters, in order."""
    shapes: tuple[tuple[int, ...], ...]
    """Of each of them."""
    optimizers: frozenset[int]
    """Which optimizers have them, each in one group of its own."""
    targets: frozenset[int]
    """Which targets move them."""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Where each parameter begins and ends."""
        ends = list(itertools.accumulate((math.prod(shape) for shape in self.shapes), initial=0))
        return list(itertools.pairwise(ends))

    def split(self, flat: Any) -> dict[str, Any]:
        """The parameters of a vector, by name."""
        parts = zip(self.names, self.shapes, self.bounds, strict=True)
        return {name: flat[begin:end].reshape(shape) for name, shape, (begin, end) in parts}

    def join(self, arrays: Mapping[str, Any]) -> Any:
        """The vector of parameters."""
        return joined([arrays[name] for name in self.names])


def joined(arrays: Sequence[Any]) -> Any:
    """Arrays one after the other as a vector."""
    return jnp.concatenate([x.reshape(-1) for x in arrays]) if len(arrays) > 1 else arrays[0].reshape(-1)


def blocks_of(module: Any, managed: Sequence[Managed], targets: Iterable[Target]) -> tuple[Block, ...]:
    """Blocks of all parameters that a step may change, each moved by the same groups of optimizers and targets."""
    named = dict(module.named_parameters())
    followers = [set(target.pairs(named)) for target in targets]
    kinds: dict[Any, list[str]] = {}
    for name, p in sorted(named.items()):
        groups = tuple((k, one.place(name)) for k, one in enumerate(managed) if name in one.parameters)
        following = frozenset(k for k, found in enumerate(followers) if name in found)
        if groups or following:
            kinds.setdefault((groups, following, p.requires_grad), []).append(name)
    return tuple(
        Block(tuple(names), tuple(tuple(named[name].shape) for name in names), frozenset(k for k, _ in groups), follow)
        for (groups, follow, _), names in kinds.items()
    )
