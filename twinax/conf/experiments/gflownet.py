"""GFlowNets: sections, choices and older names, and how they become a problem."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twinax import Optimizer
from twinax.conf._mirror import CHOSEN, make_options, mirror, open_section, sections_of
from twinax.conf._networks import WorldNetworkSection, make_network
from twinax.conf._registry import Experiment, Group, Preset
from twinax.conf._sections import BatchSection, Root, at_least
from twinax.conf.experiments import _gflownet_dag
from twinax.conf.experiments._gflownet_lattice import PRESETS as LATTICE
from twinax.conf.experiments._gflownet_sequences import SEQUENCES
from twinax.conf.experiments._gflownet_trees import TREES
from twinax.envs import ENVIRONMENTS, REWARDS, Environment, GridReward, Hypergrid
from twinax.errors import TwinaxError
from twinax.gflownet import (
    EnergyOptions,
    Exploration,
    LocalSearchOptions,
    MetricOptions,
    PolicyOptions,
    ReplayOptions,
    TargetOptions,
    objectives,
    problem,
)
from twinax.registry import import_code

MOST_LOG_Z = 1_000_000
"""Parameters of log Z; each is a number that is written down."""
Grid = mirror(Hypergrid, leave_out=["reward"], name="hypergrid")


@dataclass
class OwnSection:
    """The reward that a world has of its own."""

    name: str = "own"
    """Name of the choice that proxy=NAME makes."""


@dataclass
class LogZSection:
    """What every objective has beside its own options."""

    log_z_size: int = 1
    """Number of parameters whose sum is log Z; the more there are, the faster it moves."""
    log_z_init: float = 0.0
    """First value of each of the parameters whose sum is log Z."""


@dataclass
class GflownetOptimizer(mirror(Optimizer, leave_out=["rates", "clip_by"])):
    """The update, with a step size of its own for log Z."""

    learning_rate: float = 1e-3
    """Step size of every parameter but log Z."""
    log_z_learning_rate: float = 0.1
    """Step size of the parameters of log Z."""
    energy_learning_rate: float = 1e-2
    """Step size of what a reward learns from data, such as couplings."""


@dataclass
class PolicySection(mirror(PolicyOptions), WorldNetworkSection):
    """The networks."""


BandsSection = mirror(GridReward, name="bands")


@dataclass
class GflownetRoot(Root):
    """Everything that a GFlowNet run is told."""

    trainer: BatchSection = field(default_factory=BatchSection)
    env: Any = CHOSEN
    proxy: Any = CHOSEN
    objective: Any = CHOSEN
    policy: PolicySection = field(default_factory=PolicySection)
    exploration: Any = field(default_factory=mirror(Exploration))
    replay: Any = field(default_factory=mirror(ReplayOptions))
    local_search: Any = field(default_factory=mirror(LocalSearchOptions))
    energy: Any = field(default_factory=mirror(EnergyOptions))
    metrics: Any = field(default_factory=mirror(MetricOptions))
    targets: Any = field(default_factory=mirror(TargetOptions))
    optimizer: GflownetOptimizer = field(default_factory=GflownetOptimizer)


GRID = Preset(
    sections={
        "env": Grid(name="grid", dim=2, side=3),
        "policy": {"hidden": [128, 128], "activation": "leaky_relu"},
        "objective": {"log_z_size": 16, "log_z_init": 150 / 64},
        "optimizer": {"learning_rate": 1e-4, "log_z_learning_rate": "${times:${optimizer.learning_rate},10}"},
        "trainer": {"batch_size": 10, "steps": 5_000},
    },
    choose={"proxy": "uniform"},
)
"""The AHG library's `env=grid`: log Z starts at 16 x 150/64 = 37.5 and moves ten times faster than the rest."""

OBJECTIVE_ALIASES = {
    **objectives.ALIASES,
    "sub_trajectory_balance": "subtrajectory_balance",
    "flowmatch": "flow_matching",
    "vg": "log_partition_variance",
}


def _log_z_multiple(value: str) -> list[str]:
    return ["optimizer.log_z_learning_rate='${times:${optimizer.learning_rate}," + value + "}'"]


def _backward(value: str) -> list[str]:
    return [f"policy.backward={'learned' if value.lower() == 'true' else 'uniform'}"]


KEY_ALIASES: Mapping[str, str | Callable[[str], list[str]]] = {
    "num_envs": "trainer.batch_size",
    "gflownet": "objective",
    "loss": "objective",
    "gflownet.optimizer.n_train_steps": "trainer.steps",
    "gflownet.optimizer.batch_size": "trainer.batch_size",
    "gflownet.optimizer.batch_size.forward": "trainer.batch_size",
    "gflownet.optimizer.lr": "optimizer.learning_rate",
    "gflownet.optimizer.lr_z_mult": _log_z_multiple,
    "gflownet.optimizer.z_dim": "objective.log_z_size",
    "gflownet.optimizer.method": "optimizer.name",
    "gflownet.optimizer.adam_beta1": "optimizer.beta1",
    "gflownet.optimizer.adam_beta2": "optimizer.beta2",
    "gflownet.optimizer.clip_grad_norm": "optimizer.clip_norm",
    "gflownet.random_action_prob": "exploration.epsilon",
    "gflownet.temperature_logits": "exploration.temperature",
    "env.n_dim": "env.dim",
    "env.length": "env.side",
    "data": "env.file",
    "environment": "env",
    "environment.dim": "env.dim",
    "environment.side": "env.side",
    "environment.reward": "proxy",
    "agent.learning_rate": "optimizer.learning_rate",
    "agent.logZ_learning_rate": "optimizer.log_z_learning_rate",
    "agent.eps_exploration": "exploration.epsilon",
    "agent.start_eps": "exploration.epsilon",
    "agent.end_eps": "exploration.epsilon_end",
    "agent.exploration_steps": "exploration.epsilon_steps",
    "agent.train_backward": _backward,
    "agent.lmbd": "objective.decay",
    "logging.metric_buffer_size": "metrics.fifo",
}
"""Names of the two libraries that the seeds were written for, to the names here."""

