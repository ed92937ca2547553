"""What functions of JAX and Optax do otherwise than those that a module or a loss calls."""

from __future__ import annotations

import copy
import linecache
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinax import blame
from twinax.port._audit_layers import gelu
from twinax.port._defaults import DEFAULTS, JAX, OPTAX, Default
from twinax.port._program import Line
from twinax.port._shapes import as_tensors

OPTAX_LOSSES = {
    "mse_loss": ("optax.l2_loss", "optax.squared_error(x, y)"),
    "smooth_l1_loss": ("optax.huber_loss", "optax.huber_loss(x, y, delta={0:g}) / {0:g}"),
    "huber_loss": ("optax.huber_loss", "optax.huber_loss(x, y, delta={0:g})"),
    "nll_loss_forward": ("optax.softmax_cross_entropy_with_integer_labels", ""),
    "binary_cross_entropy_with_logits": ("optax.sigmoid_binary_cross_entropy", ""),
}
"""What Optax has for PyTorch's losses, and how it is called for the same numbers."""
REDUCTION_AT = {"mse_loss": 2, "smooth_l1_loss": 2, "huber_loss": 2, "nll_loss_forward": 3}
"""Where the reduction stands among arguments."""
REDUCTIONS = ("none", "mean", "sum")
WATCHED = frozenset({"gelu", "std", "var", "std_mean", "var_mean", "median", *OPTAX_LOSSES})
PLUMBING = ("module.py", "container.py")
"""Files of layers that only pass calls on."""


@dataclass(frozen=True)
class Call:
    """One call of an operator while the code runs."""

    packet: str
    """Its name, such as gelu."""
    overload: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    result: Any
    line: Line | None
    """The person's own."""
    in_layer: bool
    """Whether a layer of PyTorch's own makes it."""

    def argument(self, name: str, place: int, default: Any) -> Any:
        """One of its arguments, wherever it stands."""
        if name in self.options:
            return self.options[name]
        return self.arguments[place] if len(self.arguments) > place else default


def calls(module: Any, example: tuple[Any, ...], loss: Any) -> Iterator[Default]:
    """Rows of what the code calls, by its line."""
    for call in _heard(module, example, loss):
        where = str(call.line) if call.line else "the code"
        if call.packet == "gelu":
            if not call.in_layer:  # which says so itself
                yield from gelu(where, call.argument("approximate", 1, "none"))
        elif call.packet == "median":
            yield Default(
                where,
                "median of an even number",
                "the lower of the two in the middle",
                f"{JAX}.numpy",
                "their mean",
                "another value",
                "jnp.quantile(x, 0.5, method='lower')",
            )
        elif call.packet in OPTAX_LOSSES:
            yield from _loss(where, call)
        else:
            yield from _spread(where, call)


def _heard(module: Any, example: tuple[Any, ...], loss: Any) -> list[Call]:
    """The calls that matter here, of a copy of the module that is run once: also of code that cannot be captured."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Call] = []

    class Listening(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            packet, _, overload = str(func).removeprefix("aten.").partition(".")
            if packet in WATCHED:
                found.append(Call(packet, overload, args, kwargs or {}, result, *_place()))
            return result

    copied = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]), Listening():
        if loss is None:
            copied(*as_tensors(example))
        else:
            loss(copied, *as_tensors(example))
    return found


def _place() -> tuple[Line | None, bool]:
    """The line of the person's code that is running, and whether a layer of PyTorch's stands between."""
    frame, in_layer = sys._getframe(2), False
    while frame is not None:
        file, number = frame.f_code.co_filename, frame.f_lineno
        if not blame.is_library_file(file):
            return Line(file, number, linecache.getline(file, number).strip()), in_layer
        place = Path(file)
        in_layer = in_layer or (place.parts[-3:-1] == ("nn", "modules") and place.name not in PLUMBING)
        frame = frame.f_back
    return None, in_layer


def _spread(where: str, call: Call) -> Iterator[Default]:
    name = call.packet.removesuffix("_mean")
    if call.overload == "correction":
        correction = call.argument("correction", 2, 1)
    else:
        correction = int(bool(call.argument("unbiased", 1 if call.overload == "default" else 2, True)))
    correction = 1.0 if correction is None else float(correction)
    if correction == DEFAULTS[f"jax.numpy.{name}.ddof"]:
        return
    result = call.result[0] if isinstance(call.result, (list, tuple)) else call.result
    n = call.arguments[0].numel() / max(result.numel(), 1)
    ratio = n / (n - correction) if n > correction else math.inf
    yield Default(
        where,
        f"{name} of {n:g} numbers",
        f"divided by n - {correction:g}",
        f"{JAX}.numpy",
        "divided by n",
        f"{ratio if name == 'var' else math.sqrt(ratio):.6g} times as large here",
        f"jnp.{name}(x, ddof={correction:g})",
    )


def _loss(where: str, call: Call) -> Iterator[Default]:
    packet = call.packet
    name, instead = OPTAX_LOSSES[packet]
    if packet == "mse_loss":
        yield Default(
            where, "factor of the squared error", 1.0, OPTAX, f"0.5 in {name}", "half the loss and gradient", instead
        )
    if packet in ("smooth_l1_loss", "huber_loss"):
        width = float(call.argument("beta" if packet == "smooth_l1_loss" else "delta", 3, 1.0))
        default = DEFAULTS["optax.huber_loss.delta"]
        if width != default:
            smooth = packet == "smooth_l1_loss"
            yield Default(
                where,
                f"width of {packet}",
                f"{width:g}, huber divided by it" if smooth else f"{width:g}",
                OPTAX,
                f"{default:g} in {name}",
                "another bend" + (", and a gradient without the division" if smooth else ""),
                instead.format(width),
            )
    reduction = REDUCTIONS[int(call.argument("reduction", REDUCTION_AT.get(packet, 4), 1))]
    if reduction != "none":
        written = instead.format(1) if packet == "mse_loss" else f"{name}(...)"
        yield Default(
            where,
            f"reduction of {packet.removesuffix('_forward')}",
            reduction,
            OPTAX,
            f"none in {name}",
            "an array instead of a number",
            f"{written}.{reduction}()",
        )
