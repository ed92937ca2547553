"""What the options of a GFlowNet ask of one another, and of its world; each refusal is one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from twinax.envs.checking import HIGHEST
from twinax.errors import TwinaxError
from twinax.gflownet._conditions import check_intrinsic
from twinax.gflownet._energy import EnergyOptions
from twinax.gflownet._policy import counts_paths
from twinax.gflownet._replay import ReplayOptions

if TYPE_CHECKING:  # it imports this file
    from twinax.gflownet._problem import GFlowNet


def check_options(problem: GFlowNet) -> None:
    """Refuse what cannot be trained, whatever the world's rules are."""
    replay, backward = problem.replay, problem.policy.backward
    if problem.batch_size < (0 if replay.file else 1):
        raise TwinaxError(
            f"the batch size is {problem.batch_size}; it must be at least 1, or 0 with known objects in replay.file"
        )
    if replay.batch_size and problem.finished > replay.size:
        raise TwinaxError(
            f"a step finishes {problem.finished} objects, but replay.size={replay.size}; make it at least as large"
        )
    if backward == "tlm" and not problem.batch_size:
        raise TwinaxError(
            "policy.backward=tlm learns from fresh trajectories, but the batch size is 0; make it at least 1, or "
            "use policy.backward=learned"
        )
    if problem.policy.keeps_actions:
        _check_kept(replay)
    name, needs = problem.objective.name, problem.objective.needs
    if "log_pf_stop" in needs and not problem.env.stops:
        raise TwinaxError(f"{name} needs an environment in which every state can stop")
    if replay.batch_size and backward != "maxent" and counts_paths(problem.env, replay.backward):
        raise TwinaxError(
            f"replay.backward=maxent needs log_paths_ratio, which {type(problem.env).__name__} does not have; set "
            "policy.backward=maxent as well, which learns the numbers of paths, or replay.backward=uniform"
        )
    if "log_z" in needs and not problem.log_z:
        raise TwinaxError(f"{name} needs log Z, but no parameter for it was given: log_z is empty")
    if problem.in_update < (least := problem.objective.least_batch):
        raise TwinaxError(
            f"the batch size is {problem.in_update}, but {name} compares trajectories of a batch with one another: "
            f"make it at least {least}"
        )
    if problem.objective.of_data and not replay.batch_size:
        raise TwinaxError(
            f"{name} imitates the objects that it is shown, and without a replay these are its own; give known "
            "objects with replay.file and replay.batch_size, or the best of its own with replay.priority=rank"
        )
    if (problem.targets.every or problem.targets.rate) and not (problem.objective.reads_target or backward == "tlm"):
        raise TwinaxError(
            f"targets.every and targets.rate keep target networks, but {name} does not read any; set both to 0"
        )
    if problem.exploration.intrinsic:
        check_intrinsic(problem.env, problem.objective, problem.exploration)
    if problem.objective.prior and replay.batch_size and replay.priority == "loss":
        raise TwinaxError(
            f"replay.priority=loss asks how far a trajectory is from log Z, but the log Z of {name} is that of a "
            "prior; take another priority, such as rank"
        )
    if replay.file:
        _ = problem.first_replay  # a file that cannot be used is said before anything is made of it
    if not all(np.abs(problem.log_z) < HIGHEST):
        raise TwinaxError(f"the initial log Z is {problem.log_z}; every entry must be finite, and below {HIGHEST:g}")
    _check_energy(problem)


def _check_kept(replay: ReplayOptions) -> None:
    """Where the backward policy learns from trajectories of the replay, there have to be some."""
    if not replay.batch_size:
        raise TwinaxError(
            "policy.backward=pessimistic learns from trajectories of the replay, but replay.batch_size is 0; make "
            "it at least 1, and draw good ones with replay.priority=reward, top or rank"
        )
    if replay.file:
        raise TwinaxError(
            f"policy.backward=pessimistic learns from trajectories, but replay.file={replay.file} has objects "
            "alone; leave one of them out"
        )
    if replay.backward != "policy":
        raise TwinaxError(
            "policy.backward=pessimistic trains on the trajectories that the replay keeps, so nothing is left for "
            f"replay.backward={replay.backward} to draw; leave it out"
        )


def _check_energy(problem: GFlowNet) -> None:
    """What is learned, and what is remembered of earlier rewards, have to fit together."""
    if not problem.learns_energy:
        if problem.energy != EnergyOptions():
            raise TwinaxError(
                f"energy says how a reward is learned from data, but that of {problem.env} is given; choose a reward "
                "that is learned, such as proxy=learned_couplings, or leave energy out"
            )
        return
    if problem.replay.batch_size:
        raise TwinaxError(
            f"replay.batch_size is {problem.replay.batch_size}, but the reward is learned, and a replay remembers "
            "what objects were worth before; set it to 0 (energy.retrace=true trains on trajectories to the data)"
        )
    if not problem.batch_size:
        raise TwinaxError("the batch size is 0, but a learned reward needs fresh trajectories; make it at least 1")