_LAYERS = "layers are written as a list, such as policy.hidden=[256,256]"
HINTS = {
    "network.hidden_size": _LAYERS,
    "network.depth": _LAYERS,
    "policy.forward.n_hid": _LAYERS,
    "policy.forward.n_layers": _LAYERS,
}


def open_reward(name: str) -> Any:
    """The choice for a reward of one's own: a class, a function that makes one, or the reward itself, which is a
    function whose first argument, the objects, has to be given."""
    target = import_code(name, "reward")
    section = open_section("reward")(name)
    first = next(iter(inspect.signature(target).parameters.values()), None) if inspect.isfunction(target) else None
    if first is None or first.default is not first.empty:
        return section
    kept = [(entry.name, entry.type, entry) for entry in dataclasses.fields(section) if entry.name != first.name]
    own = dataclasses.make_dataclass(f"{target.__name__}Section", kept)
    own.options = staticmethod(_given(target, first.name))
    return own()


def _given(function: Callable[..., Any], first: str) -> Callable[..., Any]:
    """What makes the function with its options set, with the signature of those options."""

    @functools.wraps(function)
    def make(**options: Any) -> Callable[..., Any]:
        return functools.partial(function, **options) if options else function

    whole = inspect.signature(function)
    others = [entry.replace(kind=entry.KEYWORD_ONLY) for name, entry in whole.parameters.items() if name != first]
    make.__signature__ = whole.replace(parameters=others)  # type: ignore[attr-defined]
    return make


def without_idle_targets(config: Any) -> None:
    """A world's preset has target networks for the objective that it chooses; another one may not read any."""
    from omegaconf import OmegaConf

    section = OmegaConf.get_type(config.objective)
    if not getattr(getattr(section, "options", None), "reads_target", True):
        config.targets.every, config.targets.rate = 0, 0.0


def build_problem(config: GflownetRoot):
    """The GFlowNet problem of a configuration."""
    at_least(1, objective__log_z_size=config.objective.log_z_size)
    if config.objective.log_z_size > MOST_LOG_Z:
        raise TwinaxError(f"objective.log_z_size is {config.objective.log_z_size}; it must be at most {MOST_LOG_Z}")
    env = make_options(config.env, "env")
    if not isinstance(env, Environment):
        raise TwinaxError(f"env={config.env.name} makes a {type(env).__name__}; a world is a tx.envs.Environment")
    if not isinstance(config.proxy, OwnSection):
        env = env.with_reward(make_options(config.proxy, "proxy"))
    objective, rates = config.objective, {"log_z": config.optimizer.log_z_learning_rate}
    if env.learnable():
        rates["energy"] = config.optimizer.energy_learning_rate
    return problem(
        env,
        make_options(objective),
        batch_size=config.trainer.batch_size,
        policy=make_options(config.policy),
        exploration=make_options(config.exploration),
        optimizer=make_options(config.optimizer, rates=rates),
        metrics=make_options(config.metrics),
        log_z=(objective.log_z_init,) * objective.log_z_size,
        targets=make_options(config.targets),
        network=make_network(config.policy, "policy", env.default_network),
        replay=make_options(config.replay, "replay"),
        local_search=make_options(config.local_search, "local_search"),
        energy=make_options(config.energy, "energy"),
    )


EXPERIMENT = Experiment(
    name="gflownet",
    summary="GFlowNets on worlds of many kinds: ten objectives, exact metrics",
    schema=GflownetRoot,
    groups={
        "proxy": Group(
            default="own",
            choices={
                "own": OwnSection(),
                **sections_of(REWARDS),
                "easy": BandsSection("easy", 1e-3, 0.5, 2.0),
                "hard": BandsSection("hard", 1e-4, 1.0, 3.0),
            },
            aliases={"box/corners": "corners", "any": "bands"},
            open=open_reward,
            registry=REWARDS,
        ),
        "objective": Group(
            default="trajectory_balance",
            choices=sections_of(objectives.OBJECTIVES, base=LogZSection),
            aliases=OBJECTIVE_ALIASES,
            open=open_section("objective", base=LogZSection),
            registry=objectives.OBJECTIVES,
        ),
        "env": Group(
            default="hypergrid",
            choices={
                **sections_of(ENVIRONMENTS, leave_out=["reward"]),
                "hypergrid": Preset({"env": Grid()}, choose={"proxy": "easy"}),
                "grid": GRID,
                **SEQUENCES,
                **_gflownet_dag.PRESETS,
                **LATTICE,
                **TREES,
            },
            open=open_section("environment", leave_out=["reward"]),
            registry=ENVIRONMENTS,
        ),
    },
    build=build_problem,
    settle=without_idle_targets,
    uses=("sample", "top_k"),
    key_aliases=KEY_ALIASES,
    hints=HINTS,
)
