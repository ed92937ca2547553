"""Target networks, running means and priors: how they follow, and what reads them."""

from __future__ import annotations

import dataclasses

import jax.tree_util as jtu
import numpy as np
import pytest

from twinax import Optimizer, ops, parity
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid, enumerate_states
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions, TargetOptions, objectives, problem
from twinax.gflownet._exact import terminal_distribution, total_variation

GRID = Hypergrid(2, 3, GridReward(0.1, 0.5, 2.0))


def small(objective="detailed_balance", **options):
    options = {"policy": PolicyOptions(hidden=(8,)), "batch_size": 4, **options}
    return problem(GRID, objective, metrics=MetricOptions(fifo=20, samples=4), **options)


def followed(targets, steps=4, mode="torch"):
    """Networks after each step, and the slower ones at the end."""
    engine = make_engine(small(targets=targets), mode=mode, dtype="float64")
    engine.start(0)
    each = [engine.state().networks]
    for _ in range(steps):
        engine.run(1)
        each.append(engine.state().networks)
    return each, engine.state().targets


def assert_same(a, b):
    for x, y in zip(jtu.tree_leaves(a), jtu.tree_leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["torch", "hybrid", "jax"])
def test_copies_now_and_then(mode):
    each, targets = followed(TargetOptions(every=3), mode=mode)
    assert_same(targets["target"], each[3])


@pytest.mark.parametrize("mode", ["torch", "jax"])
def test_moved_a_little_in_each_step(mode):
    each, targets = followed(TargetOptions(rate=0.25, ema=0.9), mode=mode)
    target = mean = each[0]
    for networks in each[1:]:
        target = jtu.tree_map(lambda t, x: 0.75 * t + 0.25 * x, target, networks)
        mean = jtu.tree_map(lambda t, x: 0.9 * t + 0.1 * x, mean, networks)
    assert_same(targets["target"], target)
    assert_same(targets["ema"], mean)


def test_none_where_nobody_asks():
    assert small().init(0).targets is None
    assert sorted(small("rtb").init(0).targets) == ["prior"]


def test_evaluations_use_the_running_mean():
    made = small(targets=TargetOptions(ema=0.5))
    state = made.init(0)
    other = jtu.tree_map(lambda x: x + 1.0, state.networks)
    moved = dataclasses.replace(state, targets={"ema": other})
    plain = small().init(0)
    assert made.judged(moved) is other and small().judged(plain) is plain.networks


@pytest.mark.parametrize(
    "objective",
    [
        "detailed_balance",
        "forward_looking",
        "modified_detailed_balance",
        objectives.OBJECTIVES["soft_dqn"](dueling=True),
    ],
)
def test_the_loss_depends_on_the_target_networks(objective):
    made = small(objective, targets=TargetOptions(rate=0.1))
    state = made.init(0)
    shifted = jtu.tree_map(lambda x: x + 0.1, state.targets["target"])
    rng = np.random.default_rng(0)
    draws = {name: rng.random(draw.shape) for name, draw in made.draws().items()}
    losses = []
    for targets in (state.targets, {"target": shifted}):
        _, batch = made.collect(dataclasses.replace(state, targets=targets), draws, made.inputs())
        losses.append(float(made.loss(state.networks, batch)[0]))
    assert abs(losses[0] - losses[1]) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"dueling": True}, {"munchausen": 0.15}], ids=["plain", "dueling", "munchausen"]
)
@pytest.mark.parametrize("stops", [True, False], ids=["stops", "rules"])
def test_soft_q_learning_learns_the_target(options, stops):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent))
    from small_worlds import BitStrings

    env = Hypergrid(2, 4, GridReward(0.1, 0.5, 2.0)) if stops else BitStrings(3)
    made = problem(
        env,
        objectives.OBJECTIVES["soft_dqn"](**options),
        batch_size=32,
        policy=PolicyOptions(hidden=(64, 64), backward="uniform"),
        optimizer=Optimizer(learning_rate=2e-3, decay_steps=4000, decay_to=0.01),
        targets=TargetOptions(rate=0.25),
    )
    engine = make_engine(made, mode="jax", chunk=1000)
    engine.start(0)
    engine.run(4000)
    metrics = engine.evaluate()
    assert metrics["total_variation"] < 0.01 and abs(metrics["log_z_error"]) < 0.03


