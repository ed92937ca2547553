"""The sections that every experiment has. Each field is an override: `trainer.steps=100`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinax.conf._mirror import make_options, mirror
from twinax.errors import TwinaxError
from twinax.runs.sinks import LOGGERS
from twinax.train_options import TrainOptions, mode_name

if TYPE_CHECKING:
    from twinax.problem import Problem

ROOTS = ("seed", "seeds", "logger")
"""Options of a run that stand at the root: seed=1 is short."""


@dataclass
class TrainerSection(mirror(TrainOptions, leave_out=ROOTS)):
    """How a problem is run."""


@dataclass
class BatchSection(TrainerSection):
    """How a problem with a batch of its own is run."""

    batch_size: int = 16
    """Trajectories (GFlowNets), transitions of each agent (treasure hunt) or rows (offline) of an update; PPO has
    ppo.num_minibatches instead."""


@dataclass
class RunSection:
    """Where results go."""

    dir: str | None = None
    """Directory of this run; null makes a new one under runs/."""
    name: str | None = None
    """Name of the new directory under runs/, after the date; null makes a name of what is trained."""


@dataclass
class ParitySection:
    """What `twinax parity` checks."""

    modes: list[str] = field(default_factory=lambda: ["torch", "hybrid", "jax"])
    """Engines that parity compares: torch, hybrid, jax; the first is the reference."""
    tolerance: float = 1e-9
    """Largest relative difference that passes as equal, in float64."""
    steps: int | None = None
    """Training steps over which whole runs are compared; null: as the problem says (20, offline 5, hunt 5, PPO 2)."""


@dataclass
class CompareSection:
    """What `twinax compare` measures."""

    modes: list[str] = field(default_factory=lambda: ["torch", "hybrid", "jax"])
    """Engines that are timed, each in a process of its own: torch, hybrid, jax."""
    repeats: int = 5
    """How often each engine is timed after the warm-up."""
    steps: int = 100
    """Training steps that one timing takes."""
    warm_up: int = 20
    """Training steps before the first timing, counted apart with the compilation."""
    parity_steps: int | None = None
    """Training steps of the parity check before a ratio is printed; null: 20, or fewer where the problem says so."""


@dataclass
class Root(mirror(TrainOptions, only=ROOTS)):
    """The root of every experiment's configuration; a family extends it with its own sections."""

    experiment: str = "gflownet"
    """Which experiment this is; the override experiment=NAME chooses it."""
    trainer: TrainerSection = field(default_factory=TrainerSection)
    run: RunSection = field(default_factory=RunSection)
    parity: ParitySection = field(default_factory=ParitySection)
    compare: CompareSection = field(default_factory=CompareSection)


def as_dict(config: Root) -> dict[str, Any]:
    """Plain values, as written to config.yaml."""
    return dataclasses.asdict(config)


def count_steps(config: Root, problem: Problem) -> None:
    """Write trainer.env_steps, where it was given, as the steps that it is for this problem."""
    unit = problem.present.unit
    config.trainer.steps = train_options(config).counted(unit.column, unit.per_step).steps
    config.trainer.env_steps = None


def at_least(least: int, **values: int | None) -> None:
    """Refuse integers below `least`; keywords name them, with __ for a dot. None passes."""
    for name, value in values.items():
        if value is not None and value < least:
            raise TwinaxError(f"{name.replace('__', '.')} is {value}; it must be at least {least}")


def train_options(config: Root, **changed: Any) -> TrainOptions:
    """How a configuration is run."""
    roots = {name: getattr(config, name) for name in ROOTS}
    if config.trainer.env_steps is not None:
        # In place of the steps that an experiment begins with; a person who gives both was told so before.
        changed = {"steps": TrainOptions.steps, **changed}
    return make_options(config.trainer, "trainer", **roots | changed)


def check(config: Root) -> Root:
    """Refuse values that no experiment can use, and write modes by their own names."""
    compare = config.compare
    config.trainer.mode = train_options(config).mode
    config.logger = [LOGGERS.resolve(name) for name in config.logger]
    at_least(0, compare__warm_up=compare.warm_up)
    at_least(
        1,
        trainer__batch_size=getattr(config.trainer, "batch_size", None),
        parity__steps=config.parity.steps,
        compare__repeats=compare.repeats,
        compare__steps=compare.steps,
        compare__parity_steps=compare.parity_steps,
    )
    for section in (config.parity, compare):
        section.modes = list(dict.fromkeys(mode_name(mode) for mode in section.modes))
    if not compare.modes:
        raise TwinaxError("compare.modes is empty; name at least one mode, such as compare.modes=[torch,jax]")
    if not config.parity.tolerance > 0:
        raise TwinaxError(f"parity.tolerance is {config.parity.tolerance}; it must be above 0")
    if len(config.parity.modes) < 2:
        raise TwinaxError(f"parity.modes is {config.parity.modes}; a comparison needs at least two modes")
    return config
