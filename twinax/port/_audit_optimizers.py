"""What Optax does otherwise than an optimizer of `torch.optim` with these settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twinax.port._defaults import DEFAULTS, OPTAX, Default


def settings(where: str, optimizer: Any) -> Iterator[Default]:
    """Rows of each group of parameters."""
    import torch

    groups, kind = optimizer.param_groups, type(optimizer)
    rules = {
        torch.optim.Adam: _adam,
        torch.optim.AdamW: _adamw,
        torch.optim.SGD: _sgd,
        torch.optim.RMSprop: _rmsprop,
        torch.optim.Adagrad: _adagrad,
        torch.optim.NAdam: _nadam,
    }
    for k, group in enumerate(groups):
        place = where if len(groups) == 1 else f"{where}, group {k}"
        rule = _adamw if group.get("decoupled_weight_decay") and kind is torch.optim.Adam else rules.get(kind)
        if rule is not None:
            yield from rule(place, group)
    if len(groups) > 1:
        yield Default(
            where,
            "groups of parameters",
            f"{len(groups)} groups with settings of their own",
            OPTAX,
            "one rule for all",
            "one learning rate and decay for all parameters",
            "optax.partition with a label for each group",
        )


def clipping(where: str, clip_norm: float) -> Iterator[Default]:
    """The row of clipping by the global norm."""
    yield Default(
        where,
        "clipping by norm",
        f"{clip_norm:g} / (norm + 1e-6)",
        OPTAX,
        f"{clip_norm:g} / norm",
        f"gradients of norm {2 * clip_norm:g} differ by {1e-6 / (2 * clip_norm):.1g} of their size",
        f"optax.clip_by_global_norm({clip_norm:g}); in float64 multiply by {clip_norm:g} / (norm + 1e-6) yourself",
    )


def _numbers(where: str, name: str, function: str, pairs: Mapping[str, tuple[str, float]]) -> Iterator[Default]:
    """Rows for numbers that are not the library's default."""
    for setting, (argument, here) in pairs.items():
        default = DEFAULTS[f"optax.{function}.{argument}"]
        if float(here) != default:
            yield Default(
                where,
                f"{setting} of {name}",
                float(here),
                OPTAX,
                default,
                "steps of another size" if setting != "weight decay" else "weights shrink at another rate",
                f"optax.{function}({argument}={float(here):g})",
            )


def _moments(where: str, name: str, function: str, group: Any) -> Iterator[Default]:
    first, second = (float(x) for x in group["betas"])
    pairs = {"beta 1": ("b1", first), "beta 2": ("b2", second), "epsilon": ("eps", group["eps"])}
    yield from _numbers(where, name, function, pairs)
    if group.get("amsgrad"):
        yield Default(
            where,
            "amsgrad",
            "the largest second moment, then corrected for its bias",
            OPTAX,
            "the largest corrected second moment",
            "other steps early in training",
            "optax.amsgrad differs; keep the maximum before the correction",
        )


def _decay(where: str, name: str, function: str, group: Any) -> Iterator[Default]:
    """L2 in the gradient, which no rule of Optax has."""
    if decay := float(group["weight_decay"]):
        yield Default(
            where,
            f"weight decay of {name}",
            f"{decay:g}, added to the gradient (L2)",
            OPTAX,
            "none" if function != "adam" else "none; optax.adamw shrinks weights apart from the gradient",
            "another regularisation: Adam divides the L2 part by the gradient's size"
            if function == "adam"
            else "weights are not drawn to 0",
            f"optax.chain(optax.add_decayed_weights({decay:g}), optax.{function}(...))",
        )


def _adam(where: str, group: Any) -> Iterator[Default]:
    yield from _moments(where, "Adam", "adam", group)
    yield from _decay(where, "Adam", "adam", group)


def _adamw(where: str, group: Any) -> Iterator[Default]:
    yield from _moments(where, "AdamW", "adamw", group)
    yield from _numbers(where, "AdamW", "adamw", {"weight decay": ("weight_decay", group["weight_decay"])})


def _sgd(where: str, group: Any) -> Iterator[Default]:
    yield from _decay(where, "SGD", "sgd", group)
    if damping := float(group["dampening"]):
        yield Default(
            where,
            "dampening of SGD",
            damping,
            OPTAX,
            "none",
            f"the momentum is {1 / (1 - damping):.3g} times as large" if damping < 1 else "another momentum",
            f"scale gradients by {1 - damping:g} after the first step",
        )


def _rmsprop(where: str, group: Any) -> Iterator[Default]:
    pairs = {"decay of squares": ("decay", group["alpha"]), "epsilon": ("eps", group["eps"])}
    yield from _numbers(where, "RMSprop", "rmsprop", pairs)
    if DEFAULTS["optax.rmsprop.eps_in_sqrt"]:
        yield Default(
            where,
            "place of RMSprop's epsilon",
            f"beside the root, sqrt(v) + {group['eps']:g}",
            OPTAX,
            f"inside it, sqrt(v + {group['eps']:g})",
            f"gradients below {group['eps'] ** 0.5:.0e} make far smaller steps",
            "optax.rmsprop(eps_in_sqrt=False)",
        )
    yield from _decay(where, "RMSprop", "rmsprop", group)


def _adagrad(where: str, group: Any) -> Iterator[Default]:
    first = group["initial_accumulator_value"]
    pairs = {"epsilon": ("eps", group["eps"]), "first sum of squares": ("initial_accumulator_value", first)}
    yield from _numbers(where, "Adagrad", "adagrad", pairs)
    yield Default(
        where,
        "place of Adagrad's epsilon",
        f"beside the root, sqrt(s) + {group['eps']:g}",
        OPTAX,
        "inside it",
        "small gradients make other steps",
        "an update of your own",
    )
    yield from _decay(where, "Adagrad", "adagrad", group)


def _nadam(where: str, group: Any) -> Iterator[Default]:
    yield Default(
        where,
        "momentum of NAdam",
        f"grows with the steps (momentum_decay={group['momentum_decay']:g})",
        OPTAX,
        "constant",
        "other steps early in training",
        "an update of your own",
    )
    yield from _decay(where, "NAdam", "nadam", group)
