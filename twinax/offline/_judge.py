"""How an offline agent is judged: in its task, and by its losses on other data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks import frozen
from twinax.noise import Draw, below
from twinax.offline._tasks import judged
from twinax.offline.learning import Lesson
from twinax.parts import Title
from twinax.problem import Metrics, State
from twinax.tree import named_leaves

if TYPE_CHECKING:
    from twinax.offline._problem import Offline

TITLES = {
    "success": Title("Success", "Share of episodes that reach the goal.", tile=True),
    "return": Title("Return", "Sum of an episode's rewards."),
}
"""What reports call its numbers."""


@dataclass(frozen=True, eq=False)
class Judging:
    """The functions of an offline agent's `Judge`."""

    problem: Offline

    def draws(self) -> Mapping[str, Draw]:
        draws = (
            {}
            if self.problem.task is None
            else {f"task/{name}": draw for name, draw in self.problem.task.draws().items()}
        )
        if self.problem.validation is not None:
            for phase in self.problem.phases:
                own = self.problem.phase_draws(phase, self.problem.validation.size)
                draws |= {f"validation/{phase}/{name}": draw for name, draw in own.items()}
        return draws

    def tables(self) -> dict[str, Any]:
        tables: dict[str, Any] = {}
        if self.problem.latent and "finetune" in self.problem.phases:
            tables["labelled"] = self.problem.datasets["finetune"].arrays()
        if self.problem.validation is not None:
            tables["validation"] = self.problem.with_range(self.problem.validation)
        return tables

    def measure(self, state: State, draws, tables) -> Metrics:
        networks, measured = frozen(state.networks), {}
        if self.problem.task is not None:
            given = self.given(state, networks, tables)
            if self.problem.task.compiled:
                measured |= self.problem.task.rollout(self.acting(networks, given), below(draws, "task"))
                measured |= self._values(state, networks, given)
            else:
                measured |= {"networks": networks, **({} if given is None else {"given": given})}
        if self.problem.validation is not None:
            measured |= self._validated(state, networks, below(draws, "validation"), tables["validation"])
        return measured

    def _validated(self, state: State, networks: Any, draws, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The terms of the losses on validation data, by phase, and the number of the phase that the state is in: only
        its terms are computed."""
        nothing = ops.zeros((), _leaf(networks))

        def terms(phase: str):
            own = below(draws, phase)
            rows = self.problem.draw_batch(phase, arrays, own, state.carry)
            if phase == "pretrain" and not self.problem.agent.faithful:  # as in Dataset.reward_free
                rows = {**rows, "masks": ops.zeros(rows["masks"].shape, rows["masks"]) + 1}
                rows.pop("rewards", None)
            shown = self.problem.loss(networks, Lesson({phase: rows}, {phase: own}, state.targets))[1].log()
            others = {other: dict.fromkeys(names, nothing) for other, names in self.problem.phase_terms.items()}
            return {**others, phase: {name: ops.cast(shown[name], nothing) for name in self.problem.phase_terms[phase]}}

        if len(self.problem.phases) == 1:
            return {"validation": terms(self.problem.phases[0]), "validation_phase": nothing}
        later = ops.cast(state.step, "int32") > self.problem.pretrain_steps
        terms_by_phase = ops.cond(later, lambda: terms("finetune"), lambda: terms("pretrain"))
        return {"validation": terms_by_phase, "validation_phase": ops.cast(later, nothing)}

    def given(self, state: State, networks: Any, tables: Mapping[str, Any], goal: Any = None) -> Any:
        """What the actor is told: the task's latent, inferred anew while pretraining (zero-shot), or a goal, by default
        the task's."""
        if self.problem.agent.actor_sees == "goal":
            goal = self.problem.task.goal if goal is None and self.problem.task is not None else goal
            if goal is None:
                raise TwinaxError(f"{self.problem.agent.name} goes to goals, but this task has none")
            goal = np.asarray(goal if self.problem.normaliser is None else self.problem.normaliser(goal), np.float32)
            # A goal is seen as if one had stood there: its frames are the same.
            goal = np.concatenate([goal] * (self.problem.widths.shape[-1] // goal.shape[-1]), -1)
            return ops.like(goal, _leaf(networks))
        if not self.problem.latent or "labelled" not in tables:
            return None
        pretraining = ops.cast(state.step, "int32") <= self.problem.pretrain_steps
        return ops.cond(
            pretraining, lambda: self.problem.inferred(networks, tables["labelled"]), lambda: state.carry["latent"]
        )

    def acting(self, networks: Any, given: Any, noise: Any = None):
        """Observations as the world gives them, to actions in the box that the data had; without noise the likeliest,
        otherwise by a row of normal numbers for each."""

        def act(observations):
            states, told, none = self._seen(networks, observations, given)
            drawn = (none, 0.0) if noise is None else (noise, 1.0)
            action = self.problem.agent.act(networks, states, told, *drawn)
            if self.problem.box is None:
                return action
            low, high = (ops.cast(ops.like(side, action), action) for side in self.problem.box)
            return low + (action + 1) / 2 * (high - low)

        return act

    def _seen(self, networks: Any, observations: Any, given: Any) -> tuple[Any, Any, Any]:
        """Observations as the agent sees them, what it is told beside each, and noise of 0."""
        states = observations if self.problem.normaliser is None else self.problem.normaliser(observations)
        rows = states.shape[0]
        told = None if given is None else ops.broadcast(given[None], (rows, *given.shape))
        return states, told, ops.zeros((rows, self.problem.widths.action), _leaf(networks))

    def _values(self, state: State, networks: Any, given: Any) -> dict[str, Any]:
        """How good the places of the task's picture are; nan as long as the network that says so has not learned."""
        places = None if self.problem.task is None else self.problem.task.places()
        if places is None or not self.problem.agent.valued_by:
            return {}
        leaf = _leaf(networks)
        places = ops.cast(ops.like(places, leaf), leaf)
        values = self.problem.agent.values(networks, *self._seen(networks, places, given))
        if self.problem.agent.valued_by in self.problem.agent.trained["pretrain"]:
            return {"values": values}
        return {
            "values": ops.where(ops.cast(state.step, "int32") > self.problem.pretrain_steps, values, values * math.nan)
        }

    def summarise(self, measured: Mapping[str, Any]) -> Metrics:
        metrics: Metrics = {}
        if "validation" in measured:
            phase = self.problem.phases[int(measured["validation_phase"])]
            metrics = {f"validation.{name}": float(x) for name, x in measured["validation"][phase].items()}
        if self.problem.task is None:
            return metrics
        if not self.problem.task.compiled:
            measured = self.problem.task.play(
                self.acting(measured["networks"], measured.get("given")), self.problem.box
            )
        pictures = {f"picture/{name}": array for name, array in self.problem.task.pictures(measured).items()}
        return {**judged(measured), **metrics, **pictures}


def _leaf(networks: Any) -> Any:
    return next(iter(named_leaves(networks).values()))
