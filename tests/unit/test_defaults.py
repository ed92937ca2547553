"""What nobody sets is the same in Python and on the command line."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from twinax import conf, gflownet, ppo
from twinax.ppo._problem import ADAM


def plain(value: Any) -> Any:
    """Options as nested values that can be compared."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


IN_PYTHON = {
    "ppo": lambda built: ppo.problem(built.world),
    "gflownet": lambda built: gflownet.problem(built.env),
}
"""Problems of the same world with nothing set, by experiment. Others have no such thing: offline there is no problem
without data and an agent, a robot's settings are those of its task, and a treasure hunt's those of its preset."""


@pytest.mark.parametrize("experiment", IN_PYTHON)
def test_nothing_said_is_the_same_here_and_there(experiment):
    built = conf.build_problem(conf.compose([f"experiment={experiment}"]))
    assert plain(IN_PYTHON[experiment](built)) == plain(built)


def test_the_section_of_ppo_has_the_defaults_of_ppo():
    """Also those that CartPole's settings might hide."""
    root = conf.find_experiment("ppo").schema()
    own = {field.name: field.default for field in dataclasses.fields(ppo.PPO) if field.init}
    for name, value in vars(root.ppo).items():
        if name not in ("anneal", "network", "network_options"):
            assert plain(value) == plain(own[name]), name
    assert root.ppo.anneal is False and ADAM.decay_steps == 0
    for name, value in vars(root.optimizer).items():
        assert value == getattr(ADAM, name), name
