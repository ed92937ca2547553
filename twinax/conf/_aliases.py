"""Older names: overrides written for other libraries are rewritten before composing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twinax.conf._registry import Experiment


def _listed(value: str) -> str:
    """One name as a list of it; none and null are an empty one."""
    return value if value.startswith("[") else "[]" if value in ("", "none", "null") else f"[{value}]"


KEYS: Mapping[str, str | Callable[[str], list[str]]] = {
    "num_train_steps": "trainer.steps",
    "num_steps": "trainer.steps",
    "logging.tqdm_print_rate": "trainer.log_every",
    "logging.eval_each": "trainer.evaluate_every",
    "logging.track_each": "trainer.evaluate_every",
    "device": "trainer.device",
    "logger": lambda value: [f"logger={_listed(value)}"],
    "float_precision": lambda value: [f"trainer.dtype=float{value}"],
}
"""Key aliases that hold for every experiment; a family adds its own in `Experiment.key_aliases`."""


def all_keys(experiment: Experiment) -> dict[str, str | Callable[[str], list[str]]]:
    """Every alias key of an experiment."""
    return {**KEYS, **experiment.key_aliases}


def rewrite(overrides: Sequence[str], experiment: Experiment) -> list[str]:
    """The overrides under present names.

    >>> from twinax.conf import find_experiment
    >>> rewrite(["num_train_steps=1_000", "loss=tb"], find_experiment("gflownet"))
    ['trainer.steps=1_000', 'objective=tb']
    """
    table = all_keys(experiment)
    rewritten: list[str] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        plain = key.lstrip("+")
        # An option of a chosen world may be called as a key was elsewhere.
        target = table.get(plain) if equals and plain not in experiment.own_keys else None
        if target is None:
            rewritten.append(override)
        elif callable(target):
            rewritten.extend(target(value))
        else:
            rewritten.append(f"{target}={value}")
    return rewritten
