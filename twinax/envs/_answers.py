"""What a stranger's function is given, and what it may answer: one finite number for each object."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.errors import TwinaxError

LONGEST = 200
"""Characters of an object that a sentence shows."""


def label_of(function: Any) -> str:
    """What people call a function: its name, with the class of a method; the class of any other object."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__
    return name.rpartition("<locals>.")[2]


def call(function: Callable[..., Any], objects: Any) -> Any:
    """What a function answers; a PyTorch module is given tensors, in evaluation mode and without gradients."""
    torch: Any = sys.modules.get("torch")  # who has a module has imported it
    if torch is None or not isinstance(function, torch.nn.Module):
        return function(objects)
    device = next((x.device for x in (*function.parameters(), *function.buffers())), "cpu")
    training = [module for module in function.modules() if module.training]
    with torch.no_grad(), ExitStack() as after:
        for module in training:  # one by one, since a person may have left some of them in evaluation mode
            module.training = False
            after.callback(setattr, module, "training", True)
        return function(jtu.tree_map(lambda x: torch.from_numpy(_as_torch_likes(x)).to(device), objects))


def _as_torch_likes(x: np.ndarray) -> np.ndarray:
    # PyTorch's own integers are int64, and one_hot takes no others.
    return x.astype(np.int64) if x.dtype.kind in "iu" else x


def read(answer: Any, number: int, who: str, example: str) -> np.ndarray:
    """The numbers of an answer in float64, one for each of `number` objects."""
    torch: Any = sys.modules.get("torch")
    given = type(answer).__name__
    if torch is not None and isinstance(answer, torch.Tensor):
        answer = answer.detach().cpu()
        answer = answer.numpy() if answer.is_complex() else answer.double().numpy()
    whom = f"{number} object{'s' if number > 1 else ''}{' such as' if number > 1 else ''} {example}"
    try:
        if answer is None:
            raise TypeError("nothing was returned")  # NumPy would make it nan
        values = np.asarray(answer)
        values = values if values.dtype.kind in "biufc" else values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TwinaxError(f"{who} gave a {given} for {whom}; it must give one number for each") from error
    if values.dtype.kind == "c":
        raise TwinaxError(f"{who} gave complex numbers for {whom}; it must give one real number for each")
    if values.shape not in ((number,), (number, 1)) and not (number == 1 and values.shape == ()):
        raise TwinaxError(
            f"{who} gave the shape {values.shape} for {whom}; it must give one number for each, of shape "
            f"({number},) or ({number}, 1)"
        )
    return values.reshape(number).astype(np.float64)


def log_rewards(values: np.ndarray, log: bool, who: str, text: Callable[[int], str]) -> np.ndarray:
    """log R from what was answered; the first object whose reward is none is refused with `text(row)`."""
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        what = "log R" if log else "R"
        raise TwinaxError(
            f"{who} gave {what} = {values[bad[0]]} for the object {text(int(bad[0]))}; it must be finite"
            + (", so give the worst objects a finite log R" if log else "")
        )
    if log:
        return values
    if (bad := np.flatnonzero(values <= 0)).size:
        raise TwinaxError(
            f"{who} gave R = {values[bad[0]]:g} for the object {text(int(bad[0]))}, and a reward must be above 0: if "
            "it gives log R, say so with BlackBox(function, log=True); otherwise add a floor, such as max(R, 1e-3)"
        )
    return np.log(values)


def shortened(text: str) -> str:
    """An object's text for a sentence."""
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
