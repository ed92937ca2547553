"""A trained state judged once more, with draws of its own."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import numpy as np

from twinax import engines
from twinax.errors import TwinaxError
from twinax.problem import Problem, State
from twinax.runs import films, pictures
from twinax.train_options import TrainOptions

PREFIXES = (pictures.PREFIX, films.PREFIX)


class Evaluation(dict[str, Any]):
    """Metrics by name; of several seeds an array each. What it was made with is told beside."""

    shown: dict[str, Any]
    """Pictures and films, by their prefixed names."""
    step: int
    mode: str
    seeds: tuple[int, ...]
    """Roots of the draws: one for each seed of the run, in their order."""
    own_seeds: str
    """What was seeded otherwise, as a sentence; empty where draws decide everything."""

    @property
    def told(self) -> str:
        """The seeds in words."""
        seeds = self.seeds
        if len(seeds) == 1:
            return f"draws from seed {seeds[0]}"
        return f"draws from seeds {seeds[0]} to {seeds[-1]}, one for each seed of the run"


def evaluate(problem: Problem, state: State, options: TrainOptions, seed: int | None = None) -> Evaluation:
    """The problem's metrics of a state, which has a leading axis where there are several seeds."""
    options = dataclasses.replace(options, devices=1)
    root = fresh_seed(seed)
    old = np.asarray(state.seed)
    seeds = root + np.arange(old.size)
    engine = engines.make_engine(problem, options)
    engine.load(dataclasses.replace(state, seed=seeds.reshape(old.shape).astype(old.dtype)))
    measured = engine.evaluate()
    evaluation = Evaluation({name: x for name, x in measured.items() if not name.startswith(PREFIXES)})
    evaluation.shown = {name: x for name, x in measured.items() if name.startswith(PREFIXES)}
    evaluation.step, evaluation.mode = int(np.max(state.step)), options.mode
    # What the engine itself holds, not what it was asked for.
    evaluation.seeds = tuple(int(one) for one in np.ravel(np.asarray(engine.state().seed)))
    evaluation.own_seeds = problem.judge.own_seeds
    return evaluation


def fresh_seed(given: int | None) -> int:
    """The root of draws that was asked for, or a new one."""
    if given is None:
        return secrets.randbits(31)
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 0 <= given < 2**31:
        raise TwinaxError(f"the seed is {given}; it must be a whole number, at least 0 and below {2**31}")
    return int(given)
