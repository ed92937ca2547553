"""Offline agents: sections, choices and older names, and how they become a problem."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinax import Optimizer
from twinax.agents import load_pretrained
from twinax.conf._mirror import CHOSEN, make_options, mirror, open_section, sections_of
from twinax.conf._registry import Experiment, Group, Preset
from twinax.conf._sections import BatchSection, Root, at_least
from twinax.conf.experiments._offline_published import HINTS, KEY_ALIASES, PUBLISHED, STATES, published_presets
from twinax.envs import PointMaze
from twinax.errors import TwinaxError, UnknownName
from twinax.offline import (
    AGENTS,
    NORMALISERS,
    Agent,
    Dataset,
    GymnasiumTask,
    MazeTask,
    Task,
    collect_maze,
    label_maze,
    problem,
    read_dataset,
)


@dataclass
class DataSection:
    """Where the rows are from. Without a file they are walks in the task's maze."""

    file: str | None = None
    """File of pretraining data (also data=FILE): OGBench, D4RL, Minari, ExORL or plain arrays; null collects walks
    in the maze."""
    finetune: str | None = None
    """File of labelled data of the task, for finetuning; null takes the data of `file`."""
    validation: str | None = None
    """File of data on which the losses are shown at each evaluation; null shows none."""
    format: str | None = None
    """Format of the files: ogbench, d4rl, minari, exorl or arrays; null finds it out by looking at them."""
    low: Any = None
    """Smallest action of the files' box, a number or a list, which is scaled to -1; null: what the file says, or -1."""
    high: Any = None
    """Largest action of the files' box, a number or a list, which is scaled to 1; null: what the file says, or 1.
    Evaluations act in that box."""
    rows: int | None = None
    """Rows of `file` that are used, from the beginning; null takes all."""
    finetune_rows: int | None = None
    """Rows of the labelled data that are used, from the beginning; null takes as many as `rows`."""
    mapped: bool | None = None
    """Whether observations and actions stay on the disk; null: if they take more than half of the free memory."""
    normalise: str = "normal"
    """How observations are normalised: none, normal (mean 0, variance 1) or bounded (from -1 to 1); images never
    are."""
    own_statistics: bool = False
    """Whether finetuning data are normalised by their own statistics, as in the released agents, or by those of
    pretraining."""
    frame_stack: int = 1
    """Images that an agent sees at once, the present one included."""
    augment: float = 0.0
    """Probability that the images of a batch are cropped at random, between 0 and 1."""
    trajectories: int = 400
    """Walks that are collected in the maze where no file is given."""
    steps: int = 250
    """Steps of each walk that is collected."""
    walk: str = "navigate"
    """How collected walks go: navigate (to random goals, with a noisy hand) or random."""
    noise: float = 0.5
    """Standard deviation of the noise on the actions of walk=navigate, of which the largest is 1."""
    seed: int = 0
    """Root of the random numbers of collected walks."""


@dataclass
class TaskSection:
    """What the agent is judged by."""

    name: str = "maze"
    """What the agent is judged by, chosen with task=NAME: maze, gymnasium or none."""
    walls: str = "medium"
    """Name of the maze of task=maze: open, u, medium or large; or its rows as text, where # is a wall."""
    inertia: bool = False
    """Whether actions push the point of task=maze, so that its velocity is part of what is seen."""
    goal: list[float] = field(default_factory=lambda: [1.5, 1.5])
    """Place of the goal of task=maze, x and y in cells."""
    positive: bool = False
    """Whether rewards of task=maze are 1 at the goal and 0 elsewhere, in place of 0 and -1."""
    reach: float = 0.0
    """How far the reward of task=maze reaches beyond the goal, in cells, falling off like a bell; 0 means only at
    the goal."""
    env: str | None = None
    """Id of the Gymnasium environment of task=gymnasium, such as Pendulum-v1; null for other tasks."""
    episodes: int = 64
    """Episodes that an evaluation plays."""
    num_envs: int = 10
    """Environments of task=gymnasium that run at once."""


@dataclass
class PhasesSection:
    """Pretraining without rewards, then finetuning with them."""

    pretrain_steps: int = 2_000
    """Training steps of pretraining; the others of trainer.steps are finetuning."""
    finetune_steps: int | None = None
    """Training steps of finetuning, in place of trainer.steps, which becomes the sum of both; null: trainer.steps
    counts."""
    pretrained: str | None = None
    """Directory of a run whose checkpoint takes the place of pretraining; null pretrains."""


@dataclass
class OfflineRoot(Root):
    """Everything that an offline run is told."""

    trainer: BatchSection = field(default_factory=BatchSection)
    agent: Any = CHOSEN
    task: Any = CHOSEN
    preset: Any = CHOSEN
    data: DataSection = field(default_factory=DataSection)
    phases: PhasesSection = field(default_factory=PhasesSection)
    optimizer: Any = field(
        default_factory=lambda: mirror(Optimizer, leave_out=["rates", "clip_by"])(learning_rate=3e-4)
    )

    def __post_init__(self):
        # Written once: a run that is resumed is told trainer.steps only.
        phases = self.phases
        if phases.finetune_steps is not None:
            at_least(0, phases__finetune_steps=phases.finetune_steps)
            self.trainer.steps, phases.finetune_steps = phases.pretrain_steps + phases.finetune_steps, None


@dataclass
class PresetSection:
    """Which set of defaults this is."""

    name: str = "small"
    """Set of defaults, chosen with preset=NAME: small (a few minutes on two cores), paper (the published sizes), or an
    agent and a domain with their published settings, such as infom_cheetah or rebrac_visual_cube_single."""


SMALL = {
    "agent": {"hidden": [128, 128]},
    "trainer": {"batch_size": 256, "steps": 12_000, "chunk": 200},
}


