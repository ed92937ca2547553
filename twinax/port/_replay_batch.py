"""What both sides of a replay are given, and what each says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinax.bridge import to_torch
from twinax.errors import TwinaxError
from twinax.port._shapes import flatten, leaf_names, unflatten


@dataclass
class Said:
    """What a side says of an update."""

    loss: float
    terms: dict[str, float]
    gradients: dict[str, np.ndarray]
    """By the parameters of the update's optimizer that it reaches."""
    buffers: dict[str, Any] = field(default_factory=dict)
    """What it leaves in them."""

    @property
    def norm(self) -> float:
        """Of all gradients together."""
        return float(np.sqrt(sum(float(np.sum(np.square(g))) for g in self.gradients.values())))


@dataclass(frozen=True)
class Batch:
    """A recorded batch, with the structure of the agent's own."""

    leaves: list[Any]
    """Arrays of NumPy, and what is no array."""
    names: tuple[str, ...]
    structure: Any

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        return {name: x for name, x in zip(self.names, self.leaves, strict=True) if isinstance(x, np.ndarray)}

    def doubles(self) -> dict[str, np.ndarray]:
        """The same with all floats as doubles."""
        wide = {name: x.dtype.kind == "f" or x.dtype.name == "bfloat16" for name, x in self.arrays().items()}
        return {name: x.astype(np.float64) if wide[name] else x for name, x in self.arrays().items()}

    def tree(self, arrays: Mapping[str, Any]) -> Any:
        """The batch with these in place of its arrays."""
        return unflatten([arrays.get(name, x) for name, x in zip(self.names, self.leaves, strict=True)], self.structure)

    def tensors(self, wide: bool = False) -> Any:
        """The batch as PyTorch's loss takes it."""
        made = {name: to_torch(np.array(x)) for name, x in self.arrays().items()}
        return self.tree({name: x.double() if wide and x.is_floating_point() else x for name, x in made.items()})

    def constants(self) -> tuple[Any, ...]:
        """What a program is compiled for."""
        return tuple(None if isinstance(x, np.ndarray) else x for x in self.leaves)


def batch_like(example: Any, arrays: Mapping[str, np.ndarray], constants: Mapping[str, Any], step: int) -> Batch:
    """A recorded batch in the structure of the agent's; refused where names differ."""
    names = leaf_names(example)
    if odd := sorted(set(names) ^ {*arrays, *constants}):
        where = "record" if odd[0] in arrays or odd[0] in constants else "agent"
        raise TwinaxError(
            f"the batch of step {step} does not fit the agent's: only that of the {where} has '{odd[0]}'; return the "
            "agent with a batch like those that were recorded"
        )
    return Batch([{**arrays, **constants}[name] for name in names], names, flatten(example)[1])


def only_scalars(result: Any) -> tuple[Any, dict[str, Any]]:
    """A loss and those of its terms that are numbers, of any framework."""
    value, terms = result if isinstance(result, tuple) else (result, {})
    kept = {name: x for name, x in dict(terms).items() if int(np.prod(np.shape(x))) == 1 and np.ndim(x) < 2}
    return value.reshape(()), {name: x.reshape(()) if hasattr(x, "reshape") else x for name, x in kept.items()}
