"""What a replay compares in a step, and how exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from twinax.parity import Row, difference
from twinax.port._record import Header, Recorded
from twinax.port._recorder_reads import described
from twinax.port._replay_batch import Said
from twinax.port._replay_torch import TorchSide

TOLERANCES = {"float64": 1e-9, "float32": 3e-4}
"""How far recorded numbers may be from those in float64, by the precision of the record."""
MOVED = {"float64": 1e-6, "float32": 1e-2}
"""The same of recorded parameters, relative to how far training has moved them since the replay last began."""
COARSE = 5e-2
"""Both for a record in half precision."""
NOISE = {"float64": 1e-13, "float32": 1e-6}
"""A gradient this small beside all gradients together is rounding, and Adam makes whole steps of it."""
EPSILON = {"float64": 2.2e-16, "float32": 1.2e-7}
FLOOR = 1e-3
"""Numbers smaller than this are judged as if they were this large."""
WEIGHTS_FLOOR = 0.1
"""The same for parameters."""
UNSEEN = ("lr", "initial_lr", "params", "foreach", "fused", "capturable", "differentiable")
"""Settings that make no difference, or that are recorded with each step."""
AFTER_CLIPPING = "gradient norm after clipping"


class Rows:
    """Of each thing that was compared the row of the step where it differs first, or else most."""

    def __init__(self, header: Header, tolerance: float):
        self.dtype, self.tolerance = header.dtype, tolerance
        self._several = len(header.optimizers) > 1
        self._found: dict[tuple[str, ...], Row] = {}
        self.notes: dict[str, None] = {}
        self.first_step: int | None = None

    @property
    def rows(self) -> list[Row]:
        """All of them, in the order in which they came."""
        return list(self._found.values())

    @property
    def first(self) -> Row | None:
        """The first that differs."""
        return next((row for row in self.rows if not row.ok), None)

    def keep(self, where: Recorded | int | None, rows: Iterable[Row]) -> bool:
        """Keep the rows of a step, or of none; whether all are within their tolerance."""
        fine, step = True, where.step if isinstance(where, Recorded) else where
        for row in rows:
            if not row.ok:
                row, fine, self.first_step = told(row, self.place(where)), False, step
            key = (row.rung, row.item, row.against)
            old = self._found.get(key)
            if old is None or not row.ok or not row.relative <= old.relative:
                self._found[key] = row
        return fine

    def place(self, where: Recorded | int | None) -> str:
        """A step in words."""
        if where is None:
            return ""
        step = where.step if isinstance(where, Recorded) else where
        update = f", update '{where.update}'" if isinstance(where, Recorded) and self._several else ""
        return f"in step {step}{update}"

    def note(self, sentence: str) -> None:
        """What is not compared, once."""
        self.notes[sentence] = None

    # What is compared

    def agreement(self, theirs: Said, ours: Said) -> Iterator[Row]:
        """JAX with PyTorch: terms, the loss and its gradient by each parameter."""
        if odd := sorted(set(theirs.terms) ^ set(ours.terms)):
            self.note(f"only one side gives the terms {', '.join(odd)}; they are not compared")
        for name in theirs.terms:
            if name in ours.terms:
                yield self._row("values", name, "torch", ours.terms[name], theirs.terms[name])
        yield self._row("values", "loss", "torch", ours.loss, theirs.loss)
        largest = max((float(np.abs(g).max(initial=0.0)) for g in theirs.gradients.values()), default=0.0)
        for name in dict.fromkeys([*theirs.gradients, *ours.gradients]):
            found = [side.gradients.get(name) for side in (ours, theirs)]
            zero = np.zeros_like(next(g for g in found if g is not None))
            a, b = (zero if g is None else g for g in found)
            yield self._row("gradients", f"loss d {name}", "torch", a, b, floor=FLOOR * largest or FLOOR)

    def recorded(self, line: Recorded, ours: Said) -> Iterator[Row]:
        """JAX with the record: the numbers of a step."""
        if unknown := sorted(set(line.terms) - set(ours.terms)):
            self.note(f"the agent's loss does not give the recorded terms {', '.join(unknown)}; they are not compared")
        for name, value in line.terms.items():
            if name in ours.terms:
                yield self.number(name, ours.terms[name], value)
        yield self.number("loss", ours.loss, line.loss)
        for name, norm in line.grad_norms.items():
            mine = float(np.linalg.norm(ours.gradients.get(name, np.zeros(1))))
            yield self.number(f"gradient norm of {name}", mine, norm, FLOOR * (line.grad_norm or 1.0))
        if line.grad_norm is not None:
            yield self.number("gradient norm", ours.norm, line.grad_norm)

    def number(self, item: str, ours: float, recorded: float, floor: float = FLOOR) -> Row:
        """A number with a recorded one."""
        return self._row("record", item, "record", ours, recorded, TOLERANCES.get(self.dtype, COARSE), floor)

    def trained(self, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[Row]:
        """JAX with PyTorch: parameters after an update."""
        for name, x in theirs.items():
            yield self._row("training", name, "torch", ours[name], x, floor=WEIGHTS_FLOOR)

    def parameters(self, ours: Mapping[str, Any], recorded: Mapping[str, Any], began: Mapping[str, Any]) -> list[Row]:
        """JAX with the record: parameters, relative to how far they have moved since a replay `began`."""
        rows, allowed = [], MOVED.get(self.dtype, COARSE)
        for name, array in recorded.items():
            a, b = array.astype(np.float64), np.asarray(ours[name])
            rounding = 20 * EPSILON.get(self.dtype, 8e-3) * float(np.linalg.norm(a)) / allowed
            gap, moved = float(np.linalg.norm(a - b)), float(np.linalg.norm(a - began[name]))
            relative = gap / max(moved, rounding, 1e-12)
            rows.append(Row("parameters", name, "jax", "record", gap, relative, None, bool(relative <= allowed)))
        return rows

    def is_noise(self, line: Recorded, name: str) -> bool:
        """Whether the gradient by a parameter was rounding when it was recorded."""
        return line.grad_norms[name] <= NOISE.get(self.dtype, 1e-3) * (line.grad_norm or 0.0)

    def _row(
        self,
        rung: str,
        item: str,
        against: str,
        ours: Any,
        theirs: Any,
        tolerance: float | None = None,
        floor: float = FLOOR,
    ) -> Row:
        allowed = self.tolerance if tolerance is None else tolerance
        return difference(rung, item, "jax", against, np.asarray(ours), np.asarray(theirs), allowed, floor)


def settings(header: Header, side: TorchSide) -> Iterator[Row]:
    """The agent's optimizers with those of the record, but for learning rates, which are recorded with each step."""
    for name, optimizer in zip(header.optimizers, side.optimizers, strict=False):
        recorded, mine = header.optimizers[name], json.loads(json.dumps(described(name, optimizer, side.names)))
        pairs: list[tuple[str, Any, Any]] = [("kind", mine["kind"], recorded["kind"])]
        pairs.append(("number of groups", len(mine["groups"]), len(recorded["groups"])))
        for ours, theirs in zip(mine["groups"], recorded["groups"], strict=False):
            pairs.append(("parameters", ours["params"], theirs["params"]))
            keys = [key for key in theirs if key in ours and key not in UNSEEN]
            pairs += [(key, ours[key], theirs[key]) for key in keys]
        for item, a, b in pairs:
            note = "" if a == b else f"{a} in the agent against {b} in the record"
            absolute, relative = (0.0, 0.0) if a == b else (math.nan, math.inf)
            title = f"{item} of the optimizer of {name}"
            yield Row("settings", title, "jax", "record", absolute, relative, None, a == b, note)


def told(row: Row, more: str) -> Row:
    """A row that says where it was found."""
    return replace(row, note=", ".join(filter(None, (row.note, more))))
