"""One update of an offline agent: its losses added up, differentiated once, and targets that follow."""

from __future__ import annotations

import dataclasses
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.networks import ema, frozen
from twinax.offline._agent import Agent, Nets, Sizes
from twinax.offline._normaliser import Normaliser
from twinax.optimizer import Optimizer
from twinax.problem import Metrics, State, Terms, Update


@tree.record
class Lesson:
    """What one update learns from, by phase: one of them, or both where every loss is to be looked at."""

    rows: dict[str, Any]
    """A batch."""
    draws: dict[str, Any]
    """Random arrays of the losses."""
    targets: dict[str, Any]
    """Target networks."""
    choice: Any = None
    """Whether gated losses take part, where data decides it; otherwise `full` does."""
    last: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Terms to show for losses that are left out."""
    full: bool = tree.static(default=True)
    """Whether gated losses take part."""

    def chosen(self, full: bool) -> Lesson:
        """The lesson with or without gated losses."""
        return dataclasses.replace(self, choice=None, full=full)


def first_state(agent: Agent, sizes: Sizes, optimizer: Optimizer, seed: int) -> State:
    """Fresh networks, and targets that are copies of them."""
    rng = np.random.default_rng(seed)
    networks = agent.build(rng, sizes)
    return State(
        networks=networks,
        targets=tree.map_leaves(np.copy, agent.first_targets(networks, rng, sizes)),
        carry={},
        optimizer=optimizer.init(networks),
        step=np.zeros((), np.int32),
        seed=np.array(seed, np.uint32),
    )


def statistics_of(normaliser: Normaliser | None, sizes: Sizes) -> dict[str, np.ndarray]:
    """A normaliser as arrays that a checkpoint holds; without one, those that change nothing."""
    shift, scale = (0.0, 1.0) if normaliser is None else (normaliser.shift, normaliser.scale)
    width = () if sizes.images else sizes.shape
    return {
        "shift": np.array(np.broadcast_to(shift, width), np.float32),
        "scale": np.array(np.broadcast_to(scale, width), np.float32),
    }


def total_loss(agent: Agent, networks: Any, lesson: Lesson) -> tuple[Any, Terms]:
    """The sum of an agent's losses, and their terms as `loss.term`; of two phases each has its name before that."""
    nets = Nets(networks, frozen(networks), frozen(lesson.targets))
    losses, parts, shown = [], {}, {}
    for phase, rows in lesson.rows.items():
        prefix = f"{phase}." if len(lesson.rows) > 1 else ""
        draws = lesson.draws[phase]
        rows = agent.prepared(nets, rows, draws, phase)
        for name, loss in agent.losses(phase).items():
            if phase == "finetune" and not lesson.full and name in agent.gated:
                continue
            value, terms = loss(nets, rows, draws)
            losses.append(value)
            parts |= {f"{prefix}{name}.{key}": part for key, part in terms.parts.items()}
            shown |= {f"{prefix}{name}.{key}": term for key, term in terms.shown.items()}
    last = {name: term for name, term in lesson.last.items() if name not in parts}
    return reduce(add, losses), Terms(parts, {**last, **shown})


def followed(agent: Agent, state: State, phase: str, full: Any) -> dict[str, Any]:
    """Targets after an update: some of the way to the networks of before it."""
    before = {name: state.targets[name] for name in agent.followed[phase]}

    def move() -> dict[str, Any]:
        return {name: ema(target, state.networks[name], agent.tau) for name, target in before.items()}

    if phase == "finetune" and agent.follows_when_full:
        moved = (move() if full else before) if isinstance(full, bool) else ops.cond(full, move, lambda: before)
    else:
        moved = move()
    return {**state.targets, **moved}


def learned(
    state: State, agent: Agent, loss: Any, lesson: Lesson, phase: str, update: Update, still: tuple[str, ...] = ()
) -> tuple[State, Metrics]:
    """One update of networks, moments and targets."""
    # Targets first: PyTorch overwrites the networks.
    targets = followed(agent, state, phase, lesson.full if lesson.choice is None else lesson.choice)
    state, terms = update(state, loss, lesson, still=still)
    return dataclasses.replace(state, targets=targets), terms
