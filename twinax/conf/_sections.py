"""The sections that every experiment has. Each field is an override: `trainer.steps=100`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from twinax.errors import TwinaxError, UnknownName

DTYPES = ("float32", "float64")
CHOSEN = "???"
"""Default of a section that a group fills in: OmegaConf's mark for a value that must come from elsewhere."""
LARGEST_SEED = 2**32 - 1


@dataclass
class TrainerSection:
    """How a problem is run."""

    mode: str = "jax"
    """Engine: torch (alias legacy), hybrid (PyTorch samples, JAX updates) or jax (one compiled program)."""
    steps: int = 20_000
    """Training steps; one step is one batch and one optimizer update."""
    batch_size: int = 16
    """Trajectories or rows in one step."""
    chunk: int = 100
    """Steps between two looks of the host; the jax mode compiles this many into one program."""
    dtype: str = "float32"
    """Precision of parameters and losses: float32 or float64."""
    log_every: int | None = None
    """Steps between two lines of metrics.jsonl; null lets the run choose."""
    evaluate_every: int | None = None
    """Steps between two evaluations; 0 means only at the end, null lets the run choose."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints; 0 means only at both ends, null lets the run choose."""
    noise: str = "shared"
    """shared: the same draws in every mode; native: PyTorch's own generator (torch mode)."""
    devices: int = 1
    """Devices that share out the worlds of a run (jax mode, families that allow it); on a CPU they are threads."""
    tensorboard: bool = False
    """Also write TensorBoard files into the run directory."""


@dataclass
class RunSection:
    """Where results go."""

    dir: str | None = None
    """Directory of this run; null makes a new one under runs/."""
    name: str | None = None
    """Name of that new directory, after the date; null makes one of what is run."""


@dataclass
class ParitySection:
    """What `twinax parity` checks."""

    modes: list[str] = field(default_factory=lambda: ["torch", "hybrid", "jax"])
    """Engines to compare; the first is the reference."""
    tolerance: float = 1e-9
    """Largest relative difference that passes, in float64."""
    steps: int | None = None
    """Training steps over which whole runs are compared; null: as the problem says (20, offline 5, hunt 5, PPO 2)."""


@dataclass
class CompareSection:
    """What `twinax compare` measures."""

    modes: list[str] = field(default_factory=lambda: ["torch", "hybrid", "jax"])
    """Engines to measure, each in a process of its own."""
    repeats: int = 5
    """Times that an engine is timed after the warm-up."""
    steps: int = 100
    """Training steps of each time."""
    warm_up: int = 20
    """Untimed steps before the first timed ones, counted apart with the compilation."""
    parity_steps: int | None = None
    """Training steps of the parity check before a ratio is printed; null: 20, or fewer where the problem says so."""


@dataclass
class Root:
    """The root of every experiment's configuration; a family extends it with its own sections."""

    experiment: str = "gflownet"
    """Which experiment this is; the override experiment=NAME chooses it."""
    seed: int = 0
    """Root of initial weights and of all noise."""
    seeds: int = 1
    """How many seeds to train at once, from `seed` on (jax mode)."""
    trainer: TrainerSection = field(default_factory=TrainerSection)
    run: RunSection = field(default_factory=RunSection)
    parity: ParitySection = field(default_factory=ParitySection)
    compare: CompareSection = field(default_factory=CompareSection)


def as_dict(config: Root) -> dict[str, Any]:
    """Plain values, as written to config.yaml."""
    return dataclasses.asdict(config)


def at_least(least: int, **values: int | None) -> None:
    """Refuse integers below `least`; keywords name them, with __ for a dot. None passes."""
    for name, value in values.items():
        if value is not None and value < least:
            raise TwinaxError(f"{name.replace('__', '.')} is {value}; it must be at least {least}")


def check(config: Root) -> Root:
    """Refuse values that no experiment can use, and write modes by their own names."""
    from twinax.engines import mode_name

    trainer, compare = config.trainer, config.compare
    at_least(
        0,
        seed=config.seed,
        trainer__evaluate_every=trainer.evaluate_every,
        trainer__checkpoint_every=trainer.checkpoint_every,
        compare__warm_up=compare.warm_up,
    )
    at_least(
        1,
        seeds=config.seeds,
        trainer__steps=trainer.steps,
        trainer__batch_size=trainer.batch_size,
        trainer__chunk=trainer.chunk,
        trainer__devices=trainer.devices,
        trainer__log_every=trainer.log_every,
        parity__steps=config.parity.steps,
        compare__repeats=compare.repeats,
        compare__steps=compare.steps,
        compare__parity_steps=compare.parity_steps,
    )
    if config.seed > LARGEST_SEED:
        raise TwinaxError(f"seed is {config.seed}; the largest is {LARGEST_SEED}")
    if trainer.dtype not in DTYPES:
        raise UnknownName("trainer.dtype", trainer.dtype, DTYPES)
    trainer.mode = mode_name(trainer.mode)
    for section in (config.parity, compare):
        section.modes = list(dict.fromkeys(mode_name(mode) for mode in section.modes))
    if not compare.modes:
        raise TwinaxError("compare.modes is empty; name at least one mode, such as compare.modes=[torch,jax]")
    if not config.parity.tolerance > 0:
        raise TwinaxError(f"parity.tolerance is {config.parity.tolerance}; it must be above 0")
    if len(config.parity.modes) < 2:
        raise TwinaxError(f"parity.modes is {config.parity.modes}; a comparison needs at least two modes")
    return config
