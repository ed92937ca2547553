"""The update rules of `torch.optim` as functions of arrays, with PyTorch's definitions and its memory's names.

What changes from step to step (step sizes, momenta, how many updates there were) comes as numbers, so a scheduler needs
no new compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from twinax.errors import TwinaxError

Array = Any
Memory = dict[str, Array]


@dataclass(frozen=True)
class Rule:
    """An optimizer's update of one parameter."""

    memory: tuple[str, ...]
    """Arrays of a parameter's shape that it keeps, by the names in `optimizer.state`."""
    numbers: Callable[[Mapping[str, Any], int], Sequence[float]]
    """(parameter group, updates done before) -> what `update` reads besides, worked out in double precision."""
    update: Callable[[Array, Array, Memory, Sequence[Array]], tuple[Array, Memory]]
    """(parameter, gradient, memory, numbers) -> (parameter, memory)."""
    width: int
    """How many such numbers there are."""
    counted: bool = True
    """Whether PyTorch keeps the number of updates as `step`."""


def rule_of(optimizer: Any, group: Mapping[str, Any]) -> Rule:
    """What an optimizer does with the parameters of one of its groups."""
    import torch

    kind = type(optimizer)
    if group.get("differentiable"):
        raise TwinaxError(f"{kind.__name__} was made with differentiable=True, which a compiled step cannot have")
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        return _adam(group, group.get("decoupled_weight_decay", kind is torch.optim.AdamW))
    if kind is torch.optim.SGD:
        return _sgd(group)
    if kind is torch.optim.RMSprop:
        return _rmsprop(group)
    raise TwinaxError(
        f"the optimizer is a {kind.__name__}; a compiled step has those of torch.optim called Adam, AdamW, SGD and "
        "RMSprop"
    )


def static_part(group: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a group a program is compiled for: switches, and which of its numbers are 0."""
    return tuple(
        (name, value if isinstance(value, bool) or value is None else bool(_number(value)))
        for name, value in sorted(group.items())
        if name in ("amsgrad", "maximize", "nesterov", "centered", "weight_decay", "momentum", "decoupled_weight_decay")
    )


def _number(value: Any) -> float:
    return float(value)  # also of a tensor


def _signed(group: Mapping[str, Any], gradient: Array) -> Array:
    return -gradient if group.get("maximize") else gradient


def _adam(group: Mapping[str, Any], decoupled: bool) -> Rule:
    amsgrad, decays = group["amsgrad"], bool(_number(group["weight_decay"]))

    def numbers(group: Mapping[str, Any], done: int) -> Sequence[float]:
        beta1, beta2 = map(_number, group["betas"])
        rate, decay = _number(group["lr"]), _number(group["weight_decay"])
        size = rate / (1 - beta1 ** (done + 1))
        root = (1 - beta2 ** (done + 1)) ** 0.5
        return size, root, 1 - beta1, beta2, 1 - beta2, group["eps"], 1 - rate * decay if decoupled else decay

    def update(p: Array, g: Array, memory: Memory, numbers: Sequence[Array]) -> tuple[Array, Memory]:
        size, root, rest1, beta2, rest2, eps, decay = numbers
        g = _signed(group, g)
        if decays and decoupled:
            p = p * decay
        elif decays:
            g = g + decay * p
        first = memory["exp_avg"] + rest1 * (g - memory["exp_avg"])
        second = memory["exp_avg_sq"] * beta2 + rest2 * g * g
        kept = {"exp_avg": first, "exp_avg_sq": second}
        if amsgrad:
            second = kept["max_exp_avg_sq"] = jnp.maximum(memory["max_exp_avg_sq"], second)
        return p - size * (first / (jnp.sqrt(second) / root + eps)), kept

    return Rule(("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ())), numbers, update, 7)


def _sgd(group: Mapping[str, Any]) -> Rule:
    moves, decays = bool(_number(group["momentum"])), bool(_number(group["weight_decay"]))

    def numbers(group: Mapping[str, Any], done: int) -> Sequence[float]:
        # The first momentum is the gradient itself.
        kept = _number(group["momentum"]) if done else 0.0
        fresh = 1 - _number(group["dampening"]) if done else 1.0
        return _number(group["lr"]), kept, fresh, _number(group["momentum"]), _number(group["weight_decay"])

    def update(p: Array, g: Array, memory: Memory, numbers: Sequence[Array]) -> tuple[Array, Memory]:
        rate, kept, fresh, momentum, decay = numbers
        g = _signed(group, g)
        if decays:
            g = g + decay * p
        if not moves:
            return p - rate * g, {}
        buffer = kept * memory["momentum_buffer"] + fresh * g
        return p - rate * (g + momentum * buffer if group["nesterov"] else buffer), {"momentum_buffer": buffer}

    return Rule(("momentum_buffer",) if moves else (), numbers, update, 5, counted=False)


def _rmsprop(group: Mapping[str, Any]) -> Rule:
    moves, decays, centered = bool(_number(group["momentum"])), bool(_number(group["weight_decay"])), group["centered"]

    def numbers(group: Mapping[str, Any], done: int) -> Sequence[float]:
        alpha, momentum = _number(group["alpha"]), _number(group["momentum"])
        return _number(group["lr"]), alpha, 1 - alpha, group["eps"], momentum, _number(group["weight_decay"])

    def update(p: Array, g: Array, memory: Memory, numbers: Sequence[Array]) -> tuple[Array, Memory]:
        rate, alpha, rest, eps, momentum, decay = numbers
        g = _signed(group, g)
        if decays:
            g = g + decay * p
        square = memory["square_avg"] * alpha + rest * g * g
        kept, spread = {"square_avg": square}, square
        if centered:
            mean = kept["grad_avg"] = memory["grad_avg"] + rest * (g - memory["grad_avg"])
            spread = square - mean * mean
        g = g / (jnp.sqrt(spread) + eps)
        if moves:
            g = kept["momentum_buffer"] = momentum * memory["momentum_buffer"] + g
        return p - rate * g, kept

    names = ("square_avg", *(("momentum_buffer",) if moves else ()), *(("grad_avg",) if centered else ()))
    return Rule(names, numbers, update, 6)
