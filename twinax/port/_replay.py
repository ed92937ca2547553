"""A recorded training played again in float64: PyTorch's own loss and JAX's, side by side, and both beside the record."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, require
from twinax.noise import numpy_draws
from twinax.parity import Different, Evidence, Report, Row, compare_losses, difference, likely_cause, precision
from twinax.port._agent import Agent, make_agent
from twinax.port._capture import Capture
from twinax.port._proof import Trial
from twinax.port._record import Header, Record, Recorded
from twinax.port._replay_sides import Batch, JaxSide, Said, TorchSide, batch_like
from twinax.port._step import Step
from twinax.port._updates import Update
from twinax.port._where import first_difference

TOLERANCES = {"float64": 1e-9, "float32": 1e-3}
"""How far recorded numbers may be from those in float64, by the precision of the record."""
MOVED = {"float64": 1e-6, "float32": 1e-2}
"""The same of recorded parameters, relative to how far training has moved them since the replay last began."""
COARSE = 5e-2
"""Both for a record in half precision."""
NOISE = {"float64": 1e-13, "float32": 1e-6}
"""A gradient this small beside all gradients together is rounding, and Adam makes whole steps of it."""
WEIGHTS_FLOOR = 0.1
"""Parameters smaller than this are judged as if they were this large."""
UNSEEN = ("lr", "initial_lr", "params", "foreach", "fused", "capturable", "differentiable")
"""Settings that make no difference, or that are recorded with each step."""

Judge = Callable[[Any, Any], Any] | Mapping[str, Callable[[Any, Any], Any]]


@dataclass(frozen=True)
class Replay:
    """What a replay found.

    >>> found = twinax.port.replay("record", "agent.py:make")  # doctest: +SKIP
    >>> found.ok, found.first_step, found.first_difference, found.hint  # doctest: +SKIP
    """

    report: Report
    """Of each thing that was compared the row of the step where it differs first, or else most."""
    first_step: int | None
    """The first step that differs, as the record counts them; None where none does, or what differs is no step's."""
    notes: tuple[str, ...] = ()
    """What was not compared, and why."""

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return self.report.ok

    @property
    def first_difference(self) -> Row | None:
        """The first row that differs."""
        return self.report.first_difference

    @property
    def hint(self) -> str | None:
        """The likely cause."""
        return self.report.hint

    def raise_if_different(self) -> Replay:
        """Raise `twinax.parity.Different` for the first difference; else give the replay itself."""
        if not self.ok:
            raise Different(self.report)
        return self

    def to_json(self) -> str:
        """Everything as JSON text."""
        facts = {**json.loads(self.report.to_json()), "first_step": self.first_step}
        facts["notes"] = [*facts["notes"], *self.notes]
        return json.dumps(facts, indent=1)


def replay(
    record: str | Path | Record,
    agent: Agent | str,
    against: Judge | None = None,
    *,
    most: int | None = None,
    tolerance: float = 1e-9,
) -> Replay:
    """Play recorded steps in float64: PyTorch's loss and optimizer, JAX's, and the record beside both.

    The JAX side is the captured loss, or `against`, a function `loss(params, batch)` in JAX that gives a scalar, or that
    and a dict of scalars; `params` are the module's arrays by `state_dict`'s names. Of an agent with several updates it
    is a dict of such functions by the updates' names. Per step are compared: the loss, the terms that both sides have
    and all gradients by parameter (PyTorch with JAX, to `tolerance`); then loss, terms and gradient norms with the
    record, and parameters where it has them, as its precision allows. The replay ends at the first step that differs.
    `most` steps are played, or all.

    >>> twinax.port.replay("record", "agent.py:make").raise_if_different()  # doctest: +SKIP
    """
    require("torch", "torch", "twinax.port.replay")
    record = record if isinstance(record, Record) else Record(record)
    agent = agent if isinstance(agent, Agent) else make_agent(agent)
    if agent.loss is None:
        raise TwinaxError("the agent has no loss; return twinax.port.Agent(module, batch, loss, optimizer)")
    played = _Played(record, agent, agent.jax_loss if against is None else against, tolerance)
    with precision("float64"):
        played.play(record.steps[:most])
    return played.result()


@dataclass(frozen=True)
class _Failed:
    """Where both sides part."""

    k: int
    batch: Batch
    capture: Capture | None
    draws: Mapping[str, Any]
    theirs: Said
    ours: Said


