"""The walking robot in four levels: sections, tasks and levels, and how they become a problem."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twinax.brax.habits import ALWAYS, DEFAULTS, WITHIN, combined, refuse_what_brax_cannot
from twinax.conf._mirror import CHOSEN, make_options, mirror
from twinax.conf._registry import Experiment, Group, Preset
from twinax.conf._sections import train_options
from twinax.conf.experiments.ppo import KEY_ALIASES, Learning, annealed, options
from twinax.engines import check_memory, num_processes
from twinax.envs import Reference
from twinax.envs.biped import Biped, Ranges, check_reference, motion_features, scripted_gait
from twinax.envs.biped.settings import REWARDED, STAND_REWARDS, TASKS, WALK_REWARDS
from twinax.errors import TwinaxError
from twinax.ppo import PPO, AmpOptions, Hooks, amp, problem

TaskSection = mirror(Biped, leave_out=["robot", "rewards", "ranges", "action_scales"], name="walk", robot="biped")
RangesSection = mirror(Ranges)
RewardsSection: Any = dataclasses.make_dataclass(
    "RewardsSection", [(name, float, dataclasses.field(default=weight)) for name, weight in WALK_REWARDS.items()]
)
RewardsSection.sentences = {name: f"Reward per second, {about}; 0 leaves it out." for name, about in REWARDED.items()}


@dataclass
class LevelSection:
    """How much of the training is compiled."""

    name: str = "level_3"
    """Level of compilation, chosen with level=1, 2, 3 or 4."""


AmpFields = mirror(AmpOptions)


@dataclass
class AmpSection(AmpFields):
    """Style from reference motion."""

    name: str = "none"
    """Source of reference motion, chosen with amp=NAME: none, scripted (a gait made by geometry) or file."""
    file: str | None = None
    """File of reference motion for amp=file, as `Reference.save` writes it; null for none."""
    speed: float = 0.2
    """Speed of the gait of amp=scripted, in m/s."""
    learning_rate: float = 1e-4
    """Step size of the discriminator."""


@dataclass
class BipedRoot(Learning):
    """Everything that a run of the robot is told."""

    task: Any = CHOSEN
    level: Any = CHOSEN
    amp: Any = CHOSEN
    rewards: Any = field(default_factory=RewardsSection)
    ranges: Any = field(default_factory=RangesSection)


def build_world(config: BipedRoot) -> Biped:
    """The robot's world."""
    return make_options(config.task, rewards=dict(vars(config.rewards)), ranges=make_options(config.ranges))


def build_style(config: BipedRoot, world: Biped, commanded: bool = True) -> Hooks | None:
    """The discriminator's part, with a reference that was checked against the robot, and against what it is told."""
    section = config.amp
    if section.name == "none":
        return None
    if section.name == "file":
        if section.file is None:
            raise TwinaxError("amp=file needs reference motion: amp.file=FILE")
        reference = Reference.load(section.file)
    else:
        reference = scripted_gait(world, section.speed)
    check_reference(world, reference, commanded)
    return amp(reference, functools.partial(motion_features, world), world.seconds, make_options(section))


def build_problem(config: BipedRoot) -> PPO:
    """The problem of a configuration."""
    world = build_world(config)
    return _with_style(config, world, build_style(config, world))


def build_untrained(config: BipedRoot, tell: Callable[[str], None] | None = None) -> PPO:
    """The same where nothing is trained: its reference serves only to be compared with, and may be missing."""
    world, hooks = build_world(config), None
    if tell is not None:
        try:
            hooks = build_style(config, world, commanded=False)
        except TwinaxError as error:
            tell(f"gait_distance is left out: {error}")
    return _with_style(config, world, hooks)


def _with_style(config: BipedRoot, world: Biped, hooks: Hooks | None) -> PPO:
    optimizer = annealed(config)
    if config.amp.name != "none":
        rates = {"discriminator": config.amp.learning_rate}
        optimizer = dataclasses.replace(optimizer, separate=True, rates=rates)
    return problem(world, optimizer=optimizer, hooks=hooks, **options(config.ppo))


