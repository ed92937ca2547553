"""Proximal policy optimisation: sections, worlds and compatibility modes, and how they become a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twinax import Optimizer
from twinax.brax.habits import ALWAYS, DEFAULTS, combined
from twinax.conf._mirror import CHOSEN, make_options, mirror, open_section, section_of
from twinax.conf._networks import NetworkSection, make_network
from twinax.conf._registry import Experiment, Group, Preset
from twinax.conf._sections import CompareSection, Root
from twinax.envs import CONTROLS, Control, Discrete
from twinax.errors import TwinaxError
from twinax.ppo import ADAM, PPO, problem

OptimizerSection = mirror(Optimizer, leave_out=["rates", "clip_by"])


@dataclass
class PpoSection(mirror(PPO, leave_out=["world", "optimizer", "hooks", "network"]), NetworkSection):
    """How PPO learns."""

    anneal: bool = False
    """Whether step sizes fall in a straight line to `optimizer.decay_to` times their first value at the last update."""


@dataclass
class CompatSection:
    """Whose habits are followed."""

    name: str = "twinax"
    """Library whose habits are followed, chosen with compat=NAME: twinax, cleanrl or brax."""


@dataclass
class Learning(Root):
    """What every experiment with PPO has."""

    # A step is a whole iteration.
    compare: CompareSection = field(default_factory=lambda: CompareSection(steps=10, warm_up=2))
    ppo: Any = field(default_factory=PpoSection)
    optimizer: Any = field(default_factory=lambda: section_of(OptimizerSection, ADAM))


@dataclass
class PpoRoot(Learning):
    """Everything that a run of PPO is told."""

    env: Any = CHOSEN
    compat: Any = CHOSEN


def build_problem(config: PpoRoot) -> PPO:
    """The problem of a configuration."""
    world = make_options(config.env, "env")
    if not isinstance(world, Control):
        raise TwinaxError(f"env={config.env.name} makes a {type(world).__name__}; PPO plays a tx.envs.Control")
    if config.compat.name == "brax" and config.ppo.policy == "tanh" and isinstance(world.actions, Discrete):
        config.ppo.policy = "auto"  # in the configuration, so that config.yaml says what is done
    return problem(world, optimizer=annealed(config), **options(config.ppo))


def options(section: Any) -> dict[str, Any]:
    """The settings of `PPO` in a section."""
    others = ("anneal", "network", "network_options")
    values = {name: value for name, value in vars(section).items() if name not in others}
    return values | {"hidden": tuple(section.hidden), "network": make_network(section, "ppo")}


def annealed(config: Learning) -> Optimizer:
    """The optimizer, with step sizes that fall to zero at the last update if `ppo.anneal` says so."""
    updates = config.trainer.steps * config.ppo.num_epochs * config.ppo.num_minibatches
    own = config.optimizer.decay_steps
    return make_options(config.optimizer, decay_steps=updates if config.ppo.anneal and not own else own)


TRAINER = {"chunk": 5}
QUICK = {"optimizer": {"learning_rate": 2.5e-3}}
"""For step sizes that fall to zero."""
SETTINGS: dict[str, dict[str, Any]] = {
    "cartpole": {"trainer": {**TRAINER, "steps": 60}},
    "acrobot": {
        "trainer": {**TRAINER, "steps": 100},
        "ppo": {"normalise_observations": True, "normalise_rewards": False, "anneal": True},
        **QUICK,
    },
    "pendulum": {
        "trainer": {**TRAINER, "steps": 100},
        "ppo": {"gamma": 0.95, "ent_coef": 0.0, "num_epochs": 10, "value_clip": 0.0, "anneal": True},
    },
    # With undivided rewards, whose values are near -100, one seed of three never left -200.
    "mountain_car": {
        "trainer": {**TRAINER, "steps": 600},
        "ppo": {"num_steps": 16, "gae_lambda": 0.98, "normalise_observations": True, "anneal": True},
        **QUICK,
    },
    "mountain_car_continuous": {
        "trainer": {**TRAINER, "steps": 100},
        "ppo": {"normalise_observations": True, "gamma": 0.999, "anneal": True},
        **QUICK,
    },
    "gymnasium": {"trainer": {**TRAINER, "steps": 60}},
    "gymnax": {"trainer": {**TRAINER, "steps": 60}},
    # A reset of Brax is dear, so starts come from a pool.
    "brax": {
        "trainer": {**TRAINER, "steps": 100},
        "ppo": {"normalise_observations": True, "normalise_rewards": False, "pool": 128, "anneal": True},
        **QUICK,
    },
}
"""What makes each world learn in seconds, where that is more than the defaults of PPO; for worlds of other libraries,
where to begin."""

PROBE = {"trainer": TRAINER, "ppo": {"normalise_rewards": False, "anneal": True}, **QUICK}
"""The values of probes are known, of rewards as they are."""

ADAPTERS = {"gymnasium": "factory", "gymnax": "env", "brax": "env"}
"""Worlds of other libraries, and the field that is only for who writes Python."""
OWN = {"trainer": {**TRAINER, "steps": 60}}
"""Where to begin with a world of one's own."""

