"""What a recorder reads of optimizers, gradients and batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.port._shapes import flatten, leaf_names
from twinax.port._step import Step
from twinax.port._step_files import group_settings

ONE = "loss"
"""What the only update is called."""


def optimizers_of(taker: Step | None, optimizer: Any) -> dict[str, Any]:
    if taker is not None:
        if optimizer is not None:
            raise TwinaxError("a port.Step has its optimizers already; make the recorder with the step alone")
        single = len(taker.updates) == 1
        return {ONE if single else update.title: update.optimizer for update in taker.updates}
    if optimizer is None:
        return {}
    return dict(optimizer) if isinstance(optimizer, Mapping) else {ONE: optimizer}


def described(update: str, optimizer: Any, names: Mapping[int, str]) -> dict[str, Any]:
    """An optimizer's kind, and of each group the settings and the names of its parameters."""
    import torch

    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TwinaxError(f"the optimizer of '{update}' is a {type(optimizer).__name__}; give one of torch.optim")
    groups = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in names:
                raise TwinaxError(
                    f"the optimizer of '{update}' trains a parameter of shape {tuple(p.shape)} that is not one of the "
                    "module's; give the recorder one module that holds all that is trained, such as a "
                    "torch.nn.ModuleDict"
                )
        settings = {key: list(x) if isinstance(x, tuple) else x for key, x in group_settings(group).items()}
        groups.append({**settings, "params": [names[id(p)] for p in group["params"]]})
    return {"kind": type(optimizer).__name__, "groups": groups}


def memory_of(optimizer: Any, names: Mapping[int, str]) -> dict[str, Any]:
    """What an optimizer remembers, by the parameter's name and its own key."""
    found: dict[str, Any] = {}
    for p, state in optimizer.state.items():
        for key, value in state.items():
            if value is None:
                continue
            if hasattr(value, "detach"):
                found[f"{names[id(p)]}/{key}"] = value.detach()
            elif isinstance(value, (int, float)):
                found[f"{names[id(p)]}/{key}"] = np.float64(value)
            else:
                raise TwinaxError(
                    f"the optimizer remembers '{key}' as a {type(value).__name__}, which a record cannot keep; make "
                    "the recorder without the optimizer"
                )
    return found


def leaves_of(batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a batch, and what of it is none."""
    arrays: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, leaf in zip(leaf_names(batch), flatten(batch)[0], strict=True):
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            arrays[f"batch/{name}"] = leaf.detach() if hasattr(leaf, "detach") else leaf
        elif leaf is None or isinstance(leaf, (bool, int, float, str)):
            constants[name] = leaf
        else:
            raise TwinaxError(
                f"the batch has a {type(leaf).__name__} at '{name}'; a record keeps arrays, numbers and texts in "
                "tuples, lists and dicts"
            )
    return arrays, constants


def norms_of(gradients: Mapping[str, Any]) -> dict[str, float]:
    import torch

    dense = [g.detach().to_dense() if g.is_sparse else g.detach() for g in gradients.values()]
    norms = getattr(torch, "_foreach_norm")(dense) if dense else ()  # noqa: B009  (one call for all)
    return dict(zip(gradients, (float(x) for x in norms), strict=True))


def rates_of(optimizer: Any) -> tuple[float, ...]:
    groups = [] if optimizer is None else optimizer.param_groups
    return tuple(float(group["lr"]) for group in groups if "lr" in group)


def number_of(what: str, value: Any) -> float:
    if getattr(value, "shape", ()) not in ((), (1,)):
        raise TwinaxError(f"{what} has shape {tuple(value.shape)}; a record keeps numbers, such as its mean")
    return float(value.detach() if hasattr(value, "detach") else value)


def said_of(info: Mapping[str, Any], name: str, single: bool) -> tuple[float, float, dict[str, float]] | None:
    """The loss, the gradient's norm and the terms of an update in what a step returned."""
    if single:
        terms = {key: x for key, x in info.items() if key not in ("loss", "grad_norm")}
        return float(info["loss"]), float(info["grad_norm"]), _scalars(terms)
    if name not in info:
        return None
    terms = {key.removeprefix(f"{name}/"): x for key, x in info.items() if key.startswith(f"{name}/")}
    norm = float(terms.pop("grad_norm"))
    return float(info[name]), norm, _scalars(terms)


def _scalars(terms: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(x) for key, x in terms.items() if np.ndim(x) == 0}
