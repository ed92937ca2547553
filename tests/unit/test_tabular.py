"""The table that stands for a network in small worlds."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
import torch
from test_torch_layers import assert_close, weighted

import twinax as tx
from twinax import bridge, ops
from twinax.engines import make_engine
from twinax.envs import Hypergrid, Sequences, enumerate_states
from twinax.errors import TwinaxError
from twinax.networks import NetworkSpec, Tabular, Tokens

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("env", [Hypergrid(dim=3, side=4), Sequences(length=3, alphabet="abc", order="any")], ids=repr)
def test_every_state_has_a_row_of_its_own(env):
    seen = env.observe(enumerate_states(env).states)
    table = Tabular()(RNG, NetworkSpec("policy", env.observe(env.reset(1)), {"forward": 1}))
    numbered = type(table)(np.arange(table.weight.size, dtype=np.float64)[:, None])
    rows = numbered(seen)[:, 0]
    # States that a network is shown alike, such as a place of the grid before and after the stop, share their row.
    shown = np.asarray(seen.indices if hasattr(seen, "indices") else seen.ids)
    assert len(np.unique(rows)) == len(np.unique(shown, axis=0))
    if isinstance(seen, Tokens):
        # Letters and an empty place; the token in front of all of them says nothing.
        assert rows.tolist() == [sum(int(x) * 4**i for i, x in enumerate(row[1:])) for row in shown]


def test_frameworks_agree_on_values_and_gradients(double_precision):
    seen = Tokens(RNG.integers(0, 4, (5, 3)).astype(np.int32), 4)
    table = Tabular()(RNG, NetworkSpec("policy", seen, {"forward": 2, "flow": 1}))
    table = type(table)(RNG.normal(size=table.weight.shape))
    weight = torch.tensor(table.weight, requires_grad=True)
    out = type(table)(weight)(ops.like(seen, weight))
    gradient = torch.autograd.grad(weighted(out), weight)[0]
    in_jax = bridge.to_jax(table)
    assert_close(table(seen), out)
    assert_close(in_jax(bridge.to_jax(seen)), out)
    assert_close(jax.grad(lambda net: weighted(net(bridge.to_jax(seen))))(in_jax).weight, gradient)
    assert (gradient.abs().sum(1) > 0).sum() == len(np.unique(seen.ids, axis=0))


def test_what_does_not_fit_is_one_sentence():
    spec = NetworkSpec("policy", Tokens(np.zeros((1, 30), np.int32), 4), {"forward": 4})
    with pytest.raises(TwinaxError, match=re.escape("30 places of 4 kinds has 1,152,921,504,606,846,976 rows")):
        Tabular()(RNG, spec)
    with pytest.raises(TwinaxError, match="it is shown rows of 3 numbers; take another network"):
        Tabular()(RNG, NetworkSpec("actor", np.zeros((1, 3)), {"logits": 2}))


def test_a_table_learns_a_small_world_exactly():
    problem = tx.gflownet.problem(
        Hypergrid(dim=2, side=4),
        network="tabular",
        policy=tx.gflownet.PolicyOptions(backward="uniform"),
        optimizer=tx.Optimizer(learning_rate=0.05, decay_steps=600, rates={"log_z": 0.05}),
        batch_size=64,
    )
    engine = make_engine(problem, mode="jax", chunk=200)
    engine.start(0)
    engine.run(600)
    found = engine.evaluate()
    assert found["total_variation"] < 0.01
    assert abs(found["log_z_error"]) < 0.01