CLEANRL = {
    "ppo": {"advantage": "cleanrl", "standardise": "minibatch", "value_clip": 0.2, "anneal": True},
    "optimizer": {"learning_rate": 2.5e-4, "eps": 1e-5, "clip_norm": 0.5},
}
"""Time limits are ends."""

BRAX = combined(ALWAYS, DEFAULTS)
"""Truncated steps are left out, and deviations depend on the state."""

KEY_ALIASES: Mapping[str, str | Callable[[str], list[str]]] = {
    "total_timesteps": "trainer.env_steps",
    **{name: f"ppo.{name}" for name in ("num_envs", "num_steps", "num_minibatches", "gamma", "gae_lambda")},
    **{name: f"ppo.{name}" for name in ("ent_coef", "vf_coef", "target_kl")},
    "update_epochs": "ppo.num_epochs",
    "clip_coef": "ppo.clip",
    "anneal_lr": "ppo.anneal",
    "learning_rate": "optimizer.learning_rate",
    "max_grad_norm": "optimizer.clip_norm",
    "ppo.worlds": "ppo.num_envs",
    "ppo.steps": "ppo.num_steps",
    "ppo.epochs": "ppo.num_epochs",
    "ppo.minibatches": "ppo.num_minibatches",
    "ppo.trace": "ppo.gae_lambda",
    "ppo.value_weight": "ppo.vf_coef",
    "ppo.entropy_weight": "ppo.ent_coef",
    "ppo.update_epochs": "ppo.num_epochs",
    "ppo.clip_coef": "ppo.clip",
    "ppo.anneal_lr": "ppo.anneal",
    "ppo.learning_rate": "optimizer.learning_rate",
    "ppo.max_grad_norm": "optimizer.clip_norm",
    "ppo.unroll_length": "ppo.num_steps",
    "ppo.num_updates_per_batch": "ppo.num_epochs",
    "ppo.discounting": "ppo.gamma",
    "ppo.entropy_cost": "ppo.ent_coef",
    "ppo.clipping_epsilon": "ppo.clip",
    "ppo.reward_scaling": "ppo.reward_scale",
}
"""Names in CleanRL, Brax and earlier here, to the names now."""


def worlds() -> dict[str, Any]:
    """Choices of the group env."""
    return {
        name: Preset({"env": mirror(kind, [ADAPTERS.get(name, "")], name=name)(), **SETTINGS.get(name, PROBE)})
        for name, kind in CONTROLS.items()
    }


def open_world(name: str) -> Preset:
    """The choice for a world of one's own."""
    return Preset({"env": open_section("control")(name), **OWN})


EXPERIMENT = Experiment(
    name="ppo",
    summary="proximal policy optimisation, rollout and updates in one program",
    schema=PpoRoot,
    groups={
        "env": Group(default="cartpole", choices=worlds(), open=open_world, registry=CONTROLS),
        "compat": Group(
            default="twinax",
            choices={
                "twinax": CompatSection(),
                "cleanrl": Preset({"compat": CompatSection("cleanrl"), **CLEANRL}),
                "brax": Preset({"compat": CompatSection("brax"), **BRAX}),
            },
        ),
    },
    build=build_problem,
    uses=("act", "export"),
    key_aliases=KEY_ALIASES,
    named_by=("env",),
)
