"""What a run is told besides its problem: one record, from the command line down to the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.platforms import split_device

MODES = ("torch", "hybrid", "jax")
ALIASES = {"legacy": "torch"}
DTYPES = ("float32", "float64")
NOISES = ("shared", "native")
SEEDS_AS = ("auto", "threads", "program")
TORCH_DEVICES = ("cpu", "cuda", "mps")
"""Kinds of device for the torch and hybrid modes; for the jax mode it is what JAX has."""
LEAST = {
    "steps": 1, "env_steps": 1, "seed": 0, "seeds": 1, "chunk": 1, "log_every": 1, "evaluate_every": 0,
    "checkpoint_every": 0, "keep": 1, "devices": 1,
}  # fmt: skip


def mode_name(mode: str) -> str:
    """The mode behind a name or alias; unknown names list the known ones."""
    name = ALIASES.get(mode, mode) if isinstance(mode, str) else None
    if name not in MODES:
        raise UnknownName("trainer.mode", mode, (*MODES, *ALIASES))
    return name


@checked
@dataclass(frozen=True)
class TrainOptions:
    """How a problem is run. None of it but `seed` and `noise` changes a run's numbers.

    >>> TrainOptions(mode="legacy", steps=100).mode
    'torch'
    """

    mode: str = "jax"
    """Engine: torch (alias legacy), hybrid (PyTorch samples, JAX updates) or jax (one compiled program)."""
    steps: int = 20_000
    """Training steps of the whole run, those before a resume included; what a step is depends on the family."""
    env_steps: int | None = None
    """Environment steps of the whole run, in place of `steps`, for problems that act in an environment; rounded up
    to whole training steps. null: `steps` counts."""
    seed: int = 0
    """Root of the initial weights and of all random numbers."""
    seeds: int = 1
    """How many seeds are trained at once, from `seed` on (jax mode)."""
    seeds_as: str = "auto"
    """How seeds are trained at once: program (one for all), threads (one for each), or auto (threads on a CPU)."""
    dtype: str = "float32"
    """Precision of parameters and losses: float32 or float64."""
    noise: str = "shared"
    """Where random numbers are from: shared (the same draws in every mode) or native (PyTorch's own generator, torch
    mode)."""
    chunk: int = 100
    """Most training steps between two looks of the host; the jax mode compiles a loop of this many into one program."""
    log_every: int | None = None
    """Training steps between two lines of metrics.jsonl; null lets the run choose (about a thousand lines in all)."""
    evaluate_every: int | None = None
    """Training steps between two evaluations; 0 means only at the end, null lets the run choose (about twenty in
    all)."""
    checkpoint_every: int | None = None
    """Training steps between two checkpoints; 0 means only at both ends, null lets the run choose (about ten in
    all)."""
    keep: int = 3
    """How many of the newest checkpoints stay on the disk."""
    device: str = "auto"
    """Device that computes: auto, cpu, cuda, cuda:1 (the second) or mps for PyTorch; auto, cpu, gpu, tpu for JAX."""
    devices: int = 1
    """Number of devices of the kind `device` that share out a run's worlds (jax mode, PPO and the robot); a CPU's
    are threads."""
    logger: tuple[str, ...] = ()
    """Where the log goes besides the run directory, a list of: tensorboard, wandb, mlflow, trackio,
    package.module:Name; [] for nowhere."""

    def __post_init__(self):
        object.__setattr__(self, "mode", mode_name(self.mode))
        for name, smallest in LEAST.items():
            if (value := getattr(self, name)) is not None and value < smallest:
                raise TwinaxError(f"{name} is {value}; it must be at least {smallest}")
        if self.env_steps is not None and self.steps != TrainOptions.steps:
            raise TwinaxError(
                f"steps is {self.steps} and env_steps is {self.env_steps}; both say how long the run is: give one"
            )
        if self.steps >= 2**31:
            raise TwinaxError(f"steps is {self.steps}; steps are counted in 32 bits, so at most {2**31 - 1}")
        if self.seed + self.seeds > 2**32:
            raise TwinaxError(f"seed {self.seed} with {self.seeds} seeds goes beyond {2**32 - 1}; use a smaller seed")
        for name, known in (("dtype", DTYPES), ("noise", NOISES), ("seeds_as", SEEDS_AS)):
            if getattr(self, name) not in known:
                raise UnknownName(name, getattr(self, name), known)
        self._check_device()
        if self.seeds > 1 and self.mode != "jax":
            raise TwinaxError(f"seeds={self.seeds} needs trainer.mode=jax; mode {self.mode} trains one seed at a time")
        if self.devices > 1 and (self.mode != "jax" or self.seeds > 1):
            raise TwinaxError(
                f"devices={self.devices} needs trainer.mode=jax and seeds=1, not mode {self.mode} with "
                f"{self.seeds} seeds"
            )
        if self.noise == "native" and self.mode != "torch":
            raise TwinaxError(f"noise=native is PyTorch's own stream and needs trainer.mode=torch, not {self.mode}")

    def _check_device(self) -> None:
        """The name alone; whether there is such a device is seen when an engine is made."""
        if self.device == "auto":
            return
        kind, index = split_device(self.device)
        if self.mode != "jax" and kind not in TORCH_DEVICES:
            raise TwinaxError(
                f"device is '{self.device}', but trainer.mode={self.mode} computes on auto, "
                f"{', '.join(TORCH_DEVICES)}, or on one of several, such as cuda:1"
            )
        if index is not None and self.devices > 1:
            raise TwinaxError(
                f"device is '{self.device}', which is one, but devices={self.devices} asks for several: name the kind "
                f"alone, device={kind}"
            )
        if kind == "mps" and self.dtype == "float64":
            raise TwinaxError("device is 'mps', which has no float64: use trainer.dtype=float32 or trainer.device=cpu")

    @classmethod
    def stored(cls, values: Mapping[str, Any], **changed: Any) -> TrainOptions:
        """Those of a checkpoint, with what is not None changed."""
        known = {field.name for field in dataclasses.fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        given = {name: value for name, value in changed.items() if value is not None}
        return choose_options(cls(**kept), given)

    def counted(self, column: str, per_step: int) -> TrainOptions:
        """The same with a number of steps, for a problem that counts `per_step` of `column` in each.

        >>> TrainOptions(env_steps=1000).counted("env_steps", 128).steps
        8
        """
        if self.env_steps is None:
            return self
        if column != "env_steps":
            raise TwinaxError(
                f"env_steps is {self.env_steps}, but this problem takes no steps in an environment while it learns; "
                "give its steps instead"
            )
        return dataclasses.replace(self, steps=-(-self.env_steps // per_step), env_steps=None)

    def with_intervals(self) -> TrainOptions:
        """The same with numbers for the intervals that a run may choose.

        >>> TrainOptions(steps=20_000).with_intervals().log_every
        20
        """
        chosen = {
            "log_every": max(1, self.steps // 1000),
            "evaluate_every": max(100, self.steps // 20),
            "checkpoint_every": max(100, self.steps // 10),
        }
        return dataclasses.replace(self, **{name: x for name, x in chosen.items() if getattr(self, name) is None})

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as a checkpoint keeps them."""
        return dataclasses.asdict(self)

    # What happens after a step; for options with intervals

    def logs(self, step: int) -> bool:
        """Whether the regular rows of the log include this step: the first, every `log_every`-th, each evaluation."""
        return step == 1 or _every(step, self.log_every) or _every(step, self.evaluate_every)

    def evaluates(self, step: int) -> bool:
        """Whether this step is followed by an evaluation."""
        return step == self.steps or _every(step, self.evaluate_every)

    def saves(self, step: int) -> bool:
        """Whether this step is followed by a checkpoint."""
        return step == self.steps or _every(step, self.checkpoint_every)

    def next_chunk(self, done: int, limit: int, at_rows: bool = False) -> int:
        """Steps to run next: at most `chunk` and `limit`, never past an evaluation or a checkpoint, and with `at_rows`
        not past a row of the log either.

        The very first step is a chunk of its own, so that a person soon sees that training goes on.
        """
        if done == 0:
            return 1
        ends = [self.steps]
        intervals = (self.evaluate_every, self.checkpoint_every, self.log_every if at_rows else 0)
        ends += [(done // every + 1) * every for every in intervals if every]
        return max(1, min(self.chunk, limit, min(ends) - done))


def _every(step: int, every: int | None) -> bool:
    return bool(every) and step % every == 0


def choose_options(options: TrainOptions | None, changed: Mapping[str, Any]) -> TrainOptions:
    """Options with some of them changed; without any, the defaults."""
    chosen = options or TrainOptions()
    if changed.get("env_steps") is not None:
        # In place of the steps that were chosen before; given together they are refused.
        changed = {"steps": TrainOptions.steps, **changed}
    elif changed.get("steps") is not None:
        changed = {"env_steps": None, **changed}
    return dataclasses.replace(chosen, **changed)
