"""What an optimizer is told, and what it remembers, independent of the framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.ranges import check_known, check_range

T = TypeVar("T")
NAMES = ("adam", "adamw", "sgd")
CLIP_BY = ("all", "member")
ALL = ""
"""The owner of every parameter where one optimizer has them all."""
RATE = "learning_rate"
"""The setting that is the step size of parameters without a rate of their own."""


@checked
@dataclass(frozen=True)
class Optimizer:
    """The recipe of the update; both frameworks apply exactly this."""

    name: str = "adam"
    """Update rule: adam, adamw (decoupled weight decay) or sgd (plain, no momentum)."""
    learning_rate: float = 1e-3
    """Step size of every parameter, but for those that are given one of their own (`rates`)."""
    rates: dict[str, float] = field(default_factory=dict)
    """Step sizes by the first part of a parameter's name, such as {"log_z": 0.1}."""
    beta1: float = 0.9
    """Decay of Adam's first moment in each update."""
    beta2: float = 0.999
    """Decay of Adam's second moment in each update."""
    eps: float = 1e-8
    """Number that Adam adds to the root of the second moment, outside the root, as in PyTorch."""
    weight_decay: float = 0.0
    """Decoupled weight decay in each update, times the step size (adamw only); 0 means none."""
    clip_norm: float = 0.0
    """Largest global norm of the gradient, to which longer ones are scaled down; 0 means no clipping."""
    clip_by: str = "all"
    """What has one norm: all parameters together, or member: each member of a network that is stacked on a leading
    axis, such as an agent of several."""
    separate: bool = False
    """Whether each network at the top of the tree has an optimizer of its own: its own count of updates and its own
    norm for clipping. Networks that an update leaves out then do not count it."""
    decay_steps: int = 0
    """Updates over which all step sizes fall in a straight line to `decay_to` times their first value; 0 means that
    they stay."""
    decay_to: float = 0.0
    """Factor of all step sizes after `decay_steps` updates; not used when `decay_steps` is 0."""

    def __post_init__(self):
        if self.name not in NAMES:
            raise UnknownName("optimizer", self.name, NAMES)
        check_known(self, clip_by=CLIP_BY)
        for label, rate in {"learning_rate": self.learning_rate, **self.rates}.items():
            if not (np.isfinite(rate) and rate >= 0):
                raise TwinaxError(f"the step size '{label}' is {rate}; it must be finite and not negative")
        check_range(self, "at least 0 and below 1", "beta1", "beta2")
        if self.weight_decay and self.name != "adamw":
            raise TwinaxError(f"weight_decay={self.weight_decay} needs name=adamw, not {self.name}")
        check_range(self, "finite and not negative", "eps", "clip_norm", "decay_steps")

    def init(self, networks: Any) -> Moments:
        """What this optimizer remembers before its first update; NumPy leaves.

        >>> Optimizer(separate=True).init({"actor": np.zeros(2), "critic": np.zeros(3)}).count
        {'actor': array(0, dtype=int32), 'critic': array(0, dtype=int32)}
        """

        def blank():
            return tree.map_leaves(lambda x: np.zeros_like(x), networks)

        counts = {self.owner(name): np.zeros((), np.int32) for name in tree.named_leaves(networks)}
        return Moments(count=counts if self.separate else counts[ALL], first=blank(), second=blank())

    def adopted(self, moments: Moments) -> Moments:
        """Moments that another recipe has left, with the counts that this one keeps: one for each network, or one for
        all, which is then the largest."""
        counts = moments.count if isinstance(moments.count, dict) else {ALL: moments.count}
        largest = np.array(max(int(count) for count in counts.values()), np.int32)
        if not self.separate:
            return dataclasses.replace(moments, count=largest)
        owners = self.owned(tree.named_leaves(moments.first))
        return dataclasses.replace(moments, count={name: np.array(counts.get(name, largest)) for name in owners})

    def owner(self, name: str) -> str:
        """Whose count and norm the parameter with this name goes by: its network's, or those of all."""
        return name.partition(".")[0] if self.separate else ALL

    def owned(self, by_name: Mapping[str, T]) -> dict[str, dict[str, T]]:
        """What is given by a parameter's name, by its owner."""
        owned: dict[str, dict[str, T]] = {}
        for name, value in by_name.items():
            owned.setdefault(self.owner(name), {})[name] = value
        return owned

    def clipped(self, gradients: dict[str, Any], norm: Any) -> dict[str, Any]:
        """Gradients by name, scaled so that no norm exceeds `clip_norm`; `norm` is that of all together."""
        if not self.clip_norm:
            return gradients
        if self.clip_by == "all":
            scale = self._scale(norm)
            return {name: g * scale for name, g in gradients.items()}
        squares: dict[str, Any] = {}
        for name, g in gradients.items():
            first = name.split(".")[0]
            flat = g.reshape(g.shape[0], -1)
            squares[first] = squares.get(first, 0.0) + ops.einsum("mi,mi->m", flat, flat)
        scales = {first: self._scale(ops.sqrt(square)) for first, square in squares.items()}
        return {name: g * scales[name.split(".")[0]].reshape(-1, *[1] * (g.ndim - 1)) for name, g in gradients.items()}

    def _scale(self, norm: Any) -> Any:
        # PyTorch's formula, with its 1e-6, so that every engine clips alike.
        return ops.minimum(self.clip_norm / (norm + 1e-6), ops.full((), 1.0, norm))

    def settings(self) -> dict[str, np.ndarray]:
        """The step sizes as arrays, so that changing them compiles nothing anew: `learning_rate`, and
        `learning_rate/<name>` for each of `rates`.

        >>> sorted(Optimizer(rates={"log_z": 0.1}).settings())
        ['learning_rate', 'learning_rate/log_z']
        """
        named = {RATE: self.learning_rate, **{f"{RATE}/{first}": rate for first, rate in self.rates.items()}}
        return {name: np.array(rate, np.float64) for name, rate in named.items()}

    def setting(self, name: str) -> str:
        """Which of `settings` is the step size of the parameter with this name."""
        first = name.split(".")[0]
        return f"{RATE}/{first}" if first in self.rates else RATE

    def rate(self, name: str) -> float:
        """The step size of the parameter with this name."""
        return self.rates.get(name.split(".")[0], self.learning_rate)

    def factor(self, step):
        """The factor on all step sizes at an update counted from 0; works on numbers and arrays."""
        if not self.decay_steps:
            return 1.0
        done = step / self.decay_steps
        done = done - (done > 1) * (done - 1)
        return 1.0 + (self.decay_to - 1.0) * done


@tree.record
class Moments:
    """Adam's memory: `count` updates done, and the two moments, trees like the networks; `Optimizer.init` makes it.

    With `Optimizer.separate` the count is a dict by network.
    """

    count: Any
    first: Any
    second: Any

    def only(self, names) -> Moments:
        """Those of some networks at the top of the tree."""
        count = {name: self.count[name] for name in names} if isinstance(self.count, dict) else self.count
        return Moments(count, *({name: part[name] for name in names} for part in (self.first, self.second)))

    def merged(self, part: Moments) -> Moments:
        """With the memory of some networks replaced."""
        count = {**self.count, **part.count} if isinstance(self.count, dict) else part.count
        return Moments(count, {**self.first, **part.first}, {**self.second, **part.second})
