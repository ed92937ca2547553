"""Where the time of a person's loop goes, by turns: PyTorch's own phases beside those of the compiled step."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twinax.port._batches import to_arrays

Laps = dict[str, float]
IN_A_ROW = 4
"""Of each kind in a turn: what follows something else has to wake up first."""


@dataclass(frozen=True)
class Profile:
    """Seconds of one step, medians over turns.

    >>> step.profile(batch, sample=lambda: collect(agent)).speedup  # doctest: +SKIP
    """

    sample: float
    """In the person's own sampler, which stays in PyTorch; 0 where none was given."""
    torch: dict[str, float]
    """PyTorch's loss, backward and optimizer."""
    step: dict[str, float]
    """The step's convert (the batch), compute (loss, gradients, update) and sync (the module's parameters)."""
    compile_seconds: float
    """Of the first call: capture, proof and compilation."""

    @property
    def torch_total(self) -> float:
        """Of an update in PyTorch."""
        return sum(self.torch.values())

    @property
    def step_total(self) -> float:
        """Of an update by the step."""
        return sum(self.step.values())

    @property
    def speedup(self) -> float:
        """How many times as fast an update is."""
        return self.torch_total / self.step_total

    @property
    def expected(self) -> float | None:
        """How many times as fast the whole loop is, if sampling takes the time that it takes."""
        return (self.sample + self.torch_total) / (self.sample + self.step_total) if self.sample else None

    @property
    def ceiling(self) -> float | None:
        """What no update can exceed while the sampler stays in PyTorch: the loop's gain if updates took no time."""
        return (self.sample + self.torch_total) / self.sample if self.sample else None

    @property
    def sync_share(self) -> float:
        """The share of a step that is spent on the module's parameters."""
        return self.step["sync"] / self.step_total

    def facts(self) -> dict[str, str]:
        """All of it for people."""

        def told(parts: Laps) -> str:
            named = ", ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in parts.items())
            return f"{sum(parts.values()) * 1e3:.3f} ms ({named})"

        found = {
            "update in PyTorch": told(self.torch),
            "update by the step": f"{told(self.step)}, {self.speedup:.2f} x",
            "first call": f"{self.compile_seconds:.1f} s to capture, prove and compile",
        }
        if self.sample:
            found["sampling"] = f"{self.sample * 1e3:.3f} ms, stays in PyTorch"
            found["whole loop"] = f"{self.expected:.2f} x expected, {self.ceiling:.2f} x at most while sampling stays"
        return found

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        derived = {"speedup": self.speedup, "expected": self.expected, "ceiling": self.ceiling}
        return {**asdict(self), **derived, "sync_share": self.sync_share}


def profile(step: Any, batch: Any, sample: Callable[[], Any] | None, turns: int = 20) -> Profile:
    """Measure; the step and the module are afterwards as they were."""
    module, optimizers = copy.deepcopy((step.module, [managed.optimizer for managed in step.managed]))
    begin = time.perf_counter()
    kept = step.copied()
    laps: dict[str, list[Laps]] = {"torch": [], "step": [], "sample": []}
    try:
        step(batch)
        compile_seconds = time.perf_counter() - begin
        for turn in range(turns + 2):
            found = {
                "torch": [_torch_laps(step, module, optimizers, batch) for _ in range(IN_A_ROW)],
                "step": [_step_laps(step, batch) for _ in range(IN_A_ROW)],
                "sample": [{"sample": _sample_lap(sample)} for _ in range(IN_A_ROW)],
            }
            for name, rows in found.items():
                laps[name] += rows if turn >= 2 else []  # the first turns warm up
    finally:
        step.restore(kept)
    medians = {
        name: {key: float(np.median([one[key] for one in rows])) for key in rows[0]} for name, rows in laps.items()
    }
    return Profile(medians["sample"]["sample"], medians["torch"], medians["step"], compile_seconds)


def _sample_lap(sample: Callable[[], Any] | None) -> float:
    if sample is None:
        return 0.0
    begin = time.perf_counter()
    sample()
    return time.perf_counter() - begin


def _torch_laps(step: Any, module: Any, optimizers: list[Any], batch: Any) -> Laps:
    import torch

    laps = {"loss": 0.0, "backward": 0.0, "optimizer": 0.0}
    for update, optimizer in zip(step.updates, optimizers, strict=True):
        begin = time.perf_counter()
        result = update.loss(module, batch)
        value = result[0] if isinstance(result, tuple) else result
        laps["loss"] -= begin - (begin := time.perf_counter())
        optimizer.zero_grad()
        value.backward()
        laps["backward"] -= begin - (begin := time.perf_counter())
        own = [p for group in optimizer.param_groups for p in group["params"]]
        if update.clip_norm:
            torch.nn.utils.clip_grad_norm_(own, update.clip_norm)
        if update.clip_value:
            torch.nn.utils.clip_grad_value_(own, update.clip_value)
        optimizer.step()
        laps["optimizer"] -= begin - time.perf_counter()
    begin = time.perf_counter()
    with torch.no_grad():
        named = dict(module.named_parameters())
        for target in step.targets:
            for name, source in target.pairs(named).items():
                named[name].lerp_(named[source], target.tau)
    laps["optimizer"] += time.perf_counter() - begin
    return laps


def _step_laps(step: Any, batch: Any) -> Laps:
    begin = time.perf_counter()
    to_arrays(batch)
    convert = time.perf_counter() - begin
    begin = time.perf_counter()
    step(batch)
    whole = time.perf_counter() - begin
    begin = time.perf_counter()
    step.push_parameters()
    sync = time.perf_counter() - begin
    return {"convert": convert, "compute": max(whole - convert - sync, 0.0), "sync": sync}