def build_problem(config: OfflineRoot):
    """The problem of a configuration."""
    at_least(1, data__rows=config.data.rows, data__finetune_rows=config.data.finetune_rows)
    at_least(1, task__episodes=config.task.episodes, task__num_envs=config.task.num_envs)
    at_least(0, phases__pretrain_steps=config.phases.pretrain_steps)
    at_least(1, data__frame_stack=config.data.frame_stack)
    if config.data.normalise not in NORMALISERS:
        raise UnknownName("data.normalise", config.data.normalise, NORMALISERS)
    agent, task = make_options(config.agent, "agent"), make_task(config)
    if not isinstance(agent, Agent):
        raise TwinaxError(f"agent={config.agent.name} makes a {type(agent).__name__}; give a tx.offline.Agent")
    raw, labelled = rows(config)
    *place, channels = raw.observations.shape[1:]
    sizes = agent.sizes((*place, channels * config.data.frame_stack), raw.actions.shape[-1], config.trainer.batch_size)
    if sizes.images and config.task.name == "maze":
        raise TwinaxError("the data hold images, but the maze shows places; take task=gymnasium or task=none")
    kind = "none" if sizes.images else config.data.normalise
    state, steps, statistics = None, config.phases.pretrain_steps, None
    if config.phases.pretrained is not None:
        state, statistics = load_pretrained(config.phases.pretrained, agent, sizes)
        steps = int(state.step)
    statistics = statistics or raw.statistics(kind)
    pretraining = raw.normalised(statistics).placed()
    finetuning = None
    if labelled is not None:
        own = config.data.own_statistics or (agent.faithful and config.data.finetune is not None)
        finetuning = labelled.normalised(labelled.statistics(kind) if own else statistics).placed()
        if labelled.observations is raw.observations and not own:  # the same rows are held once
            finetuning = dataclasses.replace(
                finetuning, observations=pretraining.observations, next_observations=pretraining.next_observations
            )
    validation = None
    if config.data.validation is not None:
        validation = in_task(config, read(config, config.data.validation, None)).normalised(statistics).placed()
    return problem(
        agent,
        pretraining if state is None and (steps or finetuning is None) else None,
        finetuning,
        pretrain_steps=steps,
        batch_size=config.trainer.batch_size,
        optimizer=make_options(config.optimizer),
        frame_stack=config.data.frame_stack,
        augment=config.data.augment,
        task=task,
        validation=validation,
        pretrained=state,
    )


def make_task(config: OfflineRoot) -> Task | None:
    """What the agent is judged by."""
    section = config.task
    if section.name == "none":
        return None
    if section.name == "gymnasium":
        if section.env is None:
            raise TwinaxError("task=gymnasium needs the id of an environment, such as task.env=Pendulum-v1")
        frames = config.data.frame_stack
        return GymnasiumTask(section.env, section.episodes, section.num_envs, seed=config.seed, frame_stack=frames)
    if len(section.goal) != 2:
        raise TwinaxError(f"task.goal is {section.goal}; it must be [x, y] in cells of the maze")
    place = (section.goal[0], section.goal[1])
    return MazeTask(make_maze(config), place, section.episodes, section.positive, section.reach)


def rows(config: OfflineRoot) -> tuple[Dataset, Dataset | None]:
    """Pretraining data, and those of the task if there are rewards; not yet normalised."""
    data = config.data
    few = data.rows if data.finetune_rows is None else data.finetune_rows
    if data.file is not None:
        first = read(config, data.file, data.rows)
    elif config.task.name == "maze":
        first = collect_maze(make_maze(config), data.trajectories, data.steps, data.walk, data.noise, data.seed)
    else:
        raise TwinaxError("there are no data: give a file with data=FILE, or task=maze to collect walks in it")
    if data.finetune is not None:
        second = read(config, data.finetune, few)
    else:
        second = first if few is None or few >= first.rows else first.first(few)
    labelled = in_task(config, second)
    return first, None if labelled.rewards is None else labelled


def make_maze(config: OfflineRoot) -> PointMaze:
    """The maze of the task."""
    return PointMaze(config.task.walls, inertia=config.task.inertia)


def in_task(config: OfflineRoot, data: Dataset) -> Dataset:
    """The data with the maze's rewards, if they have none of their own."""
    if data.rewards is not None or config.task.name != "maze":
        return data
    task = config.task
    return label_maze(data, make_maze(config), task.goal, task.positive, task.reach)


def read(config: OfflineRoot, path: str, rows: int | None) -> Dataset:
    """A file, or its first rows."""
    box = {name: side for name in ("low", "high") if (side := getattr(config.data, name)) is not None}
    dataset = read_dataset(Path(path), config.data.format, config.data.mapped, **box)
    return dataset if rows is None or rows >= dataset.rows else dataset.first(rows)


EXPERIMENT = Experiment(
    name="offline",
    summary="agents that learn from data: pretraining without rewards, then finetuning with them",
    schema=OfflineRoot,
    groups={
        "agent": Group(
            default="iql",
            choices=sections_of(AGENTS),
            open=open_section("agent"),
            registry=AGENTS,
            aliases={f"agents/{name}.py": name for name in PUBLISHED},
        ),
        "task": Group(
            default="maze",
            choices={name: TaskSection(name) for name in ("maze", "gymnasium", "none")},
        ),
        "preset": Group(
            default="small",
            choices={
                "small": Preset({"preset": PresetSection(), **SMALL}),
                "paper": Preset({"preset": PresetSection("paper"), **STATES}),
                **published_presets(PresetSection),
            },
        ),
    },
    build=build_problem,
    uses=("act", "export"),
    key_aliases={"data": "data.file", **KEY_ALIASES},
    hints=HINTS,
    named_by=("agent", "task"),
)
