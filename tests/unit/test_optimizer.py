"""What an optimizer remembers: made by itself, for one count or a count of each network, in every mode."""

from __future__ import annotations

import dataclasses

import numpy as np
import offline_small as few
import pytest
import torch

import twinax as tx
from twinax import bridge, tree
from twinax.errors import TwinaxError
from twinax.offline import problem
from twinax.optimizer import Optimizer

NETWORKS = {"actor": {"weight": np.ones((2, 3))}, "critic": {"weight": np.ones(4), "bias": np.zeros(1)}}
APART, TOGETHER = Optimizer(separate=True), Optimizer()


def test_an_optimizer_makes_its_own_state():
    assert APART.init(NETWORKS).count == {"actor": 0, "critic": 0} and TOGETHER.init(NETWORKS).count == 0
    for recipe in (APART, TOGETHER):
        found = recipe.init(NETWORKS)
        assert tree.named_leaves(found.first).keys() == tree.named_leaves(NETWORKS).keys()
        assert not any(x.any() for x in tree.named_leaves((found.first, found.second)).values())


def test_networks_of_a_record_have_owners_too():
    made = tx.gflownet.problem(tx.envs.Hypergrid(dim=2, side=3), policy=tx.gflownet.PolicyOptions(hidden=(4,)))
    assert set(APART.init(made.init(0).networks).count) == {"policy", "log_z"}


def test_moments_of_another_recipe_are_adopted():
    found = dataclasses.replace(APART.init(NETWORKS), count={"actor": np.int32(7), "critic": np.int32(3)})
    assert TOGETHER.adopted(found).count == 7 and APART.adopted(found).count == {"actor": 7, "critic": 3}
    alone = dataclasses.replace(TOGETHER.init(NETWORKS), count=np.int32(5))
    assert APART.adopted(alone).count == {"actor": 5, "critic": 5}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_finetuning_goes_on_with_moments_of_either_kind(before, after):
    data = few.walks()

    def made(separate, **more):
        recipe = Optimizer(separate=separate)
        return problem(few.small("bc"), data, data, batch_size=6, optimizer=recipe, **more)

    pretrained = dataclasses.replace(made(before, pretrain_steps=2).init(0), step=np.array(2, np.int32))
    subject = made(after, pretrained=pretrained)
    engine = tx.engines.make_engine(subject, mode="torch")
    engine.start(0)
    engine.run(2)
    count = engine.state().optimizer.count
    assert count == ({"actor": 2} if after else 2)


def test_counts_of_networks_reach_torch():
    parameters = tree.map_leaves(lambda x: torch.nn.Parameter(torch.from_numpy(x.copy())), NETWORKS)
    adam = torch.optim.Adam(tree.named_leaves(parameters).values())
    moments = dataclasses.replace(APART.init(NETWORKS), count={"actor": np.int32(7), "critic": np.int32(3)})
    bridge.load_moments_into_torch(adam, parameters, moments)
    steps = {name: int(adam.state[p]["step"]) for name, p in tree.named_leaves(parameters).items()}
    assert steps == {"actor.weight": 7, "critic.weight": 3, "critic.bias": 3}


def test_optax_has_one_count():
    import optax

    state = optax.adam(1e-3).init(NETWORKS)
    equal = dataclasses.replace(APART.init(NETWORKS), count={"actor": np.int32(3), "critic": np.int32(3)})
    assert int(bridge.moments_from_optax(bridge.optax_from_moments(equal, state)).count) == 3
    other = dataclasses.replace(equal, count={"actor": np.int32(7), "critic": np.int32(3)})
    with pytest.raises(TwinaxError, match=r"have had \[3, 7\] updates"):
        bridge.optax_from_moments(other, state)


def test_a_run_with_optimizers_apart_is_resumed_in_another_mode(tmp_path):
    made = tx.gflownet.problem(
        tx.envs.Hypergrid(dim=2, side=3),
        batch_size=4,
        policy=tx.gflownet.PolicyOptions(hidden=(4,)),
        optimizer=Optimizer(learning_rate=1e-2, clip_norm=0.1, separate=True),
        metrics=tx.gflownet.MetricOptions(samples=4, fifo=16),
    )
    whole = tx.train(made, mode="torch", steps=4, seed=0, run_dir=tmp_path / "whole", progress=False)
    tx.train(made, mode="torch", steps=2, seed=0, run_dir=tmp_path / "run", progress=False)
    run = tx.resume(tmp_path / "run", made, steps=4, mode="hybrid", progress=False)
    losses = [[row["loss"] for row in found.metrics] for found in (whole, run)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
