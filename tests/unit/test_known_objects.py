"""Known objects from a file: what a replay begins with, and every way in which a file can be wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax import parity
from twinax.engines import make_engine
from twinax.envs import GridReward, Hypergrid
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions, ReplayOptions, problem
from twinax.gflownet._known import known_objects

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))
CELLS = np.stack(np.meshgrid(range(4), range(4)), -1).reshape(-1, 2)
BITS = (np.arange(8)[:, None] >> np.arange(3)) & 1


def saved(tmp_path, **arrays):
    path = tmp_path / "known.npz"
    np.savez(path, **arrays)
    return str(path)


def only_known(path, steps=700, **replay):
    return problem(
        GRID,
        batch_size=0,
        policy=PolicyOptions(hidden=(32, 32)),
        metrics=MetricOptions(fifo=40, samples=64),
        optimizer=tx.Optimizer(learning_rate=5e-3, rates={"log_z": 0.1}, decay_steps=steps, decay_to=0.01),
        replay=ReplayOptions(**{"size": 20, "batch_size": 16, "file": path, **replay}),
    )


@pytest.mark.parametrize("form", ["arrays", "with done", "objects"])
def test_states_are_read_by_name_and_objects_by_the_world(tmp_path, form):
    arrays: dict = {"objects" if form == "objects" else "position": CELLS}
    if form == "with done":
        arrays["done"] = np.ones(16, bool)
    states = known_objects(GRID, saved(tmp_path, **arrays))
    assert states.position.tolist() == CELLS.tolist() and states.position.dtype == np.int32 and states.done.all()
    bits = known_objects(BitStrings(3), saved(tmp_path, bits=BITS.astype(float)))
    assert bits.bits.tolist() == BITS.tolist()


def test_a_replay_begins_with_them_in_the_order_of_their_rewards(tmp_path):
    made = only_known(saved(tmp_path, position=np.concatenate([CELLS, CELLS[:5]])), size=30, priority="rank")
    replay = made.init(0).carry.replay
    assert int(replay.held) == 16, "five objects are there twice"
    order = replay.values[:16][np.argsort(replay.ranks[:16])]
    assert (np.diff(order) <= 0).all() and sorted(replay.ranks[:16]) == list(range(16))
    states = known_objects(GRID, str(made.replay.file))
    np.testing.assert_allclose(replay.values[:16], GRID.log_reward(states)[:16], rtol=1e-6)
    first, second = (made.init(seed).carry.replay for seed in (0, 1))
    assert first.values is not second.values, "rings are written in place, so no two states share one"


def test_training_on_known_objects_alone_finds_the_target(tmp_path):
    """Nothing fresh is ever sampled: every object is known, and the policy becomes their distribution."""
    made = only_known(saved(tmp_path, position=CELLS))
    assert set(made.draws()) == {"replay/choose", "replay/undo"}
    engine = make_engine(made, mode="jax", chunk=350)
    engine.start(0)
    assert engine.evaluate()["total_variation"] > 0.3
    engine.run(700)
    found = engine.evaluate()
    assert found["total_variation"] < 0.01 and abs(found["log_z_error"]) < 0.01
    assert engine.state().carry.added == 0


def test_modes_agree_on_known_objects(tmp_path):
    parity.check(only_known(saved(tmp_path, position=CELLS[:9])), ("torch", "jax"), steps=3).raise_if_different()


def test_a_run_keeps_its_file(tmp_path):
    options = {"mode": "torch", "evaluate_every": 0, "log_every": 1, "progress": False}
    path = saved(tmp_path, position=CELLS)
    whole = tx.train(only_known(path), steps=4, **options)
    tx.train(only_known(path), steps=2, run_dir=tmp_path / "run", **options)
    Path(path).unlink()
    assert (tmp_path / "run" / "sources" / "known.npz").is_file()
    resumed = tx.resume(tmp_path / "run", steps=4, progress=False)
    assert resumed.metrics[-1]["loss"] == whole.metrics[-1]["loss"]


WRONG = {
    "unknown position, colour|unknown colour": {"position": CELLS, "colour": CELLS},
    "missing|missing position": {"done": np.ones(3, bool)},
    "shape|rows of shape \\(3,\\); in .* they are \\(2,\\)": {"position": np.zeros((4, 3), int)},
    "rows|different numbers of rows: position 16, done 3": {"position": CELLS, "done": np.ones(3, bool)},
    "empty|there is no object": {"position": CELLS[:0]},
    "nan|not finite": {"position": np.where(CELLS == 3, np.nan, CELLS)},
    "halves|no int32": {"position": CELLS + 0.5},
    "large|no int32": {"position": CELLS + 2**40},
    "text|holds <U1, not numbers": {"position": np.array([["a", "b"]])},
    "outside|row 2 .*4.* is no state that the rules reach": {"position": np.array([[0, 0], [3, 3], [4, 0]])},
    "negative|row 0": {"position": np.array([[-1, 2]])},
    "unfinished|row 1 .* is not finished": {"position": CELLS, "done": np.arange(16) != 1},
    "objects|cannot|shape": {"objects": np.zeros((4, 3), int)},
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_cannot_be_used_are_refused_in_a_sentence(tmp_path, case):
    with pytest.raises(TwinaxError, match=case.partition("|")[2]) as caught:
        only_known(saved(tmp_path, **WRONG[case]))
    assert "replay.file=" in str(caught.value) and "\n" not in str(caught.value)


def test_what_follows_from_the_rest_of_a_state_must_be_right(tmp_path):
    """The graph 0 -> 1 is known, but not that 1 can then be reached from 0."""
    env = tx.envs.DAG(num_nodes=3)
    state = env.step(env.step(env.reset(1), np.array([1])), np.array([9]))
    assert state.adjacency[0, 0, 1] and state.done.all()
    right = {"adjacency": state.adjacency, "closure": state.closure}
    assert known_objects(env, saved(tmp_path, **right)).adjacency.sum() == 1
    with pytest.raises(TwinaxError, match="row 0 .* is no state that the rules reach"):
        known_objects(env, saved(tmp_path, **{**right, "closure": np.eye(3, dtype=bool)[None]}))


def test_what_is_no_such_file_is_said(tmp_path):
    with pytest.raises(TwinaxError, match="is not there"):
        only_known(str(tmp_path / "nowhere.npz"))
    text = tmp_path / "text.npz"
    text.write_text("position")
    with pytest.raises(TwinaxError, match=r"replay.file=.*text.npz: this is no npz file"):
        only_known(str(text))
    whole = Path(saved(tmp_path, position=CELLS)).read_bytes()
    cut = tmp_path / "cut.npz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TwinaxError, match=r"replay.file=.*cut.npz: .*its end is missing"):
        only_known(str(cut))
    with pytest.raises(TwinaxError, match=r"replay.file=.* cannot be read: Is a directory"):
        only_known(str(tmp_path))
    np.savez(tmp_path / "objects.npz", objects=BITS)
    with pytest.raises(TwinaxError, match="BitStrings makes no states of them; save the arrays bits, done"):
        known_objects(BitStrings(3), tmp_path / "objects.npz")
    with pytest.raises(TwinaxError, match="has 16 objects, but replay.size=10"):
        only_known(saved(tmp_path, position=CELLS), size=10)
    with pytest.raises(TwinaxError, match="at least 1, or 0 with known objects in replay.file"):
        problem(GRID, batch_size=0, replay=ReplayOptions(batch_size=4))
