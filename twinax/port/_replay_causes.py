"""Why a replay differs: from PyTorch by JAX's fault, or from the record by the agent's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinax.parity import Evidence, Row, compare_losses, likely_cause
from twinax.port._capture import Capture
from twinax.port._proof import Trial
from twinax.port._record import Recorded
from twinax.port._replay_batch import Batch, Said
from twinax.port._replay_jax import JaxSide
from twinax.port._replay_rows import AFTER_CLIPPING, Rows, told
from twinax.port._replay_torch import TorchSide
from twinax.port._where import first_difference

SETTINGS = "the agent's optimizer is not the one that was recorded."
HANDED_ON = (
    "loss and gradients agree on every step before, so it is what one step hands to the next: a setting of the "
    "optimizer, clipping, a target network, or a parameter that was changed outside of the optimizer."
)


@dataclass(frozen=True)
class Parted:
    """The update in which JAX and PyTorch differ, before anything was changed by it."""

    k: int
    line: Recorded
    batch: Batch
    capture: Capture | None
    draws: Mapping[str, Any]
    theirs: Said
    ours: Said


@dataclass(frozen=True)
class _Moved:
    """The agent's loss over its module as far as it is trained."""

    module: Any
    loss: Any


def examined(parted: Parted, found: Rows, torch_side: TorchSide, jax_side: JaxSide) -> tuple[list[Row], str]:
    """The rows of both losses on the batch where they part, term by term, and the likely cause.

    Of a captured loss the first operator that differs is named as well.
    """
    first, values = found.first, {"torch": parted.theirs, "jax": parted.ours}
    assert first is not None
    evidence = Evidence(
        {side: _values(said.terms, said.loss) for side, said in values.items()},
        {side: {"loss": said.gradients} for side, said in values.items()},
    )
    if parted.capture is not None:
        moved = _Moved(torch_side.module, torch_side.updates[parted.k].loss)
        trial = Trial("recorded batch", (parted.batch.tensors(),), parted.draws)
        place, cause = first_difference(moved, parted.capture, trial, found.tolerance), likely_cause(first, evidence)
        return found.rows, f"{place}; {cause}" if place else cause
    written = jax_side.loss_of(parted.k, parted.batch, None)

    def ours(networks: Any, arrays: Any) -> Any:
        value, (terms, _) = written({**jax_side.parameters, **networks}, jax_side.buffers, arrays, {})
        return value, terms

    report = compare_losses(
        torch_side.loss_of(parted.k, parted.batch),
        ours,
        {name: np.asarray(jax_side.parameters[name]) for name in torch_side.trained(parted.k)},
        parted.batch.arrays(),
        tolerance=found.tolerance,
        common_terms=True,
    )
    if report.ok:
        return found.rows, likely_cause(first, evidence)
    place = found.place(parted.line)
    rows = [row if row.ok else told(row, place) for row in report.rows]
    kept = [row for row in found.rows if row.rung not in ("values", "gradients")]
    return [*rows, *kept], report.hint or likely_cause(first, evidence)


def not_as_recorded(row: Row, line: Recorded, ours: Said, clip_norm: float, training: tuple[bool, bool]) -> str:
    """Why a recorded number is not the agent's, on which PyTorch and JAX agree; `training` of the record and now."""
    start = "PyTorch's own loss and JAX agree here, so the agent's loss is not what was recorded:"
    if row.item == AFTER_CLIPPING:
        return (
            "gradients were clipped otherwise when they were recorded: compare clip_norm and clip_value of the agent; "
            f"the record has a norm of {line.grad_norm or 0.0:.6g} before and {line.used_norm or 0.0:.6g} after."
        )
    if row.item.startswith("gradient norm"):
        if clip_norm and line.grad_norm is not None and math.isclose(line.grad_norm, clip_norm, rel_tol=1e-3):
            return "the recorded gradients were clipped already; call recorder.step before clip_grad_norm_."
        return (
            f"{start} the loss is the same and its gradient is not (norm {line.grad_norm or 0.0:.6g} in the record and "
            f"{ours.norm:.6g} here), so something is detached on one side only, a part that is about 0 has another "
            "factor, or gradients were not set to 0 before loss.backward()."
        )
    values = {"record": _values(line.terms, line.loss), "jax": _values(ours.terms, ours.loss)}
    cause = likely_cause(replace(row, rung="values"), Evidence(values, {}))
    if training[0] != training[1]:
        cause = f"the module was {'' if training[0] else 'not '}in training mode when it was recorded. {cause}"
    if lacking := sorted(set(line.terms) - set(ours.terms)):
        cause = f"it came with the terms {', '.join(lacking)}, which the agent's does not give. {cause}"
    return f"{start} {cause}"


def moved_otherwise(name: str, side: TorchSide) -> str:
    """Why a parameter is not where the record has it."""
    trained = {one for k in range(len(side.updates)) for one in side.trained(k)}
    if name not in trained and not any(name.startswith(f"{target.name}.") for target in side.targets):
        return (
            f"no optimizer trains '{name}', and it changed while it was recorded: a target network that follows "
            "another part is given as Agent(targets=[twinax.port.Target(...)])."
        )
    return HANDED_ON


def _values(terms: Mapping[str, float], loss: float) -> dict[str, np.ndarray]:
    return {**{name: np.asarray(value) for name, value in terms.items()}, "loss": np.asarray(loss)}