@pytest.mark.parametrize("mode", ["torch", "jax"])
def test_relative_balance_is_judged_by_the_prior_weighed_by_the_reward(mode):
    """Before training the policy is the prior, which beta=0 asks for; beta=1 asks for something else."""
    graph, found = enumerate_states(GRID), {}
    for beta in (0.0, 1.0):
        made = small(objectives.OBJECTIVES["relative_trajectory_balance"](beta=beta), log_z=(0.5,))
        engine = make_engine(made, mode=mode, dtype="float64")
        engine.start(0)
        found[beta] = engine.evaluate()
        logits = engine.state().networks.policy(GRID.observe(graph.states)).forward_logits
        prior = terminal_distribution(graph, ops.softmax(logits, GRID.forward_mask(graph.states)))
        log_z = np.log((prior[graph.done] * np.exp(beta * graph.log_reward[graph.done])).sum())
        assert found[beta]["log_z_error"] == pytest.approx(0.5 - log_z, abs=1e-9)
    assert found[0.0]["total_variation"] < 1e-9 < 0.05 < found[1.0]["total_variation"]


@pytest.mark.slow
def test_relative_balance_weighs_the_prior_by_the_reward():
    made = problem(
        GRID,
        objectives.OBJECTIVES["relative_trajectory_balance"](beta=2.0),
        batch_size=64,
        policy=PolicyOptions(hidden=(64, 64)),
        optimizer=Optimizer(learning_rate=2e-3, rates={"log_z": 0.05}, decay_steps=3000, decay_to=0.01),
    )
    engine = make_engine(made, mode="jax", chunk=1000)
    engine.start(0)
    graph = enumerate_states(GRID)

    def distribution(networks):
        logits = networks.policy(GRID.observe(graph.states)).forward_logits
        return terminal_distribution(graph, ops.softmax(logits, GRID.forward_mask(graph.states)))

    prior = distribution(engine.state().networks)
    engine.run(3000)
    wanted = np.where(graph.done, prior * np.exp(2.0 * np.where(graph.done, graph.log_reward, 0.0)), 0.0)
    state = engine.state()
    assert total_variation(distribution(state.networks), wanted / wanted.sum()) < 0.02
    assert engine.evaluate()["total_variation"] < 0.02
    assert float(state.networks.log_z.sum()) == pytest.approx(np.log(wanted.sum()), abs=0.03)


def test_a_run_with_all_of_them_is_proven_and_goes_on_exactly():
    made = small("soft_dqn", targets=TargetOptions(every=2, ema=0.9))
    parity.check(made, steps=4).raise_if_different()
    whole, first, second = (make_engine(made, mode="jax") for _ in range(3))
    whole.start(0)
    whole.run(5)
    first.start(0)
    first.run(3)
    second.load(first.state())
    second.run(2)
    for a, b in zip(jtu.tree_leaves(whole.state()), jtu.tree_leaves(second.state()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(TwinaxError, match="targets.every is -1"):
        TargetOptions(every=-1)
    with pytest.raises(TwinaxError, match=r"targets.rate is 1.5; it must be between 0 and 1"):
        TargetOptions(rate=1.5)
    with pytest.raises(TwinaxError, match="targets.ema is 1, which would keep the first networks"):
        TargetOptions(ema=1.0)
    with pytest.raises(TwinaxError, match="either copied or moved"):
        TargetOptions(every=10, rate=0.1)
    with pytest.raises(TwinaxError, match="munchausen is 1"):
        objectives.OBJECTIVES["soft_dqn"](munchausen=1.0)


def test_target_networks_that_nothing_reads_are_refused():
    with pytest.raises(TwinaxError, match="keep target networks, but trajectory_balance does not read any"):
        small("trajectory_balance", targets=TargetOptions(rate=0.1))
    small("trajectory_balance", policy=PolicyOptions(hidden=(8,), backward="tlm"), targets=TargetOptions(rate=0.1))
    small("trajectory_balance", targets=TargetOptions(ema=0.5))


def test_imitation_needs_objects_that_are_not_its_own():
    with pytest.raises(TwinaxError, match="maximum_likelihood imitates the objects that it is shown"):
        small("maximum_likelihood")
