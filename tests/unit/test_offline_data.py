"""Datasets: what is derived from the rows, normalisation, and every sentence about wrong rows."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from offline_rows import compact, regular, trajectories

from twinax import tree
from twinax.errors import TwinaxError
from twinax.offline import Dataset, Normaliser, from_arrays
from twinax.offline._dataset import LARGEST_ACTION, scaled_actions

LENGTHS = (4, 1, 7, 2)


# What is derived


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_starts_ends_and_rows_that_may_be_drawn(lengths):
    parts = trajectories(lengths)
    for make, extra in ((regular, 0), (compact, 1)):
        data = make(parts)
        starts, ends, drawable, row = [], [], [], 0
        for steps in lengths:
            starts += [row] * (steps + extra)
            ends += [row + steps - 1] * steps + [row + steps] * extra
            drawable += range(row, row + steps)
            row += steps + extra
        assert data.starts.tolist() == starts and data.ends.tolist() == ends
        assert data.drawable.tolist() == drawable and data.size == sum(lengths)
        assert data.lengths.tolist() == lengths and not data.open_end
        assert data.compact == bool(extra) and data.rows == row
        data.require_goals()
        names = {"observations", "actions", "rewards", "masks", "starts", "ends"}
        assert set(data.arrays()) == names | ({"drawable"} if extra else {"next_observations"})


def test_both_ways_of_marking_the_ends_of_compact_rows():
    """OGBench marks the last step and the final state; marking the final state alone means the same."""
    data = compact(trajectories(LENGTHS))
    finals = np.flatnonzero(~data.valids)
    assert np.flatnonzero(data.terminals).tolist() == sorted([*finals, *(finals - 1)])
    again = dataclasses.replace(data)
    np.testing.assert_array_equal(again.terminals, data.terminals)
    np.testing.assert_array_equal(again.ends, data.ends)


def test_an_invalid_row_inside_a_trajectory_is_only_not_drawn():
    data = compact(trajectories((4,)))
    valids = data.valids.copy()
    valids[1] = False
    data = dataclasses.replace(data, valids=valids)
    assert data.drawable.tolist() == [0, 2, 3] and data.starts.tolist() == [0] * 5
    assert data.ends.tolist() == [3, 3, 3, 3, 4]


def test_types_are_settled():
    rows = 4
    data = Dataset(
        observations=np.zeros((rows, 2), np.float64),
        next_observations=np.zeros((rows, 2), np.int64),
        actions=np.array([[1.0], [-1.0], [1 + 5e-6], [0.25]]),
        terminals=np.array([0, 0, 0, 1]),
        rewards=np.zeros((rows, 1), np.float64),
    )
    kinds = {name: str(value.dtype) for name, value in data.arrays().items()}
    assert kinds == {
        "observations": "float32",
        "next_observations": "float32",
        "actions": "float32",
        "rewards": "float32",
        "masks": "float32",
        "starts": "int32",
        "ends": "int32",
    }
    limit = np.float32(LARGEST_ACTION)
    assert data.actions[:, 0].tolist() == [limit, -limit, limit, 0.25] and limit < 1
    assert data.rewards.shape == (rows,) and data.masks.tolist() == [1.0] * 4 and not data.truncations.any()


def test_images_stay_bytes_and_are_not_copied():
    images = np.zeros((5, 4, 4, 3), np.uint8)
    data = Dataset(images, np.zeros((5, 1)), np.ones(5), next_observations=images)
    assert data.observations is images
    with pytest.raises(TwinaxError, match="uint8 images, which are not normalised"):
        data.normalised("normal")
    assert data.normalised("none").observations is images


def test_discrete_actions():
    data = from_arrays(
        {
            "observations": np.zeros((3, 1)),
            "next_observations": np.zeros((3, 1)),
            "actions": np.array([4, 0, 2]),
            "terminals": [0, 0, 1],
        }
    )
    assert data.actions.dtype == np.int32 and data.actions.tolist() == [4, 0, 2]


def test_boxes_are_scaled():
    low, high = np.array([-2.0, 0.0]), np.array([2.0, 10.0])
    actions = np.array([[-2.0, 10.0], [0.0, 5.0], [1.0, 0.0]])
    np.testing.assert_allclose(scaled_actions(actions, low, high), [[-1, 1], [0, 0], [0.5, -1]])
    with pytest.raises(TwinaxError, match=r"d: actions is 11 at row 1; it must lie in the box from \[-2\. +0\.\]"):
        scaled_actions(np.array([[0.0, 1.0], [0.0, 11.0]]), low, high, "d")
    with pytest.raises(TwinaxError, match="low must be less than high"):
        scaled_actions(actions, low, low)


def test_an_open_end():
    data = regular(trajectories(LENGTHS))
    terminals = data.terminals.copy()
    terminals[-1] = False
    data = dataclasses.replace(data, terminals=terminals, source="x.npz")
    assert data.open_end and data.ends[-1] == data.rows - 1 and data.lengths.tolist() == list(LENGTHS)
    with pytest.raises(TwinaxError, match="x.npz: terminals is 0 at row 13, the last one; goals are drawn up to"):
        data.require_goals()


def test_without_rewards_nothing_of_the_task_is_left():
    data = regular(trajectories(LENGTHS), masks=np.arange(14) % 2)
    free = data.reward_free()
    assert free.rewards is None and (free.masks == 1).all() and "rewards" not in free.arrays()
    assert (data.masks == np.arange(14) % 2).all()
    data.require_rewards()
    with pytest.raises(TwinaxError, match="rewards is missing"):
        free.require_rewards()


def test_the_first_rows():
    parts = trajectories(LENGTHS)
    some = regular(parts).first(7)
    assert some.lengths.tolist() == [4, 1, 2] and not some.open_end
    for rows, lengths in ((5, [4]), (4, [3]), (6, [4]), (7, [4, 1]), (10, [4, 1, 2])):
        assert compact(parts).first(rows).lengths.tolist() == lengths
    with pytest.raises(TwinaxError, match="15 rows were asked for, but there are 14"):
        regular(parts).first(15)


# Normalisation


def varied(rows=1000, seed=0):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(rows, 4)) * [1, 1e-3, 50, 0] + [0, 1, 1e4, 0.1]).astype(np.float32)
    return Dataset(x, np.zeros((rows, 1)), np.arange(rows) % 10 == 9, next_observations=np.roll(x, -1, 0))


def test_statistics_are_those_of_the_formulas(monkeypatch):
    data = varied()
    x = data.observations.astype(np.float64)
    whole = Normaliser.fit([data.observations], "normal", data.observations)
    np.testing.assert_allclose(whole.shift, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(whole.scale[:3], 1 / np.sqrt(x.var(0)[:3] + 1e-8), rtol=1e-9)
    assert whole.scale.dtype == np.float64 and whole.scale[3] == 1.0  # never changes
    bounded = data.normalised("bounded")
    low, high = bounded.observation_range()
    np.testing.assert_allclose(low[:3], -1, atol=1e-5)
    np.testing.assert_allclose(high[:3], 1, atol=1e-5)
    assert low[3] == high[3] == 0
    expected = 2 * (x[:, :3] - x.min(0)[:3]) / (x.max(0) - x.min(0))[:3] - 1
    np.testing.assert_allclose(bounded.observations[:, :3], expected, atol=1e-6)
    np.testing.assert_array_equal(bounded.next_observations, np.roll(bounded.observations, -1, 0))
    monkeypatch.setattr("twinax.mapped_files.CHUNK", 96)  # many chunks give the same
    chunked = Normaliser.fit(data.chunks(), "normal", data.observations)
    np.testing.assert_allclose(chunked.shift, whole.shift, rtol=1e-12)
    np.testing.assert_allclose(chunked.scale, whole.scale, rtol=1e-9)


def test_normal_observations_have_mean_0_and_variance_1():
    found = varied().normalised("normal").observations.astype(np.float64)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(0), [1, 0.995, 1, 0], atol=5e-3)  # 1e-8 is felt next to a variance of 1e-6
    assert not found[:, 3].any()  # it never changes


def test_statistics_are_shared_and_saved():
    first, second = varied(seed=0), varied(seed=1)
    normaliser = first.normalised("normal").normaliser
    assert normaliser is not None
    shared = second.normalised(normaliser)
    assert shared.normaliser is normaliser
    expected = (second.observations - normaliser.shift) * normaliser.scale
    np.testing.assert_allclose(shared.observations, expected, rtol=1e-6, atol=1e-6)
    again = Normaliser.from_arrays(normaliser.arrays())
    assert (
        again.kind == "normal" and (again.shift == normaliser.shift).all() and (again.scale == normaliser.scale).all()
    )
    assert set(tree.named_leaves(normaliser)) == {"shift", "scale"}  # what a checkpoint holds of it
    with pytest.raises(TwinaxError, match="statistics of a normalisation have no 'kind'"):
        Normaliser.from_arrays({"shift": np.zeros(1), "scale": np.ones(1)})
    with pytest.raises(TwinaxError, match="normalised already"):
        shared.normalised("normal")
    other = regular(trajectories((3,)))
    with pytest.raises(TwinaxError, match=r"statistics are for observations of shape \(4,\), but these have \(3,\)"):
        other.normalised(normaliser)
    with pytest.raises(TwinaxError, match="unknown kind of normalisation 'norml'; .* Did you mean 'normal'"):
        other.normalised("norml")


def test_compact_and_regular_rows_have_the_same_statistics():
    parts = trajectories(LENGTHS)
    one, other = (make(parts).normalised("normal").normaliser for make in (regular, compact))
    assert one is not None and other is not None
    np.testing.assert_allclose(one.shift, other.shift, rtol=1e-12)
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-12)


def test_normalising_in_every_framework():
    normaliser = Normaliser.fit([varied().observations], "bounded", varied().observations)
    x = varied(5).observations
    for array in (x, torch.from_numpy(x), jnp.asarray(x)):
        there = normaliser(array)
        assert type(there) is type(array) and str(there.dtype).endswith("float32")
        np.testing.assert_allclose(np.asarray(there), normaliser(x), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(normaliser.undo(there)), x, rtol=1e-5)
        batch = normaliser.batch({"observations": array, "actions": array, "value_goals": array})
        assert batch["actions"] is array and np.allclose(np.asarray(batch["value_goals"]), np.asarray(there))
    assert Normaliser.none()(x) is x and Normaliser.none().undo(x) is x


# Wrong rows


def fields():
    data = regular(trajectories(LENGTHS))
    names = ("observations", "next_observations", "actions", "rewards", "terminals", "masks", "truncations")
    return {name: np.array(getattr(data, name)) for name in names}


def at(name, index, value):
    def change(found):
        found[name] = found[name].astype(np.float64)
        found[name][index] = value

    return change


def put(name, value):
    return lambda found: found.update({name: value})


WRONG = {
    "observations is missing; there are actions, masks": lambda f: f.pop("observations"),
    "actions is missing; there are": lambda f: f.pop("actions"),
    "terminals is missing; there are": lambda f: f.pop("terminals"),
    "next_observations is missing; the regular layout has": lambda f: f.pop("next_observations"),
    "next_observations and valids are both given": put("valids", np.ones(14)),
    "observations has no rows": put("observations", np.zeros((0, 3))),
    "observations has shape (14,); it must be (rows, width)": put("observations", np.zeros(14)),
    "observations is nan at row 6; it must be finite": at("observations", (6, 1), np.nan),
    "observations is -inf at row 2; it must be finite": at("observations", (2, 0), -np.inf),
    "observations is inf at row 8; it must be finite": at("observations", (8, 0), 1e200),
    "next_observations is inf at row 13": at("next_observations", (13, 2), np.inf),
    "next_observations has shape (14, 2), but observations has (14, 3)": put("next_observations", np.zeros((14, 2))),
    "observations has dtype <U1; it must hold numbers": put("observations", np.full((14, 3), "x")),
    "observations has dtype object": put("observations", np.full((14, 3), None)),
    "rewards is nan at row 3; it must be finite": at("rewards", 3, np.nan),
    "rewards is inf at row 0": at("rewards", 0, np.inf),
    "rewards has shape (13,), but observations has 14 rows": put("rewards", np.zeros(13)),
    "rewards has shape (14, 2), but": put("rewards", np.zeros((14, 2))),
    "actions is 1.5 at row 9; it must lie in [-1, 1]": at("actions", (9, 1), 1.5),
    "actions is -1.01 at row 1; it must lie in": at("actions", (1, 0), -1.01),
    "actions is nan at row 5; it must be finite": at("actions", (5, 0), np.nan),
    "observations has shape (14, 0), so its rows are empty": put("observations", np.zeros((14, 0))),
    "observations has rows of different lengths": put("observations", [[1.0]] * 13 + [[1.0, 2.0]]),
    "next_observations is float32, but observations is uint8": put("observations", np.zeros((14, 3), np.uint8)),
    "actions has shape (14, 0); it must be (rows, width)": put("actions", np.zeros((14, 0))),
    "actions has shape (13, 2), but observations has 14 rows": put("actions", np.zeros((13, 2))),
    "actions has shape (), but observations has 14 rows": put("actions", np.zeros(())),
    "actions has shape (14,); it must be (rows, width), or (rows,) of integers": put("actions", np.zeros(14)),
    "actions is -2 at row 4; a discrete action is 0 or more": put("actions", np.where(np.arange(14) == 4, -2, 1)),
    "terminals is 2.0 at row 4; it must be 0 or 1": at("terminals", 4, 2),
    "terminals has shape (3,), but observations has 14 rows": put("terminals", np.zeros(3)),
    "truncations is 0.5 at row 7; it must be 0 or 1": at("truncations", 7, 0.5),
    "masks is -1.0 at row 8; it must be between 0 and 1": at("masks", 8, -1),
    "masks is nan at row 8; it must be finite": at("masks", 8, np.nan),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_rows_are_named(words):
    found = fields()
    WRONG[words](found)
    with pytest.raises(TwinaxError) as caught:
        from_arrays(found, source="file.npz")
    assert str(caught.value).startswith(f"file.npz: {words}") and "\n" not in str(caught.value)


def compact_fields(terminals, valids):
    rows = len(terminals)
    return {
        "observations": np.zeros((rows, 1)),
        "actions": np.zeros((rows, 1)),
        "terminals": terminals,
        "valids": valids,
    }


@pytest.mark.parametrize(
    ("terminals", "valids", "words"),
    [
        ([0, 1, 1, 0], [1, 1, 0, 1], "valids is 1 at row 3, the last one, but no row follows it"),
        ([0, 1, 1, 0], [1, 1, 0, 0], "terminals is 0 at row 3, the last one; it must be a final state"),
        ([0, 1, 1, 1], [1, 1, 0, 0], "the trajectory that ends at row 3 is empty: no step leads there"),
        ([1, 0, 1, 1], [0, 1, 1, 0], "the trajectory that ends at row 0 is empty"),
        ([0, 1, 0, 1], [1, 1, 1, 0], "terminals is 1 at row 1, but row 2 is no final state (valids is 1 there)"),
    ],
)
def test_wrong_compact_rows_are_named(terminals, valids, words):
    with pytest.raises(TwinaxError) as caught:
        from_arrays(compact_fields(terminals, valids))
    assert str(caught.value).startswith(words)


def test_rows_are_checked_in_chunks(monkeypatch):
    monkeypatch.setattr("twinax.mapped_files.CHUNK", 4)
    found = fields()
    found["observations"][11, 2] = np.nan
    with pytest.raises(TwinaxError, match="observations is nan at row 11"):
        from_arrays(found)