def by_brax(config: BipedRoot) -> Any:
    """Brax's own training at level 2."""
    if config.level.name != "level_2":
        return None
    if config.amp.name != "none":
        raise TwinaxError("Brax's training is one closed program, into which amp cannot be put; use level=3")
    # Before the settings: several processes have a device each.
    if (number := num_processes()) > 1:
        raise TwinaxError(f"Brax's training is one process here, and {number} were started; use level=4")
    refuse_what_brax_cannot({"": config, "ppo": config.ppo, "optimizer": config.optimizer, "trainer": config.trainer})
    from twinax.brax.training import train_with_brax

    def train(subject: PPO, *given: Any, **options: Any) -> Any:
        check_memory(subject, train_options(config))  # no engine of ours will
        return train_with_brax(subject, *given, **options)

    return train


LEARNING = {
    "ppo": {
        "hidden": [128, 128],
        "activation": "elu",
        "first_std": 0.3,
        "num_envs": 256,
        "num_steps": 24,
        "num_epochs": 4,
        "num_minibatches": 8,
        "gamma": 0.98,
        "ent_coef": 0.001,
        "value_clip": 0.0,
        "normalise_observations": True,
        "normalise_rewards": False,
        "pool": 256,
        "episodes": 32,
        "anneal": True,
    },
    "optimizer": {"learning_rate": 5e-4, "clip_norm": 1.0, "decay_to": 0.1},
    "trainer": {"chunk": 10, "evaluate_every": 50, "checkpoint_every": 50},
}


FROM_PYTHON = {
    "trainer": {"mode": "hybrid", "chunk": 1},
    "task": {"threads": 1},
    "ppo": {"num_envs": 16, "num_steps": 384},
}
"""A few robots, stepped from Python."""

BRAX = combined(ALWAYS, WITHIN, {"ppo": {name: DEFAULTS["ppo"][name] for name in ("activation", "clip")}})
BRAX |= BRAX.pop("")  # settings of no section
"""What Brax does, so that config.yaml tells the truth, and a run of level 2 goes on at level 3."""


def task(name: str, steps: int, rewards: dict[str, float]) -> Preset:
    """A task, and a training long enough for it."""
    changes = {key: value for key, value in TASKS[name].items() if key != "rewards"}
    changes = {key: list(value) if isinstance(value, tuple) else value for key, value in changes.items()}
    trainer = {**LEARNING["trainer"], "steps": steps}
    section = TaskSection(**{**changes, "name": name})
    return Preset({"task": section, "rewards": dict(rewards), **LEARNING, "trainer": trainer})


EXPERIMENT = Experiment(
    name="biped",
    summary="a robot on legs that learns to stand and walk, from MuJoCo on the host to many devices",
    schema=BipedRoot,
    groups={
        "task": Group(
            default="walk",
            choices={"walk": task("walk", 1500, WALK_REWARDS), "stand": task("stand", 200, STAND_REWARDS)},
        ),
        "amp": Group(default="none", choices={name: AmpSection(name=name) for name in ("none", "scripted", "file")}),
        # A choice that is a bare number would not be one of Hydra's names.
        "level": Group(
            default="level_3",
            choices={
                "level_1": Preset({"level": LevelSection("level_1"), **FROM_PYTHON}),
                "level_2": Preset({"level": LevelSection("level_2"), **BRAX}),
                "level_3": LevelSection("level_3"),
                "level_4": Preset({"level": LevelSection("level_4"), "trainer": {"devices": 2}, "ppo": {"groups": 2}}),
            },
            aliases={str(number): f"level_{number}" for number in (1, 2, 3, 4)},
        ),
    },
    build=build_problem,
    uses=("act", "export"),
    untrained=build_untrained,
    train=by_brax,
    key_aliases={**KEY_ALIASES, "env": "task"},
    named_by=("task",),
)
