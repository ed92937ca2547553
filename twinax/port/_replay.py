"""A recorded training, played again in float64: PyTorch and JAX side by side, and both beside the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError, require
from twinax.parity import Different, Report, Row, precision
from twinax.port._agent import Agent, make_agent
from twinax.port._played import Played
from twinax.port._record import Record
from twinax.port._recorder_reads import ONE
from twinax.port._replay_causes import examined
from twinax.port._step import Step
from twinax.port._updates import Update

JaxLoss = Callable[[Any, Any], Any]


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
    against: JaxLoss | Mapping[str, JaxLoss] | None = None,
    *,
    most: int | None = None,
    tolerance: float = 1e-9,
) -> Replay:
    """Play recorded steps in float64: PyTorch's loss and optimizer, JAX's, and the record beside both.

    The JAX side is the captured loss, or `against`, a function `loss(params, batch)` in JAX that gives a scalar, or a
    scalar and a dict of scalars; `params` are the module's arrays by `state_dict`'s names, and its gradients are
    followed by the update rules of a compiled step. Of an agent with several updates it is a dict of such functions by
    the updates' names. Per step are compared: terms that both sides give, the loss and its gradient by each parameter,
    and the parameters after it (JAX with PyTorch, to `tolerance`); then terms, loss and gradient norms with the record,
    and parameters where it has them, as its precision allows. The replay ends at the first step that differs; `most`
    steps are played, or all.

    >>> twinax.port.replay("record", "agent.py:make").raise_if_different()  # doctest: +SKIP
    """
    require("torch", "torch", "twinax.port.replay")
    record = record if isinstance(record, Record) else Record(record)
    agent = agent if isinstance(agent, Agent) else make_agent(agent)
    if agent.loss is None:
        raise TwinaxError("the agent has no loss; return twinax.port.Agent(module, batch, loss, optimizer)")
    recorded = list(record.header.optimizers)
    updates = _updates(agent, recorded)
    names = recorded or ([ONE] if len(updates) == 1 else [update.title for update in updates])
    by_hand = _by_hand(agent.jax_loss if against is None else against, names)
    played = Played(record, agent, updates, by_hand, names, tolerance)
    with precision("float64"):
        played.play(record.steps[:most])
    rows, hint = played.rows.rows, played.hint
    if played.parted is not None:
        rows, hint = examined(played.parted, played.rows, played.torch, played.jax)
    number = sum(p.numel() for p in played.torch.parameters.values())
    sides = ("record", "torch", "jax")
    report = Report(tuple(rows), sides, tolerance, "float64", number, hint, played.done or None)
    return Replay(report, played.rows.first_step, tuple(played.rows.notes))


def _updates(agent: Agent, names: Sequence[str]) -> tuple[Update, ...]:
    """The agent's updates, in the order of the record's optimizers."""
    if callable(agent.loss) and (agent.optimizer is None or not names):
        if names:
            raise TwinaxError(
                "the record has an optimizer and the agent has none; return twinax.port.Agent(module, batch, loss, "
                "optimizer)"
            )
        return (Update(agent.loss, None, name=ONE),)
    updates = Step.updates_of(agent.loss, agent.optimizer, agent.clip_norm)
    if not names:
        return tuple(replace(update, optimizer=None) for update in updates)
    if len(names) == 1 and len(updates) == 1:
        return updates
    by_title = {update.title: update for update in updates}
    if odd := sorted(set(by_title) ^ set(names)):
        raise TwinaxError(
            f"only {'the agent' if odd[0] in by_title else 'the record'} has the update '{odd[0]}'; the agent's "
            f"updates are {', '.join(by_title)}, and those of the record {', '.join(names)}"
        )
    return tuple(by_title[name] for name in names)


def _by_hand(against: Any, names: Sequence[str]) -> list[Any]:
    """The JAX loss of one's own for each update, or None."""
    if against is None:
        return [None] * len(names)
    if len(names) > 1 and not isinstance(against, Mapping):
        raise TwinaxError(
            f"the agent has the updates {', '.join(names)}; give the JAX losses by these names, as a dict"
        )
    given = dict(against) if isinstance(against, Mapping) else {names[0]: against}
    if odd := next((name for name in given if name not in names), None):
        raise TwinaxError(f"there is a JAX loss for '{odd}', and the agent's updates are {', '.join(names)}")
    return [given.get(name) for name in names]
