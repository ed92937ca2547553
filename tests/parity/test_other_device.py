"""Every family trains on a device that is not the CPU: no tensor of a step, an update or an evaluation is left behind.

No card is needed. `OtherDevice` computes and refuses to mix; PyTorch's own `meta` device refuses as well, but has no
numbers, so it holds the parts that read none: loss, gradients and update.
"""

from __future__ import annotations

import jax.tree_util as jtu
import numpy as np
import offline_small as few
import other_device
import pytest
import small_problems
import torch

from twinax import gflownet, ops, tree
from twinax.engines import make_engine
from twinax.engines._torch import TorchUpdate, to_parameters, to_tensors
from twinax.problem import logging

PROBLEMS = {
    **{name: lambda name=name: small_problems.gflownet(name) for name in gflownet.objectives.OBJECTIVES},
    "iqn": small_problems.agents_of_two_kinds,
    "ppo, choices": small_problems.balancing,
    "ppo, a box": small_problems.squashed,
    "ppo, style": small_problems.with_style,
    **{name: lambda name=name: small_problems.agent(name) for name in few.AGENTS},
}


def elsewhere(problem, mode: str, monkeypatch):
    """An engine whose device is the other one; to be used inside `OtherDevice`."""
    monkeypatch.setattr("twinax.engines._torch.torch_device", lambda name: other_device.NAME)
    return make_engine(problem, mode=mode, chunk=3)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_on_another_device_is_the_run_on_the_cpu(name, monkeypatch):
    problem = PROBLEMS[name]()
    here = make_engine(problem, mode="torch", chunk=3, device="cpu")
    here.start(0)
    first, logs = here.state(), here.run(3)
    with other_device.OtherDevice() as device:
        engine = elsewhere(problem, "torch", monkeypatch)
        engine.load(first)
        found = engine.run(3)
        scores = engine.evaluate()
        state = engine.state()
    assert len(device.seen) > 20
    for key, values in logs.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-4, atol=1e-5, err_msg=key)
    own = tree.named_leaves(here.state())
    for key, values in tree.named_leaves(state).items():
        assert isinstance(values, np.ndarray)
        np.testing.assert_allclose(values, own[key], rtol=1e-3, atol=1e-4, err_msg=key)
    assert set(scores) == set(here.evaluate())