class _Played:
    """A replay on its way."""

    def __init__(self, record: Record, agent: Agent, against: Any, tolerance: float):
        self.record, self.agent, self.tolerance = record, agent, tolerance
        self.header: Header = record.header
        self.updates = _updates(agent, list(record.header.optimizers))
        self.names = list(record.header.optimizers) or [update.title for update in self.updates]
        self.by_hand = _by_hand(against, self.names)
        self.torch = TorchSide(agent, self.updates, agent.targets)
        self.jax = JaxSide(agent, self.updates, agent.targets, self.by_hand)
        self.rows: dict[tuple[str, ...], Row] = {}
        self.notes: dict[str, None] = {}
        self.first_step: int | None = None
        self.done = 0
        self.failed: _Failed | None = None
        self.hint: str | None = None
        self.began: dict[str, np.ndarray] = {}
        self.noise: set[str] = set()
        self._check_parameters()

    def _check_parameters(self) -> None:
        shapes = {name: list(p.shape) for name, p in self.torch.parameters.items()}
        recorded = dict(self.header.parameters)
        if odd := sorted(set(shapes) ^ set(recorded)):
            raise TwinaxError(
                f"the record is of another module: only {'the record' if odd[0] in recorded else 'the agent'} has the "
                f"parameter '{odd[0]}'"
            )
        for name, shape in recorded.items():
            if shape != shapes[name]:
                raise TwinaxError(
                    f"the record is of another module: '{name}' has shape {tuple(shape)} there and "
                    f"{tuple(shapes[name])} in the agent"
                )

    # Step by step

    def play(self, steps: Sequence[Sequence[Recorded]]) -> None:
        """Until the end, or the first step that differs."""
        if not steps:
            raise TwinaxError(f"the record in {self.record.directory} has no step yet")
        if not self._keep(None, self._settings()):
            return
        ends, before = self.record.ends(), 0
        for lines in steps:
            step = lines[0].step
            if not self._begin(lines[0], before):
                return
            for line in lines:
                if not self._update(line):
                    return
            self.torch.follow(step)
            self.jax.follow(step)
            self.done, before = self.done + 1, step
            if step in ends and not self._compare_parameters(step, self.record.arrays(ends[step])):
                return

    def _begin(self, line: Recorded, before: int) -> bool:
        """Take over what is recorded; parameters are first compared, if the steps up to here were played."""
        arrays = self.record.arrays(line)
        if line.start:
            fine = before != line.step - 1 or not before or self._compare_parameters(before, arrays)
            if not fine:
                return False
            self.torch.load(arrays, ("parameters",))
            self.torch.load_memory(arrays["memory"])
            self.jax.load(self.torch)
            self.began, self.noise = self.torch.numbers(), set()
        elif before != line.step - 1:
            raise TwinaxError(f"step {line.step} of the record follows none that was recorded, and has no parameters")
        self.torch.load(arrays, ("buffers",))
        self.jax.buffers = {**self.jax.buffers, **self.torch.buffers()} if not before else self._jax_buffers(arrays)
        return True

    def _jax_buffers(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        named = self.torch.buffers()
        return {**self.jax.buffers, **{name: named[name] for name in arrays["buffers"]}}

    def _update(self, line: Recorded) -> bool:
        k = self._place(line)
        arrays = self.record.arrays(line)
        batch = batch_like(self.agent.batch, arrays["batch"], line.constants, line.step)
        capture = self.jax.capture(k, batch)
        drawn = capture.program.draws if capture is not None else {}
        draws = numpy_draws(drawn, line.seed or 0, line.step if line.draws is None else line.draws)
        known = not drawn or line.draws is not None
        if not known:
            self._note(
                f"'{line.update}' draws random numbers, which were PyTorch's own when it was recorded: PyTorch and JAX "
                "are compared on other draws, and neither with the record"
            )
        trained = self.torch.trained(k)
        if capture is None and line is self.record.lines[0]:
            self._refuse_randomness(k, batch, line)
        theirs = self.torch.ask(k, batch, line.step, capture, draws)
        ours = self.jax.ask(k, batch, capture, draws, trained)
        if not self._keep(line, self._agreement(theirs, ours)):
            self.failed = _Failed(k, batch, capture, draws, theirs, ours)
            return False
        if known and not self._keep(line, self._recorded(line, ours)):
            self.hint = self._why_not_recorded(line, ours)
            return False
        for name, norm in line.grad_norms.items():
            if norm <= NOISE.get(self.header.dtype, 1e-3) * (line.grad_norm or 0.0):
                self.noise.add(name)
        return self._advance(k, line, theirs, ours, known)

    def _advance(self, k: int, line: Recorded, theirs: Said, ours: Said, known: bool) -> bool:
        if self.torch.optimizers[k] is None:
            return True
        used = self.torch.advance(k, line.rates)
        self.jax.advance(k, ours, list(theirs.gradients))
        if not known:
            self.began = {}  # what follows was made with other draws
        elif line.used_norm is not None and line.grad_norm is not None:
            row = self._number("gradient norm after clipping", used, line.used_norm)
            if not self._keep(line, [row]):
                self.hint = (
                    "gradients were clipped otherwise when they were recorded: compare clip_norm and clip_value of the "
                    f"agent; the record has a norm of {line.grad_norm:.6g} before and {line.used_norm:.6g} after."
                )
                return False
        mine = {name: np.asarray(x) for name, x in self.jax.parameters.items()}
        pairs = self.torch.numbers().items()
        rows = [self._row("training", name, "torch", mine[name], x, self.tolerance, WEIGHTS_FLOOR) for name, x in pairs]
        return self._keep(line, rows)

    # What is compared

    def _agreement(self, theirs: Said, ours: Said) -> Iterator[Row]:
        """PyTorch and JAX: terms, the loss and its gradient by each parameter."""
        for name in theirs.terms:
            if name in ours.terms:
                yield self._row("values", name, "torch", ours.terms[name], theirs.terms[name])
        if odd := sorted(set(theirs.terms) ^ set(ours.terms)):
            self._note(f"only one side gives the terms {', '.join(odd)}; they are not compared")
        yield self._row("values", "loss", "torch", ours.loss, theirs.loss)
        largest = max((float(np.abs(g).max(initial=0.0)) for g in theirs.gradients.values()), default=0.0)
        for name in dict.fromkeys([*theirs.gradients, *ours.gradients]):
            a, b = theirs.gradients.get(name), ours.gradients.get(name)
            zero = np.zeros_like(b if a is None else a)
            floor = 1e-3 * largest or 1e-3
            pair = (zero if b is None else b), (zero if a is None else a)
            yield self._row("gradients", f"loss d {name}", "torch", *pair, self.tolerance, floor)

    def _recorded(self, line: Recorded, ours: Said) -> Iterator[Row]:
        """JAX and the record: numbers of a step."""
        for name, value in line.terms.items():
            if name in ours.terms:
                yield self._number(name, ours.terms[name], value)
        if unknown := sorted(set(line.terms) - set(ours.terms)):
            self._note(f"the agent's loss does not give the recorded terms {', '.join(unknown)}; they are not compared")
        yield self._number("loss", ours.loss, line.loss)
        for name, norm in line.grad_norms.items():
            found = ours.gradients.get(name)
            mine = 0.0 if found is None else float(np.linalg.norm(found))
            yield self._number(f"gradient norm of {name}", mine, norm, floor=1e-3 * (line.grad_norm or 1.0))
        if line.grad_norm is not None:
            yield self._number("gradient norm", ours.norm, line.grad_norm)

    def _number(self, item: str, ours: float, recorded: float, floor: float = 1e-3) -> Row:
        tolerance = TOLERANCES.get(self.header.dtype, COARSE)
        return self._row("record", item, "record", ours, recorded, tolerance, floor)

    def _row(
        self, rung: str, item: str, against: str, ours: Any, theirs: Any, tolerance: float | None = None, floor=1e-3
    ) -> Row:
        tolerance = self.tolerance if tolerance is None else tolerance
        return difference(rung, item, "jax", against, np.asarray(ours), np.asarray(theirs), tolerance, floor)

    def _compare_parameters(self, step: int, arrays: Mapping[str, Any]) -> bool:
        """Parameters after a step, relative to how far they have moved since the replay last began."""
        if not self.began:
            return True
        rows = []
        for name, array in arrays["parameters"].items():
            if name in self.noise:
                self._note(f"the gradient by '{name}' is rounding, so what training makes of it is not compared")
                continue
            a, b = array.astype(np.float64), np.asarray(self.jax.parameters[name])
            moved, allowed = float(np.linalg.norm(a - self.began[name])), MOVED.get(self.header.dtype, COARSE)
            rounding = 20 * _epsilon(self.header.dtype) * float(np.linalg.norm(a)) / allowed
            gap = float(np.linalg.norm(a - b))
            relative = gap / max(moved, rounding, 1e-12)
            rows.append(Row("parameters", name, "jax", "record", gap, relative, None, bool(relative <= allowed)))
        fine = self._keep(step, rows)
        if not fine:
            self.hint = self._why_moved_otherwise(next(row.item for row in rows if not row.ok))
        return fine

    def _settings(self) -> Iterator[Row]:
        """The optimizers' settings, but for learning rates, which are recorded with each step."""
        from twinax.port._recorder import described

        for k, (name, recorded) in enumerate(self.header.optimizers.items()):
            mine = json.loads(json.dumps(described(name, self.torch.optimizers[k], self.torch.names)))
            pairs: list[tuple[str, Any, Any]] = [("kind", mine["kind"], recorded["kind"])]
            pairs.append(("number of groups", len(mine["groups"]), len(recorded["groups"])))
            for ours, theirs in zip(mine["groups"], recorded["groups"], strict=False):
                pairs.append(("parameters", ours["params"], theirs["params"]))
                keys = [key for key in theirs if key in ours and key not in UNSEEN]
                pairs += [(key, ours[key], theirs[key]) for key in keys]
            for item, a, b in pairs:
                note = "" if a == b else f"{a} in the agent against {b} in the record"
                size = (0.0, 0.0) if a == b else (math.nan, math.inf)
                yield Row("settings", f"{item} of the optimizer of {name}", "jax", "record", *size, None, a == b, note)
        if any(row.rung == "settings" and not row.ok for row in self.rows.values()):
            self.hint = "the agent's optimizer is not the one that was recorded."

    # What is made of it

    def _keep(self, where: Recorded | int | None, rows: Any) -> bool:
        """Keep rows; whether all are within their tolerance."""
        fine = True
        step = where.step if isinstance(where, Recorded) else where
        for row in rows:
            if not row.ok:
                place = "" if step is None else f"in step {step}"
                if isinstance(where, Recorded) and len(self.names) > 1:
                    place += f", update '{where.update}'"
                row = replace(row, note=", ".join(filter(None, (row.note, place))))
                fine, self.first_step = False, step
            key = (row.rung, row.item, row.against)
            old = self.rows.get(key)
            if old is None or not row.ok or not row.relative <= old.relative:
                self.rows[key] = row
        return fine

    def _note(self, sentence: str) -> None:
        self.notes[sentence] = None

    def result(self) -> Replay:
        """All of it; of a difference between both sides also the cause, from gradients of each term."""
        rows, hint = list(self.rows.values()), self.hint
        if self.failed is not None:
            rows, hint = self._examined(self.failed, rows)
        elif hint is None and not all(row.ok for row in rows):
            hint = (
                _HANDED_ON if self.first_step is not None else "the agent's optimizer is not the one that was recorded."
            )
        number = sum(p.numel() for p in self.torch.parameters.values())
        report = Report(
            tuple(rows), ("record", "torch", "jax"), self.tolerance, "float64", number, hint, self.done or None
        )
        return Replay(report, self.first_step, tuple(self.notes))

    def _examined(self, failed: _Failed, rows: list[Row]) -> tuple[list[Row], str]:
        """The rows of both losses on the batch where they part, term by term."""
        k, batch = failed.k, failed.batch
        first = next(row for row in rows if not row.ok)
        evidence = Evidence(
            {"torch": {**_arrays(failed.theirs.terms), "loss": np.asarray(failed.theirs.loss)}}
            | {"jax": {**_arrays(failed.ours.terms), "loss": np.asarray(failed.ours.loss)}},
            {"torch": {"loss": failed.theirs.gradients}, "jax": {"loss": failed.ours.gradients}},
        )
        if failed.capture is not None:
            shim, tensors = _Moved(self.torch.module, self.updates[k].loss), (batch.tensors(),)
            trial = Trial("recorded batch", tensors, failed.draws)
            place = first_difference(shim, failed.capture, trial, self.tolerance)
            told = likely_cause(first, evidence)
            return rows, f"{place}; {told}" if place else told
        jax_loss = self.jax.loss_of(k, batch, None)

        def ours(networks: Any, arrays: Any) -> Any:
            value, (terms, _) = jax_loss({**self.jax.parameters, **networks}, self.jax.buffers, arrays, {})
            return value, terms

        networks = {name: np.asarray(self.jax.parameters[name]) for name in self.torch.trained(k)}
        theirs = self.torch.loss_of(k, batch)
        report = compare_losses(theirs, ours, networks, batch.arrays(), tolerance=self.tolerance, common_terms=True)
        if report.ok:
            return rows, likely_cause(first, evidence)
        place = first.note.rpartition("in step ")[2]
        found = [
            row if row.ok else replace(row, note=", ".join(filter(None, (row.note, f"in step {place}"))))
            for row in report.rows
        ]
        kept = [row for row in rows if row.ok and row.rung not in ("values", "gradients")]
        return [*found, *kept], report.hint or likely_cause(first, evidence)

    def _why_not_recorded(self, line: Recorded, ours: Said) -> str:
        """Why a recorded number is not the agent's, on which PyTorch and JAX agree."""
        row = next(row for row in self.rows.values() if not row.ok)
        start = "PyTorch's own loss and JAX agree here, so the agent's loss is not what was recorded:"
        if row.item.startswith("gradient norm"):
            if self.updates[self._place(line)].clip_norm and line.grad_norm is not None:
                if math.isclose(line.grad_norm, self.updates[self._place(line)].clip_norm, rel_tol=1e-3):
                    return "the recorded gradients were clipped already; call recorder.step before clip_grad_norm_."
            return (
                f"{start} the loss is the same and its gradient is not, so something is detached on one side only, or "
                "gradients were not set to 0 before loss.backward()."
            )
        values = {"record": {**_arrays(line.terms), "loss": np.asarray(line.loss)}}
        values["jax"] = {**_arrays(ours.terms), "loss": np.asarray(ours.loss)}
        told = likely_cause(replace(row, rung="values"), Evidence(values, {}))
        if self.header.training != bool(self.agent.module.training):
            told = (
                f"the module was {'' if self.header.training else 'not '}in training mode when it was recorded. {told}"
            )
        if lacking := sorted(set(line.terms) - set(ours.terms)):
            told = (
                f"the recorded loss came with the terms {', '.join(lacking)}, which the agent's does not give. {told}"
            )
        return f"{start} {told}"

    def _why_moved_otherwise(self, name: str) -> str:
        owned = {one for k in range(len(self.updates)) for one in self.torch.trained(k)}
        if name not in owned and not any(name.startswith(f"{target.name}.") for target in self.agent.targets):
            return (
                f"no optimizer trains '{name}', and it changed while it was recorded: a target network that follows "
                "another part is given as Agent(targets=[twinax.port.Target(...)])."
            )
        return _HANDED_ON

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


_HANDED_ON = (
    "loss and gradients agree on every step before, so it is what one step hands to the next: a setting of the optimizer, "
    "clipping, a target network, or a parameter that was changed outside of the optimizer."
)


@dataclass
class _Moved:
    """The agent's loss over the module as far as it is trained."""

    module: Any
    loss: Any
    kept: dict[str, Any] = field(default_factory=dict)


def _updates(agent: Agent, names: Sequence[str]) -> tuple[Update, ...]:
    """The agent's updates, as many as the record has."""
    if callable(agent.loss) and (agent.optimizer is None or not names):
        if names:
            raise TwinaxError(
                "the record has an optimizer and the agent has none; return twinax.port.Agent(module, batch, loss, "
                "optimizer)"
            )
        return (Update(agent.loss, None, name="loss"),)
    updates = Step.updates_of(agent.loss, agent.optimizer, agent.clip_norm)
    if not names:
        return tuple(replace(update, optimizer=None) for update in updates)
    if len(names) == 1 and len(updates) == 1:
        return updates
    by_title = {update.title: update for update in updates}
    if odd := sorted(set(by_title) ^ set(names)):
        raise TwinaxError(
            f"only {'the agent' if odd[0] in by_title else 'the record'} has the update '{odd[0]}'; the agent's updates "
            f"are {', '.join(by_title)}, and those of the record {', '.join(names)}"
        )
    return tuple(by_title[name] for name in names)


def _by_hand(against: Any, names: Sequence[str]) -> list[Any]:
    """The JAX loss of one's own for each update, or None."""
    if against is None:
        return [None] * len(names)
    given = dict(against) if isinstance(against, Mapping) else {names[0]: against}
    if len(names) > 1 and not isinstance(against, Mapping):
        raise TwinaxError(
            f"the agent has the updates {', '.join(names)}; give the JAX losses by these names, as a dict"
        )
    if odd := next((name for name in given if name not in names), None):
        raise TwinaxError(f"there is a JAX loss for '{odd}', and the agent's updates are {', '.join(names)}")
    return [given.get(name) for name in names]


def _arrays(values: Mapping[str, float]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in values.items()}


def _epsilon(dtype: str) -> float:
    return {"float64": 2.2e-16, "float32": 1.2e-7}.get(dtype, 8e-3)
