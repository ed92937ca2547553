"""One pretrained checkpoint for many tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twinax.errors import TwinaxError
from twinax.offline._agent import Agent, Sizes
from twinax.offline._normaliser import Normaliser
from twinax.optimizer import Optimizer
from twinax.problem import State


def load_pretrained(run: Path | str, agent: Agent, sizes: Sizes) -> tuple[State, Normaliser]:
    """The networks, targets and moments that a run had when it finished pretraining, and its statistics.

    `problem(agent, finetuning=data.normalised(statistics), pretrained=state)` goes on from there with any task.

    >>> state, statistics = load_pretrained("runs/pretrained", agent, sizes)      # doctest: +SKIP
    """
    from twinax.runs import RunDirectory, checkpoint

    directory = RunDirectory(Path(run))
    directory.must_exist()
    config = directory.read_config()
    named, phases = config.get("agent"), config.get("phases")
    if config.get("experiment") != "offline" or not isinstance(named, dict) or named.get("name") != agent.name:
        raise TwinaxError(f"{run} is no run of the offline agent {agent.name}")
    end = phases.get("pretrain") if isinstance(phases, dict) else None
    if not isinstance(end, int):
        raise TwinaxError(f"{directory.config_path} has phases.pretrain={end}, which is no number of steps")
    saved = [step for step in checkpoint.steps(directory.path) if 0 < step <= end]
    if not saved:
        raise TwinaxError(
            f"{run} has no checkpoint of its pretraining, which ended at step {end}; pretrain with trainer.steps={end}"
        )
    rng = np.random.default_rng(0)
    networks = agent.build(rng, sizes)
    like = State(
        networks=networks,
        targets=agent.first_targets(networks, rng, sizes),
        carry={"normaliser": statistics_of(None, sizes)},
        optimizer=Optimizer(separate=config["optimizer"]["separate"]).init(networks),
        step=np.zeros((), np.int32),
        seed=np.zeros((), np.uint32),
    )
    state, _ = checkpoint.load(checkpoint.place(directory.path, saved[-1]), like, part=True)
    if sizes.images:
        return state, Normaliser.none()
    kept = state.carry["normaliser"]
    return state, Normaliser(np.float64(kept["shift"]), np.float64(kept["scale"]), "normal")


def statistics_of(normaliser: Normaliser | None, sizes: Sizes) -> dict[str, np.ndarray]:
    """A normaliser as arrays that a checkpoint holds; without one, those that change nothing."""
    shift, scale = (0.0, 1.0) if normaliser is None else (normaliser.shift, normaliser.scale)
    width = () if sizes.images else sizes.shape
    return {
        "shift": np.array(np.broadcast_to(shift, width), np.float32),
        "scale": np.array(np.broadcast_to(scale, width), np.float32),
    }
