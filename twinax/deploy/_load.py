"""From a run's directory to an object, however the run was started."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax import conf, console, tree
from twinax.arguments import checked
from twinax.deploy._run import LoadedRun
from twinax.errors import TwinaxError
from twinax.problem import Problem, State
from twinax.runs import RunDirectory, checkpoint, sources
from twinax.train_options import TrainOptions

Warn = Callable[[str], None]


@checked
def load(
    run: Path | str,
    problem: Problem | None = None,
    *,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    trust: bool = False,
    warn: Warn | None = None,
) -> LoadedRun:
    """A run of any family as an object: its newest whole checkpoint, its problem and its log.

    The problem is built again from the run's configuration, or from the call that made it in Python. Both are plain
    values that name code as `package.module:Name`; nothing is pickled, and somebody else's run that names code of other
    packages is refused unless `trust` says that this code may run.

    problem      the problem itself, for a run whose files do not say how it was made
    seed         which of several seeds samples and acts (default: the first)
    overrides    settings to change, as on the command line
    warn         gets a sentence for each checkpoint that is refused, and for what an evaluation has to leave out
                 (default: printed on standard error)

    >>> load("runs/first").top_k(3).texts                                   # doctest: +SKIP
    """
    directory = RunDirectory(Path(run))
    directory.must_exist()
    warn = warn or console.warn
    if problem is not None and overrides:
        raise TwinaxError(f"settings such as {overrides[0]} build a problem, and one was given; leave either out")
    left_out: list[str] = []
    config, composed = None, directory.is_composed
    if composed and problem is None:
        chosen = conf.restore_run(directory.path, overrides, trust)
        options = conf.train_options(chosen, devices=1)
        run_problem: Problem = conf.build_untrained(chosen, left_out.append)
        config = _plain_settings(chosen, run_problem)
    else:
        config = directory.read_config() if composed else None
        options = dataclasses.replace(conf.stored_options(directory.path, overrides), devices=1)
        run_problem = directory.read_problem(trust) if problem is None else problem
    if not checkpoint.steps(directory.path):
        raise TwinaxError(
            f"the run {directory.path} cannot be used: it has no checkpoint, so nothing is trained in it yet"
        )
    path, like = checkpoint.latest(directory.path, refused=warn), _like(run_problem, options)
    # What is left out of the problem is in the checkpoint all the same.
    states, _ = checkpoint.load(path, like=like, part=bool(left_out))
    return LoadedRun(directory, run_problem, states, options, config, seed, lambda: [warn(said) for said in left_out])


def _plain_settings(config: Any, problem: Problem) -> dict[str, Any]:
    """The configuration without places of this machine."""
    settings = json.loads(json.dumps(conf.as_dict(config), default=str))
    settings.pop("run", None)
    for file in problem.present.sources:
        settings = sources.renamed(settings, file, file.name)
    return settings


def _like(problem: Problem, options: TrainOptions) -> State:
    """A state in the shape that a checkpoint of these options has."""

    def leaf(x: Any) -> np.ndarray:
        x = np.asarray(x)
        x = x.astype(options.dtype) if x.dtype.kind == "f" else x
        return x if options.seeds == 1 else np.broadcast_to(x, (options.seeds, *x.shape))

    return tree.map_leaves(leaf, problem.init(options.seed))
