"""One pretrained checkpoint for many tasks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from twinax.errors import TwinaxError
from twinax.offline import Agent, Normaliser, Sizes
from twinax.offline.learning import first_state, statistics_of
from twinax.optimizer import Optimizer
from twinax.problem import State
from twinax.runs import RunDirectory, checkpoint


def load_pretrained(run: Path | str, agent: Agent, sizes: Sizes) -> tuple[State, Normaliser]:
    """The networks, targets and moments that a run had when it finished pretraining, and its statistics.

    `problem(agent, finetuning=data.normalised(statistics), pretrained=state)` goes on from there with any task.

    >>> state, statistics = load_pretrained("runs/pretrained", agent, sizes)      # doctest: +SKIP
    """
    directory = RunDirectory(Path(run))
    directory.must_exist()
    config = directory.read_config()
    named, phases = config.get("agent"), config.get("phases")
    if config.get("experiment") != "offline" or not isinstance(named, dict) or named.get("name") != agent.name:
        raise TwinaxError(f"{run} is no run of the offline agent {agent.name}")
    end = phases.get("pretrain_steps") if isinstance(phases, dict) else None
    if not isinstance(end, int):
        raise TwinaxError(f"{directory.config_path} has phases.pretrain_steps={end}, which is no number of steps")
    saved = [step for step in checkpoint.steps(directory.path) if 0 < step <= end]
    if not saved:
        raise TwinaxError(
            f"{run} has no checkpoint of its pretraining, which ended at step {end}; pretrain with trainer.steps={end}"
        )
    like = first_state(agent, sizes, Optimizer(separate=config["optimizer"]["separate"]), seed=0)
    like = dataclasses.replace(like, carry={"normaliser": statistics_of(None, sizes)})
    state, _ = checkpoint.load(checkpoint.place(directory.path, saved[-1]), like, part=True)
    if sizes.images:
        return state, Normaliser.none()
    kept = state.carry["normaliser"]
    return state, Normaliser(np.float64(kept["shift"]), np.float64(kept["scale"]), "normal")
