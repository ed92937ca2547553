"""The treasure hunt: sections, presets and older names, and how they become a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twinax import Optimizer
from twinax.conf._mirror import CHOSEN, make_options, mirror, open_section, sections_of
from twinax.conf._networks import NetworkSection, make_network
from twinax.conf._registry import Experiment, Group, Preset
from twinax.conf._sections import BatchSection, Root, at_least
from twinax.envs import WORLDS, TreasureHunt, World
from twinax.errors import TwinaxError
from twinax.iqn import Learners, Players, ReplayOptions, problem, scripted_epoch

WorldSection = mirror(TreasureHunt, name="treasurehunt")
ReplaySection = mirror(ReplayOptions)
LEFT_OUT = ("count", "batch_size", "replay", "network")
"""What other sections have."""


@dataclass
class ModelSection(mirror(Learners, leave_out=LEFT_OUT), NetworkSection):
    """How agents learn."""

    parallel: bool = True
    """Whether all agents act and learn in one batched computation, or else one after the other."""


@dataclass
class PlayersSection:
    """Agents of the world that do not learn; the others do."""

    random: int = 0
    """Agents of the world that act at random."""
    seeker: int = 0
    """Agents of the world that walk to the nearest thing of value in view."""


@dataclass
class EvaluationSection:
    """How agents are judged."""

    num_envs: int = 16
    """Worlds that an evaluation plays for each way of acting: greedy, nearly greedy and random."""
    epsilon: float = 0.05
    """Probability of a random action in the nearly greedy way of acting of an evaluation."""
    film: bool = True
    """Whether each evaluation leaves a GIF of one world."""


@dataclass
class PresetSection:
    """Which set of defaults this is."""

    name: str = "default"
    """Set of defaults, chosen with preset=NAME: default, seed or sorrel."""
    num_envs: int = 1
    """Worlds that are played at once in an epoch."""
    gradient_steps: int = 1
    """Train steps of every learning agent after an epoch."""


@dataclass
class TreasurehuntRoot(Root):
    """Everything that a treasure hunt is told."""

    trainer: BatchSection = field(default_factory=BatchSection)
    world: Any = CHOSEN
    preset: Any = CHOSEN
    model: Any = field(default_factory=ModelSection)
    replay: Any = field(default_factory=ReplaySection)
    players: PlayersSection = field(default_factory=PlayersSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    optimizer: Any = field(
        default_factory=lambda: mirror(Optimizer, leave_out=["rates", "learning_rate", "clip_by"])(clip_norm=1.0)
    )


def _mode(value: str) -> list[str]:
    modes = {"true": "jax", "false": "torch"}
    if value.lower() not in modes:
        raise TwinaxError(f"use_jax is '{value}'; give true or false, or trainer.mode itself")
    return [f"trainer.mode={modes[value.lower()]}"]


def _observation(value: str) -> list[str]:
    return [f"world.observation={'one_hot' if value == 'onehot' else value}"]


KEY_ALIASES: Mapping[str, str | Callable[[str], list[str]]] = {
    "experiment.epochs": "trainer.steps",
    "experiment.max_turns": "world.turns",
    "experiment.record_period": "trainer.evaluate_every",
    "experiment.name": "run.name",
    "epochs": "trainer.steps",
    "preset.worlds": "preset.num_envs",
    "evaluation.worlds": "evaluation.num_envs",
    "preset.train_steps": "preset.gradient_steps",
    "model.quantiles": "model.num_quantiles",
    "model.act_quantiles": "model.num_act_quantiles",
    "model.cosines": "model.num_cosines",
    "model.atoms": "model.num_atoms",
    "model.low": "model.v_min",
    "model.high": "model.v_max",
    "model.target_rate": "model.tau",
    "model.sync_every": "model.target_network_frequency",
    "model.gamma": "replay.gamma",
    "replay.memory": "replay.buffer_size",
    "replay.frames": "replay.frame_stack",
    "env": "world",
    "model.use_jax": _mode,
    "use_jax": _mode,
    "model.parallel_processing": "model.parallel",
    "parallel_processing": "model.parallel",
    "model.batch_size": "trainer.batch_size",
    "model.agent_vision_radius": "world.radius",
    "model.observation_spec": _observation,
    "model.layer_size": "model.width",
    "model.n_quantiles": "model.num_quantiles",
    "model.n_frames": "replay.frame_stack",
    "model.n_step": "replay.n_step",
    "model.memory_size": "replay.buffer_size",
    "model.sync_freq": "model.target_network_frequency",
    "model.LR": "model.learning_rate",
    "model.TAU": "model.tau",
    "model.GAMMA": "replay.gamma",
    "model.num_agents": "world.num_agents",
    "model.device": "trainer.device",
}
"""Names of the original's configuration, to the names here."""

