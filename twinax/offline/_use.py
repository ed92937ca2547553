"""A trained offline agent that acts: from observations as a world gives them to actions in its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinax.exportable import Exportable
from twinax.noise import Draw, numpy_draws
from twinax.offline._exportable import exportable
from twinax.offline._judge import Judging
from twinax.problem import State

if TYPE_CHECKING:
    from twinax.offline._problem import Offline


@dataclass(frozen=True, eq=False)
class Using:
    """The functions of an offline agent's `Use`."""

    problem: Offline

    def act(self, state: State, observations: Any, seed: int | None, goal: Any = None) -> Any:
        """As evaluations act; with a seed by noise of the agent's own size."""
        noise = None
        if seed is not None:
            draw = Draw((len(observations), self.problem.widths.action), "normal")
            noise = numpy_draws({"noise": draw}, seed, 0, stream=1)["noise"]
        return self.judging.acting(state.networks, self.given(state, goal), noise)(observations)

    def given(self, state: State, goal: Any = None) -> Any:
        """What the actor is told besides."""
        tables = self.judging.tables() if self.problem.latent else {}
        goal = None if goal is None else np.asarray(goal, np.float32)
        return self.judging.given(state, state.networks, tables, goal)

    def export(self, state: State, goal: Any = None) -> Exportable:
        """The likeliest action; what the actor is told besides becomes a part of it."""
        return exportable(self.problem, state, self.given(state, goal))

    @property
    def judging(self) -> Judging:
        return Judging(self.problem)
