"""What has to hold before a GFlowNet is trained: the rules of its world, and what its objective asks of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from twinax.envs import Environment
from twinax.envs.checking import check_hashable, inspect_env
from twinax.envs.state_rows import pick, show, size_of
from twinax.errors import TwinaxError
from twinax.gflownet._exploration import Exploration
from twinax.gflownet.objectives import Objective


def sound_states(env: Environment, frameworks: tuple[str, ...]) -> Any:
    """States of a world whose rules hold in a quick check: all of a small one, those of random walks otherwise."""
    check_hashable(env)
    return _sound_states(env, frameworks)


@functools.lru_cache(maxsize=8)
def _sound_states(env: Environment, frameworks: tuple[str, ...]) -> Any:
    return inspect_env(env, quick=True, frameworks=frameworks)[1]


def check_conditions(env: Environment, objective: str, needs: frozenset[str], states: Any) -> None:
    """Refuse an objective that reads of some state what the state does not have."""
    inner = ~np.asarray(states.done)
    if "log_pf_stop" in needs:
        # log P_F(stop | s) of a state that cannot stop is that of a masked action: a huge number, and its square a loss
        stuck = inner & ~np.asarray(env.forward_mask(states))[:, -1]
        if stuck.any():
            raise TwinaxError(
                f"{objective} divides by P_F(stop | s), but in {env} the state {_first(states, stuck)} cannot stop; "
                f"use {_instead(objective)}, which does not need it"
            )
    for name, read in (("state_log_reward", env.log_reward), ("state_log_energy", env.log_energy)):
        if name not in needs:
            continue
        try:
            reward = np.asarray(read(states), np.float64)
        except TwinaxError as error:  # a function that knows finished objects alone
            raise TwinaxError(
                f"{objective} reads the reward of unfinished states, but {error}; make it answer for those as well, or "
                f"use {_instead(objective)}, which does not need it"
            ) from error
        bad = inner & ~np.isfinite(reward)
        if bad.any():
            raise TwinaxError(
                f"{objective} reads the reward of unfinished states, but in {env} the log-reward of the state "
                f"{_first(states, bad)} is {reward[bad][0]}; use {_instead(objective)}, which does not need it"
            )

    if "log_pf_stop" in needs and "state_log_reward" in needs:
        here = pick(states, np.flatnonzero(inner))
        paid = env.log_reward(env.step(here, np.full(size_of(here), env.num_actions - 1, np.int32)))
        now, then = (np.asarray(x, np.float64) for x in (env.log_reward(here), paid))
        other = ~np.isclose(now, then, rtol=1e-5, atol=1e-5)
        if other.any():
            raise TwinaxError(
                f"{objective} takes the reward of a state for that of stopping there, but the log-reward in {env} of "
                f"the state {_first(here, other)} is {now[other][0]:g}, and {then[other][0]:g} once stopped; "
                f"use {_instead(objective)}, which does not need it"
            )


def check_intrinsic(env: Environment, objective: Objective, exploration: Exploration) -> None:
    """Refuse rewards for what is new that find no place in the objective, or cannot be told."""
    name, scale = objective.name, exploration.intrinsic
    if objective.of_data:
        raise TwinaxError(
            f"exploration.intrinsic={scale} adds to the reward, but {name} imitates objects and reads none; leave it "
            "out"
        )
    try:
        _ = env.observation_size
    except TwinaxError as error:
        raise TwinaxError(
            f"exploration.intrinsic={scale} tells what is new by perceptrons, but what {type(env).__name__} shows is "
            "no flat row of numbers; leave it out"
        ) from error
    if exploration.intrinsic_form == "edge" and not objective.rewards_edges:
        raise TwinaxError(
            f"exploration.intrinsic_form=edge adds to the flow through each edge, but {name} learns no flow of states "
            "that it could enter; use detailed_balance, subtrajectory_balance, or intrinsic_form=trajectory"
        )


def _instead(objective: str) -> str:
    return "detailed_balance" if objective != "detailed_balance" else "trajectory_balance"


def _first(states: Any, bad: np.ndarray) -> str:
    return show(states, int(np.flatnonzero(bad)[0]))