HINTS = {
    "model.model_update_freq": "one train step a turn is not offered; preset.gradient_steps follow an epoch",
}


def build_problem(config: TreasurehuntRoot):
    """The problem of a configuration."""
    world, players = make_options(config.world, "world"), config.players
    if not isinstance(world, World):
        raise TwinaxError(
            f"world={config.world.name} makes a {type(world).__name__}; several agents play a tx.envs.World"
        )
    at_least(0, players__random=players.random, players__seeker=players.seeker)
    at_least(1, preset__num_envs=config.preset.num_envs, preset__gradient_steps=config.preset.gradient_steps)
    at_least(1, evaluation__num_envs=config.evaluation.num_envs)
    scripted = {rule: Players(count, rule) for rule, count in vars(players).items() if count}
    count = world.num_agents - players.random - players.seeker
    if count < 1:
        raise TwinaxError(
            f"players.random={players.random} and players.seeker={players.seeker} leave none of the world's "
            f"{world.num_agents} agents to learn; make world.num_agents larger"
        )
    learners = make_options(
        config.model,
        count=count,
        batch_size=config.trainer.batch_size,
        replay=make_options(config.replay),
        network=make_network(config.model, "model"),
    )
    return problem(
        world,
        {"iqn": learners, **scripted},
        num_envs=config.preset.num_envs,
        gradient_steps=config.preset.gradient_steps,
        optimizer=make_options(config.optimizer),
        parallel=config.model.parallel,
        evaluation_num_envs=config.evaluation.num_envs,
        evaluation_epsilon=config.evaluation.epsilon,
        film=config.evaluation.film,
    )


def play_scripted(config: TreasurehuntRoot, agent: int, seed: int) -> tuple[World, Callable[..., Any]]:
    """The world of a configuration, and an epoch of a person with players that do not learn."""
    world, wanted = make_options(config.world, "world"), config.players
    at_least(0, players__random=wanted.random, players__seeker=wanted.seeker)
    others = world.num_agents - 1
    if wanted.random + wanted.seeker > others:
        raise TwinaxError(
            f"{wanted.random + wanted.seeker} players are wanted, but beside you there are {others} agents; "
            "make world.num_agents larger"
        )
    rules = ["seeker"] * wanted.seeker + ["random"] * (others - wanted.seeker)
    rules.insert(min(max(agent, 0), others), "random")  # a seat that is never asked
    return world, scripted_epoch(world, rules, seed)


SEED = {
    "model": {"epsilon": 1.0, "epsilon_decay": 0.001, "epsilon_min": 0.0},
    "trainer": {"batch_size": 256, "steps": 1000, "chunk": 10, "evaluate_every": 50},
}
"""The configuration of the original's jax example."""

SORREL = {
    **SEED,
    "replay": {"store_done": False, "clear_gap": False, "returns": False, "ring": False},
    "model": {**SEED["model"], "num_act_quantiles": 12},
}
"""The same with the original's habits: no episode ends, stale frames, a discount instead of n-step returns, and windows
over slots in a row."""

DEFAULT = {
    "model": {
        "width": 64,
        "num_quantiles": 8,
        "num_act_quantiles": 8,
        "learning_rate": 1e-3,
        "tau": 0.005,
        "target_network_frequency": 0,
        "epsilon": 1.0,
        "epsilon_decay": 0.01,
        "epsilon_min": 0.02,
    },
    "replay": {"buffer_size": 4096},
    "trainer": {"batch_size": 64, "steps": 800, "chunk": 10, "evaluate_every": 50},
}
"""Learns in about a minute on two cores: small networks, four worlds, four train steps after each epoch."""

EXPERIMENT = Experiment(
    name="treasurehunt",
    summary="agents that gather treasure in a grid world, with implicit quantile networks",
    schema=TreasurehuntRoot,
    groups={
        "world": Group(
            default="treasurehunt",
            choices={
                **sections_of(WORLDS),
                "treasurehunt_items": WorldSection(name="treasurehunt_items", variant="gem_food_bone"),
            },
            open=open_section("world"),
            registry=WORLDS,
            aliases={"treasurehunt_mp": "treasurehunt", "gem": "treasurehunt", "gem_food_bone": "treasurehunt_items"},
        ),
        "preset": Group(
            default="default",
            choices={
                "default": Preset(
                    {"preset": PresetSection(num_envs=4, gradient_steps=4), **DEFAULT},
                    choose={"world": "treasurehunt_items"},
                ),
                "seed": Preset({"preset": PresetSection("seed"), **SEED}),
                "sorrel": Preset({"preset": PresetSection("sorrel"), **SORREL}),
            },
        ),
    },
    build=build_problem,
    play=play_scripted,
    uses=("act", "export", "play"),
    key_aliases=KEY_ALIASES,
    hints=HINTS,
    named_by=("world", "preset"),
)
