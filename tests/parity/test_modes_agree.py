"""Every objective in every mode: values, gradients of each part, and 100 optimizer steps, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from twinax import parity, tree
from twinax.engines import QUICK_COMPILE
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import Exploration, TargetOptions, objectives
from twinax.noise import numpy_draws
from twinax.optimizer import Optimizer
from twinax.parity._check import _Ladder
from twinax.parity._sides import make_sides, widened

EPSILON = Exploration(epsilon=0.5, epsilon_end=0.05, epsilon_steps=60)
TEMPERATURE = Exploration(temperature=3.0, temperature_end=0.8, temperature_steps=60)
BOTH = Exploration(epsilon=0.2, temperature=1.7)
ADAMW = Optimizer("adamw", 1e-2, {"log_z": 0.1}, weight_decay=1e-2, clip_norm=0.5, decay_steps=70, decay_to=0.1)
ADAM = Optimizer("adam", 1e-2, clip_norm=0.5, eps=1e-5, beta1=0.8, beta2=0.99)
SGD = Optimizer("sgd", 1e-2, clip_norm=0.5, decay_steps=200)

# Each choice of policy, exploration and optimizer stands beside several objectives.
CASES = {
    "trajectory_balance": {"exploration": EPSILON, "optimizer": ADAMW, "log_z": (1.0, -0.5)},
    "detailed_balance": {"shared": False, "exploration": TEMPERATURE, "optimizer": ADAM, "sizes": (24, 56)},
    "subtrajectory_balance": {"backward": "uniform", "optimizer": SGD, "activation": "tanh"},
    # Its loss does not reach the backward policy's network, which decays all the same.
    "flow_matching": {"shared": False, "optimizer": ADAMW, "activation": "elu"},
    "forward_looking": {"backward": "maxent", "exploration": BOTH, "optimizer": ADAMW, "activation": "gelu"},
    "modified_detailed_balance": {"exploration": BOTH, "optimizer": ADAM, "activation": "leaky_relu"},
    "log_partition_variance": {"backward": "maxent", "shared": False, "exploration": EPSILON},
    "soft_dqn": {"optimizer": ADAM, "targets": TargetOptions(rate=0.25, ema=0.9), "activation": "tanh"},
    "relative_trajectory_balance": {"optimizer": ADAM, "activation": "tanh"},
    "maximum_likelihood": {"backward": "uniform", "optimizer": ADAM},
}


def test_every_objective_is_here():
    assert set(CASES) == set(objectives.OBJECTIVES)


@pytest.mark.parametrize("objective", CASES)
def test_modes_agree(small, objective):
    report = parity.check(small(objective, **CASES[objective]), steps=100, seed=1).raise_if_different()
    sides = {"hybrid", "jax"}
    compared = {(row.rung, row.side) for row in report.rows}
    assert compared >= {(rung, side) for rung in ("collect", "values", "gradients", "optimizer") for side in sides}
    assert compared >= {("training", side) for side in sides} | {("values", "numpy"), ("optimizer", "numpy")}
    items = {row.item for row in report.rows if row.rung == "training"}
    assert {"loss at each step", "grad_norm at each step", "optimizer.count", "carry.objects.position"} <= items
    assert any(item.startswith("networks.policy") for item in items)
    assert any(item.startswith("optimizer.second.policy") for item in items)


def test_some_training_is_compared(small):
    """The comparison would be empty if nothing moved: parameters change, and differ between seeds."""
    from twinax.engines import make_engine

    engine = make_engine(small("trajectory_balance", **CASES["trajectory_balance"]), mode="torch", dtype="float64")
    engine.start(1)
    before = tree.named_leaves(engine.state().networks)
    logs = engine.run(100)
    after = tree.named_leaves(engine.state().networks)
    assert all(np.abs(after[name] - before[name]).max() > 1e-2 for name in before)
    assert np.ptp(logs["grad_norm"]) > 0 and (logs["grad_norm"] > 0.5).any() and (logs["length"].std() > 0)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("backward", ["learned", "uniform", "maxent"])
@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
def test_torch_gradients_are_slopes_of_the_numpy_reference(small, objective, backward, shared):
    """Values of the two agree, and the gradient of each part is the slope of NumPy's value along a random direction."""
    # What is held still has no slope, so it comes from other networks here.
    targets = TargetOptions(rate=0.5) if objective == "soft_dqn" else None
    problem = small(objective, backward=backward, shared=shared, exploration=BOTH, targets=targets)
    state = widened(problem.init(1), "float64")
    sides = make_sides(["torch"], problem)
    draws = widened(numpy_draws(problem.draws(), 1, 0), "float64")
    inputs = widened(problem.inputs(), "float64")
    batches = {mode: side.collect(state, draws, inputs)[1] for mode, side in sides.items()}
    for name, leaf in tree.named_leaves(batches["numpy"]).items():
        np.testing.assert_array_equal(tree.named_leaves(batches["torch"])[name], leaf)
    found = sides["torch"].differentiate(state.networks, batches["torch"])
    values, gradients = found.values, found.gradients
    numpy_values = sides["numpy"].values(state.networks, batches["numpy"])
    leaves = tree.named_leaves(state.networks)
    rng, step = np.random.default_rng(0), 1e-5
    direction = {name: rng.standard_normal(x.shape) for name, x in leaves.items()}

    def moved(by):
        networks = tree.with_leaves(state.networks, {name: x + by * direction[name] for name, x in leaves.items()})
        return sides["numpy"].values(networks, batches["numpy"])

    up, down = moved(step), moved(-step)
    for term in values:
        np.testing.assert_allclose(values[term], numpy_values[term], rtol=1e-11, atol=1e-12)
        if term not in gradients:
            continue
        slope = (up[term] - down[term]) / (2 * step)
        along = sum(np.sum(gradients[term][name] * direction[name]) for name in leaves)
        np.testing.assert_allclose(along, slope, rtol=1e-5, atol=1e-6, err_msg=term)
    assert any(np.abs(g).max() > 1e-6 for g in gradients["loss"].values())


def test_float32_differs_by_rounding_only(small):
    report = parity.check(
        small("trajectory_balance", **CASES["trajectory_balance"]), ("torch", "jax"), steps=100, seed=1, dtype="float32"
    )
    assert not report.ok
    assert "rounding" in report.hint


def test_bad_requests_are_refused(small):
    problem = small("trajectory_balance")
    with pytest.raises(TwinaxError, match="at least two modes"):
        parity.check(problem, modes=["torch", "legacy"])
    with pytest.raises(UnknownName, match="tensorflow"):
        parity.check(problem, modes=["torch", "tensorflow"])
    with pytest.raises(TwinaxError, match="0 steps"):
        parity.check(problem, steps=0)
    with pytest.raises(UnknownName, match="float16"):
        parity.check(problem, dtype="float16")


@pytest.mark.parametrize(("more", "options"), [(0, QUICK_COMPILE), (1, None)])
def test_runs_followed_for_longer_are_compiled_as_in_training(small, more, options):
    problem = small("trajectory_balance")
    ladder = _Ladder(problem, ("torch", "jax"), problem.prove.steps + more, 0, 1e-9, "float64")
    assert [engine.compiler_options for engine in ladder.engines.values()] == [options, options]
