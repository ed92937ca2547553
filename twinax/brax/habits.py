"""What Brax's PPO is like, told once in this library's settings: for compat=brax, and for training by Brax itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinax.errors import TwinaxError

ALWAYS: dict[str, dict[str, Any]] = {
    "ppo": {
        "policy": "tanh",
        "std": "state",
        "shared": False,
        "advantage": "brax",
        "standardise": "minibatch",
        "advantage_deviation": "population",
        "initial_weights": "lecun_uniform",
        "observation_limit": 0.0,
        "observation_eps": 0.0,
        "observation_statistics": "before_learning",
        "value_clip": 0.0,
        "target_kl": 0.0,
        "normalise_rewards": False,
        "anneal": False,
    },
    "optimizer": {
        "name": "adam",
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.0,
        "decay_steps": 0,
        "decay_to": 0.0,
    },
}
"""Networks, losses and updates that Brax has, and cannot be told otherwise. With discrete actions, which Brax does not
have, policy=tanh is auto."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {"activation": "silu", "clip": 0.3, "ent_coef": 1e-4, "normalise_observations": True},
    "optimizer": {"learning_rate": 1e-4, "clip_norm": 0.0},
}
"""What Brax begins with, or is usually told."""

WITHIN: dict[str, dict[str, Any]] = {
    "": {"seeds": 1},
    "ppo": {"first_std": 1.0, "groups": 1, "pool": 0, "pipelined": False},
    "trainer": {
        "mode": "jax",
        "dtype": "float32",
        "device": "auto",
        "devices": 1,
        "log_every": None,
        "evaluate_every": None,
        "checkpoint_every": None,
    },
}
"""What besides is so when Brax's own program trains: it has one seed, and evaluates when it likes."""


def combined(*tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Tables of settings by section as one; later ones win."""
    sections = dict.fromkeys(section for table in tables for section in table)
    return {
        section: {name: value for table in tables for name, value in table.get(section, {}).items()}
        for section in sections
    }


def refuse_what_brax_cannot(sections: Mapping[str, Any]) -> None:
    """One sentence for the first setting that Brax's training would ignore; sections by name, "" for the root's own."""
    for section, fixed in combined(ALWAYS, WITHIN).items():
        for name, value in fixed.items():
            given = getattr(sections.get(section), name, value)
            if given != value:
                key = f"{section}.{name}".lstrip(".")
                raise TwinaxError(
                    f"Brax's training cannot do {key}={_shown(given)}: with it {key} is {_shown(value)}; leave it out, "
                    "or use level=3"
                )


def _shown(value: Any) -> str:
    """As it is written in an override."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
