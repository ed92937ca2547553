"""What one step consists of: losses in turn, each with its optimizer, and target networks that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.ranges import check_range

COLUMNS = 256
"""Of the matrix whose rows are summed by a product."""


@checked
@dataclass(frozen=True)
class Update:
    """One loss and the optimizer that follows it.

    >>> Update(actor_loss, torch.optim.Adam(agent.actor.parameters()), every=2)  # doctest: +SKIP
    """

    loss: Callable[..., Any]
    """`loss(module, batch)`, a scalar tensor, or that and a dict of tensors to look at."""
    optimizer: Any
    """A `torch.optim` optimizer over parameters of the module; what it does not have, this loss leaves as it is."""
    name: str = ""
    """What the loss is called in what a step returns; by default the function's name."""
    clip_norm: float = 0.0
    """Largest norm of the gradient of the optimizer's parameters together, as torch.nn.utils.clip_grad_norm_; 0 means
    no clipping."""
    clip_value: float = 0.0
    """Largest size of an entry of a gradient, as torch.nn.utils.clip_grad_value_; 0 means no clipping."""
    every: int = 1
    """Steps from one such update to the next; 2 means that it takes part in steps 2, 4, 6 and so on."""

    def __post_init__(self):
        check_range(self, "finite and not negative", "clip_norm", "clip_value")
        check_range(self, "at least 1", "every")

    @property
    def title(self) -> str:
        """What it is called."""
        return self.name or getattr(self.loss, "__name__", type(self.loss).__name__)


@checked
@dataclass(frozen=True)
class Target:
    """A part of the module that follows another.

    >>> Target("target_critic", "critic", tau=0.005).every
    1
    """

    name: str
    """The part that follows, by its name in the module; nothing trains it."""
    source: str
    """The part that it follows, of the same structure."""
    tau: float = 1.0
    """Share of the source that is mixed in each time; 1 copies its parameters (buffers are left as they are)."""
    every: int = 1
    """Steps from one time to the next."""

    def __post_init__(self):
        check_range(self, "above 0 and at most 1", "tau")
        check_range(self, "at least 1", "every")

    def pairs(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        """From the names of what follows to those of what it follows; refused unless both have the same."""
        parts = [_below(parameters, part) for part in (self.name, self.source)]
        for part, found in zip((self.name, self.source), parts, strict=True):
            if not found:
                raise TwinaxError(f"the module has no part '{part}' with parameters, which a target names")
        follower, leader = parts
        if odd := sorted(set(follower) ^ set(leader)):
            raise TwinaxError(f"'{self.name}' cannot follow '{self.source}': only one of them has '{odd[0]}'")
        for key, name in follower.items():
            shapes = [tuple(parameters[one].shape) for one in (name, leader[key])]
            if shapes[0] != shapes[1]:
                raise TwinaxError(
                    f"'{self.name}' cannot follow '{self.source}': '{name}' has shape {shapes[0]} and '{leader[key]}' "
                    f"{shapes[1]}"
                )
        return {follower[key]: leader[key] for key in follower}


def _below(names: Iterable[str], part: str) -> dict[str, str]:
    """Names of a part of the module, by what follows it."""
    return {name.removeprefix(f"{part}."): name for name in names if name.startswith(f"{part}.")}


def global_norm(gradients: Mapping[str, Any]) -> Any:
    """The norm of all gradients together."""
    return jnp.sqrt(sum((square_sum(g.reshape(-1)) for g in gradients.values()), jnp.zeros(())))


def square_sum(x: Any) -> Any:
    """The sum of the squares of a vector."""
    # As a product of a matrix and ones: XLA's sums add one number after the other on the CPU, a nanosecond each.
    rows = x.shape[0] // COLUMNS
    squares = x * x
    inner = squares[: rows * COLUMNS].reshape(rows, COLUMNS) @ jnp.ones(COLUMNS, x.dtype)
    return jnp.sum(inner) + jnp.sum(squares[rows * COLUMNS :])


def clipped(gradient: Any, norm: Any, clip_norm: float, clip_value: float) -> Any:
    """A gradient as PyTorch's clipping leaves it, by norm first."""
    if clip_norm:
        gradient = gradient * jnp.minimum(clip_norm / (norm + 1e-6), 1.0).astype(gradient.dtype)
    return jnp.clip(gradient, -clip_value, clip_value) if clip_value else gradient
