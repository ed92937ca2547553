"""Every family trains on a device that is not the CPU: no tensor of a step, an update or an evaluation is left behind.

No card is needed. `OtherDevice` computes and refuses to mix, so it holds whole runs, evaluations included.
PyTorch's own `meta` device refuses to mix as well, but has no numbers; what it holds are loss, gradients and update,
since rules that collect read numbers on the host (whether a trajectory goes on, how many states were visited).
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax.tree_util as jtu
import numpy as np
import offline_small as few
import other_device
import pytest
import small_problems
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from twinax import gflownet, tree
from twinax.bridge import _exchange
from twinax.engines import make_engine
from twinax.engines.torch_engine import TorchUpdate, to_parameters

PROBLEMS = {
    **{name: functools.partial(small_problems.gflownet, name) for name in gflownet.objectives.OBJECTIVES},
    "iqn": small_problems.agents_of_two_kinds,
    "ppo, choices": small_problems.balancing,
    "ppo, a box": small_problems.squashed,
    "ppo, style": small_problems.with_style,
    **{name: functools.partial(small_problems.agent, name) for name in few.AGENTS},
}
STEPS = 2
ONCE = ("aten::lift_fresh", "aten::add_.Tensor")
"""What makes tensors of the host in an update: constants on their way to the device, which are converted once, and the
counts of an Adam that is not fused, which PyTorch keeps there."""


@functools.cache
def on_the_cpu(name: str, mode: str = "torch") -> Any:
    """An engine at its first state; its draws are compiled once for all tests."""
    engine = make_engine(PROBLEMS[name](), mode=mode, chunk=STEPS, device="cpu")
    engine.start(0)
    return engine


def elsewhere(like: Any, monkeypatch) -> Any:
    """An engine like another one, whose device is the other; to be used inside `OtherDevice`."""
    monkeypatch.setattr("twinax.engines.torch_engine.torch_device", lambda name: other_device.NAME)
    engine: Any = make_engine(like.problem, like.options)
    engine._blocks = like._blocks
    return engine


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_on_another_device_is_the_run_on_the_cpu(name, monkeypatch):
    here = on_the_cpu(name)
    first, logs = here.state(), here.run(STEPS)
    with other_device.OtherDevice() as device:
        engine = elsewhere(here, monkeypatch)
        engine.load(first)
        found, scores, state = engine.run(STEPS), engine.evaluate(), engine.state()
    own, scored = tree.named_leaves(here.state()), here.evaluate()
    here.load(first)
    assert len(device.seen) > 20, "it computed there"
    assert set(scores) == set(scored)
    for key, values in logs.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-4, atol=1e-5, err_msg=key)
    for key, values in tree.named_leaves(state).items():
        np.testing.assert_allclose(values, own[key], rtol=1e-3, atol=1e-4, err_msg=key)


class MadeOnTheHost(TorchDispatchMode):
    """Counts the operations that give a tensor on the CPU; PyTorch mixes numbers of no dimension silently."""

    def __init__(self):
        super().__init__()
        self.by: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.by[func.name()] += sum(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in tree_leaves(result))
        return result


@pytest.mark.parametrize("name", PROBLEMS)
def test_loss_gradients_and_update_on_the_meta_device(name):
    engine = on_the_cpu(name)
    problem, first = engine.problem, engine.state()
    with torch.no_grad():
        _, batch = problem.collect(engine._state, engine._draws(0), engine._inputs())
        batch = problem.compile.prepare(batch)
    engine.load(first)
    batch = jtu.tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, batch)
    networks = to_parameters(first.networks, "meta")
    update = TorchUpdate(problem.optimizer, networks, first.optimizer)
    with MadeOnTheHost() as made:
        value, terms = problem.loss(networks, batch)
        update.differentiate(value)
        norm = update.apply()
    assert value.is_meta and norm.is_meta and all(x.is_meta for x in tree_leaves(terms.log()))
    assert all(parameter.grad.is_meta for parameter in jtu.tree_leaves(networks))
    assert all(memory["exp_avg"].is_meta for memory in update.optimizer.state.values())
    assert not {key for key, number in made.by.items() if number and key not in ONCE}
    assert made.by["aten::lift_fresh"] <= 2


@pytest.mark.parametrize("name", ["trajectory_balance", "ppo, choices"])
def test_the_hybrid_mode_samples_on_another_device(name, monkeypatch):
    """One step: these tensors cannot become views of a common buffer, through which later steps see the update."""
    here = on_the_cpu(name, "hybrid")
    first, logs = here.state(), here.run(1)
    # The bridge refuses tensors of the true `meta` device, which have no numbers; these have some, as a card's have.
    convert = _exchange.host_array
    monkeypatch.setattr(
        _exchange, "host_array", lambda key, x: convert(key, x.cpu() if isinstance(x, other_device.Elsewhere) else x)
    )
    with other_device.OtherDevice():
        engine = elsewhere(here, monkeypatch)
        engine.load(first)
        engine._programs = here._programs
        found, state = engine.run(1), engine.state()
        sent = engine._sync.flat.cpu().numpy()
    np.testing.assert_allclose(found["loss"], logs["loss"], rtol=1e-5)
    leaves = [np.ravel(x) for x in jtu.tree_leaves(state.networks)]
    np.testing.assert_allclose(sent, np.concatenate(leaves), rtol=1e-6)


def test_mixing_devices_is_refused():
    with other_device.OtherDevice():
        there = torch.zeros(3, device=other_device.NAME)
        with pytest.raises(AssertionError, match=r"aten::add.Tensor mixes devices: \(3,\) on meta, \(\) on cpu"):
            there + torch.zeros(())
        assert (there + 1).cpu().tolist() == [1.0, 1.0, 1.0]
