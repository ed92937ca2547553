"""Which defaults of Flax, Equinox, Optax and JAX differ from what an agent in PyTorch has, with its own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from twinax.errors import TwinaxError, require
from twinax.port._agent import Agent
from twinax.port._audit_calls import calls
from twinax.port._audit_layers import layers
from twinax.port._audit_optimizers import clipping, settings
from twinax.port._defaults import Default
from twinax.port._step import Step

SHOWN = 3
"""Layers that a row names one by one."""


def audit(module: Any, optimizer: Any = None, *example: Any, loss: Any = None, clip_norm: float = 0.0) -> list[Default]:
    """The defaults of Flax (linen and nnx), Equinox, Optax and JAX that differ for this agent, most layers first.

    Layers and optimizers are read as they are; with an `example`, functions that the code calls (gelu, std, losses) are
    found, too, with their lines: of `loss(module, *example)`, or of `module(*example)`. The module may be a
    `twinax.port.Agent`, which has all of it.

    >>> for row in twinax.port.audit(module, optimizer):  # doctest: +SKIP
    ...     print(row.where, row.setting, row.here, row.library, row.default, row.instead)
    """
    require("torch", "torch", "twinax.port.audit")
    if isinstance(module, Agent):
        return _of_agent(module)
    import torch

    if not isinstance(module, torch.nn.Module):
        raise TwinaxError(f"an audit is of a torch.nn.Module, but this is a {type(module).__name__}")
    rows = list(_gathered(layers(module)))
    if example:
        rows += _unique(calls(module, example, loss))
    if optimizer is not None:
        rows += settings("optimizer", optimizer)
    if clip_norm:
        rows += clipping("optimizer", clip_norm)
    return rows


def _of_agent(agent: Any) -> list[Default]:
    rows = list(_gathered(layers(agent.module)))
    if agent.loss is None:
        return rows + _unique(calls(agent.module, agent.inputs, None))
    if callable(agent.loss) and agent.optimizer is None:
        return rows + _unique(calls(agent.module, (agent.batch,), agent.loss))
    updates = Step.updates_of(agent.loss, agent.optimizer, agent.clip_norm)
    rows += _unique(row for update in updates for row in calls(agent.module, (agent.batch,), update.loss))
    for update in updates:
        where = "optimizer" if len(updates) == 1 else f"optimizer of {update.title}"
        rows += settings(where, update.optimizer)
        if update.clip_norm:
            rows += clipping(where, update.clip_norm)
    return rows


def _gathered(rows: Iterable[Default]) -> Iterator[Default]:
    """One row for layers, and for libraries, of which the same is said."""
    by_library: dict[Any, list[str]] = {}
    for row in rows:
        libraries = by_library.setdefault(replace(row, library=""), [])
        libraries += [] if row.library in libraries else [row.library]
    by_layer: dict[Any, list[str]] = {}
    for row, libraries in by_library.items():
        by_layer.setdefault(replace(row, where="", library=", ".join(libraries)), []).append(row.where)
    for row, names in by_layer.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield replace(row, where=", ".join(names[:SHOWN]) + more)


def _unique(rows: Iterable[Default]) -> list[Default]:
    return list(dict.fromkeys(rows))
