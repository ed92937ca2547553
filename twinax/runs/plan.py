"""What a training is to do and when: the numbers that a checkpoint keeps so that a run can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from twinax.errors import TwinaxError, UnknownName

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Plan:
    """A training's settings outside the problem; none of them but `seed` and `noise` changes a run's numbers."""

    mode: str = "jax"
    """The engine: torch, hybrid or jax."""
    steps: int = 1000
    """Steps of the whole run, those before a resume included."""
    seed: int = 0
    """Root of all random numbers."""
    seeds: int = 1
    """How many seeds train side by side, from `seed` on."""
    dtype: str = "float32"
    """Type of the floating-point arrays."""
    noise: str = "shared"
    """Where the engine's random numbers come from."""
    chunk: int = 100
    """Most steps between two looks at the clock, the log and Ctrl-C."""
    log_every: int = 1
    """Steps between two rows of metrics.jsonl."""
    evaluate_every: int = 0
    """Steps between two evaluations; 0 means only at the end."""
    checkpoint_every: int = 0
    """Steps between two checkpoints; 0 means only at the start and the end."""
    keep: int = 3
    """How many checkpoints stay on the disk."""
    devices: int = 1
    """Devices that share out the worlds."""
    tensorboard: bool = False
    """Whether TensorBoard event files are written too."""

    def __post_init__(self):
        least = {"steps": 1, "seed": 0, "seeds": 1, "chunk": 1, "log_every": 1, "keep": 1, "devices": 1}
        for name, smallest in (least | {"evaluate_every": 0, "checkpoint_every": 0}).items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TwinaxError(f"{name} is {value!r}; it must be a whole number")
            if value < smallest:
                raise TwinaxError(f"{name} is {value}; it must be at least {smallest}")
        if self.steps >= 2**31:
            raise TwinaxError(f"steps is {self.steps}; steps are counted in 32 bits, so at most {2**31 - 1}")
        if self.seed + self.seeds > 2**32:
            raise TwinaxError(f"seed {self.seed} with {self.seeds} seeds goes beyond {2**32 - 1}; use a smaller seed")
        for name in ("mode", "dtype", "noise"):
            if not isinstance(getattr(self, name), str):
                raise TwinaxError(f"{name} is {getattr(self, name)!r}; it must be a name")
        if not isinstance(self.tensorboard, bool):
            raise TwinaxError(f"tensorboard is {self.tensorboard!r}; it must be true or false")
        if self.dtype not in DTYPES:
            raise UnknownName("dtype", self.dtype, DTYPES)

    @classmethod
    def make(cls, steps: int, **given: Any) -> Plan:
        """A plan in which what is None gets its default for this many steps.

        >>> Plan.make(20_000, log_every=None).log_every
        20
        """
        plan = cls(steps=steps, **{name: value for name, value in given.items() if value is not None})
        defaults = {
            "log_every": max(1, steps // 1000),
            "evaluate_every": max(100, steps // 20),
            "checkpoint_every": max(100, steps // 10),
        }
        return replace(plan, **{name: value for name, value in defaults.items() if given.get(name) is None})

    @classmethod
    def stored(cls, values: Mapping[str, Any], **changed: Any) -> Plan:
        """The plan of a checkpoint, with what is not None changed."""
        known = {field.name for field in fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        return cls(**kept | {name: value for name, value in changed.items() if value is not None})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def logs(self, step: int) -> bool:
        """Whether the regular rows of the log include this step: the first, every `log_every`-th, each evaluation."""
        return step == 1 or step % self.log_every == 0 or _every(step, self.evaluate_every)

    def evaluates(self, step: int) -> bool:
        return step == self.steps or _every(step, self.evaluate_every)

    def saves(self, step: int) -> bool:
        return step == self.steps or _every(step, self.checkpoint_every)

    def next_chunk(self, done: int, limit: int) -> int:
        """Steps to run next: at most `chunk` and `limit`, and never past an evaluation or a checkpoint.

        The very first step is a chunk of its own, so that a person soon sees that training goes on.
        """
        if done == 0:
            return 1
        ends = [self.steps]
        ends += [(done // every + 1) * every for every in (self.evaluate_every, self.checkpoint_every) if every]
        return max(1, min(self.chunk, limit, min(ends) - done))


def _every(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
