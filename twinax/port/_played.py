"""A replay on its way: recorded steps in float64, in PyTorch and in JAX side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.noise import numpy_draws
from twinax.port._agent import Agent
from twinax.port._capture import Capture
from twinax.port._record import Record, Recorded
from twinax.port._replay_batch import Batch, Said, batch_like
from twinax.port._replay_causes import HANDED_ON, SETTINGS, Parted, moved_otherwise, not_as_recorded
from twinax.port._replay_jax import JaxSide
from twinax.port._replay_rows import AFTER_CLIPPING, Rows, settings
from twinax.port._replay_torch import TorchSide
from twinax.port._updates import Update


class Played:
    """Both sides and what was found so far."""

    def __init__(
        self,
        record: Record,
        agent: Agent,
        updates: Sequence[Update],
        by_hand: Sequence[Any],
        names: Sequence[str],
        tolerance: float,
    ):
        self.record, self.agent, self.names = record, agent, names
        self.torch = TorchSide(agent, updates, agent.targets)
        self.jax = JaxSide(agent, updates, agent.targets, by_hand)
        self.rows = Rows(record.header, tolerance)
        self.done = 0
        """Steps without a difference."""
        self.parted: Parted | None = None
        self.hint: str | None = None
        self._began: dict[str, np.ndarray] = {}
        self._noise: set[str] = set()
        _check_parameters(record, self.torch)

    def play(self, steps: Sequence[Sequence[Recorded]]) -> None:
        """Until the end, or the first step that differs."""
        if not steps:
            raise TwinaxError(f"the record in {self.record.directory} has no whole step yet")
        if not self.rows.keep(None, settings(self.record.header, self.torch)):
            self.hint = SETTINGS
            return
        ends, before = self.record.ends(), 0
        for lines in steps:
            step = lines[0].step
            if not self._begin(lines[0], before) or not all(map(self._update, lines)):
                return
            self.torch.follow(step)
            self.jax.follow(step)
            self.done, before = self.done + 1, step
            if step in ends and not self._compare_parameters(step, self.record.arrays(ends[step])):
                return

    def _begin(self, line: Recorded, before: int) -> bool:
        """Take over what is recorded; parameters are first compared, if the step before was played."""
        arrays = self.record.arrays(line)
        if line.start:
            if before and line.follows and not self._compare_parameters(before, arrays):
                return False
            self.torch.load(arrays, ("parameters",))
            self.torch.load_memory(arrays["memory"])
            self.jax.load(self.torch)
            self._began = self.torch.numbers() if self.record.header.optimizers else {}
            self._noise = set()
        elif not line.follows or not before:
            raise TwinaxError(f"step {line.step} of the record follows none that was recorded, and has no parameters")
        self.torch.load(arrays, ("buffers",))
        buffers = self.torch.buffers()
        changed = arrays["buffers"] if self.jax.buffers else buffers
        self.jax.buffers = {**self.jax.buffers, **{name: buffers[name] for name in changed}}
        return True

    def _update(self, line: Recorded) -> bool:
        k = self._place(line)
        arrays = self.record.arrays(line)
        batch = batch_like(self.agent.batch, arrays["batch"], line.constants, line.step)
        capture = self.jax.capture(k, batch)
        draws, known = self._draws(line, capture)
        if capture is None and line is self.record.lines[0]:
            self._refuse_randomness(k, batch, line)
        theirs = self.torch.ask(k, batch, line.step, capture, draws)
        ours = self.jax.ask(k, batch, capture, draws, self.torch.trained(k))
        if not self.rows.keep(line, self.rows.agreement(theirs, ours)):
            self.parted = Parted(k, line, batch, capture, draws, theirs, ours)
            return False
        if known and not self._keep_recorded(k, line, ours, self.rows.recorded(line, ours)):
            return False
        self._noise |= {name for name in line.grad_norms if self.rows.is_noise(line, name)}
        return self.torch.optimizers[k] is None or self._advance(k, line, theirs, ours, known)

    def _advance(self, k: int, line: Recorded, theirs: Said, ours: Said, known: bool) -> bool:
        used = self.torch.advance(k, line.rates)
        if not self.jax.advance(k, ours, list(theirs.gradients), self.torch):
            kind = type(self.torch.optimizers[k]).__name__
            self.rows.note(f"{kind} has no rule in JAX here, so after each step JAX goes on from PyTorch's parameters")
        if not known:
            self._began = {}  # what was recorded later comes from other draws
        elif line.used_norm is not None:
            row = self.rows.number(AFTER_CLIPPING, used, line.used_norm)
            if not self._keep_recorded(k, line, ours, [row]):
                return False
        fine = self.rows.keep(line, self.rows.trained(self.jax.numbers(), self.torch.numbers()))
        self.hint = self.hint if fine else HANDED_ON
        return fine

    def _keep_recorded(self, k: int, line: Recorded, ours: Said, rows: Any) -> bool:
        fine = self.rows.keep(line, rows)
        if not fine and (first := self.rows.first) is not None:
            modes = self.record.header.training, bool(self.agent.module.training)
            self.hint = not_as_recorded(first, line, ours, self.torch.updates[k].clip_norm, modes)
        return fine

    def _compare_parameters(self, step: int, arrays: Mapping[str, Any]) -> bool:
        if not self._began:
            return True
        for name in sorted(self._noise):
            self.rows.note(f"the gradient by '{name}' is rounding, so what training makes of it is not compared")
        recorded = {name: x for name, x in arrays["parameters"].items() if name not in self._noise}
        rows = self.rows.parameters(self.jax.numbers(), recorded, self._began)
        fine = self.rows.keep(step, rows)
        if not fine:
            self.hint = moved_otherwise(next(row.item for row in rows if not row.ok), self.torch)
        return fine

    def _draws(self, line: Recorded, capture: Capture | None) -> tuple[dict[str, Any], bool]:
        """Random arrays of an update, and whether its numbers were recorded with the same."""
        spec = {} if capture is None else capture.program.draws
        known = not spec or line.draws is not None
        if not known:
            self.rows.note(
                f"'{line.update}' draws random numbers, which were PyTorch's own when it was recorded: PyTorch and JAX "
                "are compared on other draws, and neither with the record"
            )
        return numpy_draws(spec, line.seed or 0, line.step if line.draws is None else line.draws), known

    def _place(self, line: Recorded) -> int:
        if line.update not in self.names:
            raise TwinaxError(
                f"the record has the update '{line.update}', and the agent has {', '.join(self.names)}; give the "
                "updates the recorded names"
            )
        return self.names.index(line.update)

    def _refuse_randomness(self, k: int, batch: Batch, line: Recorded) -> None:
        """A loss written by hand cannot be given the draws of a random one."""
        first, second = (self.torch.ask(k, batch, line.step, None, {}).loss for _ in range(2))
        if first != second:
            raise TwinaxError(
                f"the loss '{line.update}' draws random numbers ({first:.6g}, then {second:.6g} on one batch), and a "
                "JAX loss of one's own cannot be given the same; take the noise from the batch, or call module.eval()"
            )


def _check_parameters(record: Record, side: TorchSide) -> None:
    shapes, recorded = {name: list(p.shape) for name, p in side.parameters.items()}, dict(record.header.parameters)
    if odd := sorted(set(shapes) ^ set(recorded)):
        raise TwinaxError(
            f"the record is of another module: only {'the record' if odd[0] in recorded else 'the agent'} has the "
            f"parameter '{odd[0]}'"
        )
    for name, shape in recorded.items():
        if shape != shapes[name]:
            raise TwinaxError(
                f"the record is of another module: '{name}' has shape {tuple(shape)} there and {tuple(shapes[name])} "
                "in the agent"
            )
