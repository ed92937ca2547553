"""Training with a reward on the host: in every mode as with a compiled one."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.tree_util as jtu
import numpy as np
import pytest

import twinax as tx
from twinax import tree
from twinax.engines import make_engine
from twinax.errors import TwinaxError

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

MODES = ("torch", "hybrid", "jax")
BANDS = tx.envs.GridReward(0.1, 0.5, 2.0)
GRID = tx.envs.Hypergrid(dim=2, side=4, reward=BANDS)
OPTIONS = {"steps": 6, "evaluate_every": 6, "chunk": 3, "log_every": 1, "progress": False}
# JAX keeps no compiled program that calls the host, so each test compiles its own.
pytestmark = pytest.mark.usefixtures("quick_compilation")


def bands(cells):
    """The grid's own reward, as somebody would write it in NumPy."""
    away = np.abs(cells / 3 - 0.5)
    outer, band = (away > 0.25).all(1), ((away > 0.3) & (away < 0.4)).all(1)
    return np.array([0.1, 0.1 + 0.5, 0.1 + 0.5 + 2.0])[outer.astype(int) + band]


def small(reward=None, objective="trajectory_balance", env=GRID, **options):
    return tx.gflownet.problem(
        env,
        objective,
        reward=reward,
        batch_size=4,
        policy=tx.gflownet.PolicyOptions(hidden=(8,)),
        metrics=tx.gflownet.MetricOptions(fifo=64, samples=16),
        **options,
    )


def numbers(run):
    wanted = ("loss", "log_reward", "log_z", "elbo", "eubo", "total_variation", "top_k_reward", "log_z_error")
    return {name: [row[name] for row in run.metrics if name in row] for name in wanted}


def test_the_functions_numbers_are_those_of_the_grid():
    graph, own = (tx.envs.enumerate_states(env) for env in (small(bands).env, GRID))
    np.testing.assert_array_equal(graph.log_reward, own.log_reward)


@pytest.mark.parametrize(
    ("objective", "mode"), [*(("trajectory_balance", mode) for mode in MODES), ("forward_looking", "torch")]
)
def test_equal_rewards_make_equal_runs(objective, mode):
    found, wanted = (tx.train(small(reward, objective), mode=mode, **OPTIONS) for reward in (bands, None))
    # In torch mode nothing but the place of the reward differs; XLA rounds another program otherwise.
    tolerance = 0.0 if mode == "torch" else 1e-5
    for name, values in numbers(wanted).items():
        np.testing.assert_allclose(numbers(found)[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


class Moody:
    """The grid's reward, until it is told to fail."""

    failing = False

    def __call__(self, cells):
        if self.failing:
            raise OSError("the server is gone")
        return bands(cells)


@pytest.fixture(scope="module")
def compiled():
    """An engine of jax mode for several tests, and its reward."""
    box = tx.envs.BlackBox(Moody())
    return make_engine(small(box), mode="jax", chunk=3), box


def test_a_run_that_goes_on_without_what_was_remembered_is_the_uninterrupted_one(compiled):
    engine, box = compiled
    engine.start(0)
    engine.run(6)
    whole = engine.state()
    engine.start(0)
    engine.run(4)
    state = engine.state()
    box._known.clear()  # as in another process
    engine.load(state)
    engine.run(2)
    same(engine.state(), whole)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    whole = tx.train(small(bands), mode="torch", **OPTIONS)
    tx.train(small(bands), mode="torch", run_dir=tmp_path / "run", **OPTIONS | {"steps": 4})
    same(tx.resume(tmp_path / "run", small(bands), steps=6, progress=False).state, whole.state)


def same(one, other):
    for name, leaf in tree.named_leaves(other).items():
        np.testing.assert_array_equal(tree.named_leaves(one)[name], leaf, err_msg=name)


def test_several_seeds_are_the_runs_of_each(compiled):
    engine, _ = compiled
    engine.start(4)
    engine.run(3)
    together = make_engine(small(bands), mode="jax", chunk=3, seeds=2)
    together.start(3)
    together.run(3)
    same(jtu.tree_map(lambda x: x[1], together.state()), engine.state())


def test_a_module_is_learned_to_its_exact_distribution():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)

    class Proxy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

        def forward(self, cells):
            return 1.5 * self.layers(cells.float() - 1.0)

    problem = tx.gflownet.problem(
        tx.envs.Hypergrid(dim=2, side=3),
        reward=tx.envs.BlackBox(Proxy(), log=True),
        policy=tx.gflownet.PolicyOptions(hidden=(32,)),
        optimizer=tx.Optimizer(learning_rate=1e-2, rates={"log_z": 0.1}, decay_steps=400, decay_to=0.01),
    )
    engine = make_engine(problem, mode="torch", chunk=200)
    engine.start(0)
    before = engine.evaluate()["total_variation"]
    engine.run(400)
    assert before > 0.1 and engine.evaluate()["total_variation"] < 0.02


@pytest.mark.parametrize("mode", MODES)
def test_what_fails_in_the_middle_of_a_run_is_one_sentence(mode, compiled):
    engine, box = compiled if mode == "jax" else (None, tx.envs.BlackBox(Moody()))
    engine = engine or make_engine(small(box), mode=mode, chunk=3)
    engine.start(0)
    engine.run(3)
    sentence = r"the reward Moody failed for .*\[\d, \d\] \(OSError: the server is gone\); it is given int32"
    box.function.failing = True
    try:
        for what in (lambda: engine.run(3), engine.evaluate):
            box._known.clear()
            with pytest.raises(TwinaxError, match=sentence) as error:
                what()
            assert isinstance(error.value.__cause__, OSError)
    finally:
        box.function.failing = False


@pytest.mark.parametrize("mode", MODES)
def test_what_fails_at_once_is_said_before_the_first_step(mode):
    with pytest.raises(TwinaxError, match=r"gave R = -\d for the object \[\d, \d\].*log=True"):
        tx.train(small(lambda cells: -1.0 - cells[:, 0]), mode=mode, **OPTIONS)


def whole_strings(bits):
    """Knows finished strings alone."""
    return np.array([2.0, 3.0])[bits].prod(1) if (bits >= 0).all() else None


def test_an_objective_that_reads_unfinished_states_needs_a_function_that_knows_them():
    with pytest.raises(TwinaxError, match="forward_looking reads the reward of unfinished .* use detailed_balance"):
        tx.train(small(whole_strings, "forward_looking", BitStrings(3)), **OPTIONS)
    run = tx.train(small(whole_strings, "detailed_balance", BitStrings(3)), mode="torch", **OPTIONS)
    assert run.metrics[-1]["total_variation"] < 1, "the strings were never asked for with holes"


def test_the_description_names_the_function():
    assert "BlackBox(bands)" in small(bands).present.describe()["environment"]
    assert "BlackBox(whole_strings)" in small(whole_strings, env=BitStrings(3)).present.describe()["environment"]
