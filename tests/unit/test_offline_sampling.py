"""Samplers against slow loops, and histograms of goals against their closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from offline_rows import compact, regular, trajectories
from scipy import stats

from twinax import tree
from twinax.errors import TwinaxError
from twinax.noise import generator_draws, numpy_draws
from twinax.offline import (
    GOAL_PRESETS,
    BatchOptions,
    Dataset,
    GoalMixture,
    GoalOptions,
    batch_draws,
    goal_batch_draws,
    goal_draws,
    goal_preset,
    goal_rows,
    random_crop,
    sample_batch,
    sample_goal_batch,
)
from twinax.offline._goals import geometric_future, uniform_future

LENGTHS = (4, 1, 7, 2)
PARTS = trajectories(LENGTHS)
IMAGES = trajectories(LENGTHS, image=(5, 6, 2))
WHERE = [(k, t) for k, steps in enumerate(LENGTHS) for t in range(steps)]
"""Trajectory and time of the n-th row that may be drawn."""


def place(data, row):
    """Trajectory and time of a row."""
    return WHERE[data.drawable.tolist().index(row)]


def assert_even(counts, probabilities):
    """A chi-squared test; what has no probability never comes."""
    counts, probabilities = np.asarray(counts, float), np.asarray(probabilities, float)
    assert counts[probabilities == 0].sum() == 0
    some = probabilities > 0
    if some.sum() == 1:
        return
    expected = probabilities[some] / probabilities.sum() * counts.sum()
    assert stats.chisquare(counts[some], expected).pvalue > 1e-3


# Batches


@pytest.mark.parametrize("make", [regular, compact])
def test_a_batch_is_what_the_trajectories_say(make):
    data = make(PARTS)
    options = BatchOptions(batch_size=64, next_actions=True)
    batch = sample_batch(data.arrays(), options, numpy_draws(batch_draws(options, data.size), 0, 0))
    assert len(set(batch["rows"].tolist())) > 10
    for b, row in enumerate(batch["rows"]):
        k, t = place(data, row)
        part, last = PARTS[k], t == LENGTHS[k] - 1
        np.testing.assert_array_equal(batch["observations"][b], part["states"][t])
        np.testing.assert_array_equal(batch["next_observations"][b], part["states"][t + 1])
        np.testing.assert_array_equal(batch["actions"][b], part["actions"][t])
        assert batch["rewards"][b] == part["rewards"][t] and batch["masks"][b] == 1
        np.testing.assert_array_equal(batch["next_actions"][b], part["actions"][t if last else t + 1])
        assert batch["next_action_masks"][b] == (not last)


def test_next_actions_of_the_released_agents_cross_into_the_next_trajectory():
    data = regular(PARTS)
    draws = {"rows": np.arange(14, dtype=np.int32)}
    options = BatchOptions(batch_size=14, next_actions=True, faithful=True)
    batch = sample_batch(data.arrays(), options, draws)
    following = np.minimum(np.arange(14) + 1, 13)
    np.testing.assert_array_equal(batch["next_actions"], data.actions[following])
    fixed = sample_batch(data.arrays(), BatchOptions(batch_size=14, next_actions=True), draws)
    differs = (fixed["next_actions"] != batch["next_actions"]).any(1)
    assert np.flatnonzero(differs).tolist() == [3, 4, 11]  # ends; at the very last row both repeat


def test_rows_are_drawn_evenly():
    options = BatchOptions(batch_size=7000)
    for make in (regular, compact):
        data = make(PARTS)
        draws = numpy_draws(batch_draws(options, data.size), 3, 0)
        rows = sample_batch(data.arrays(), options, draws)["rows"]
        assert_even(np.bincount(rows, minlength=data.rows), np.isin(np.arange(data.rows), data.drawable))


def test_a_batch_has_only_what_there_is():
    data = regular(PARTS).reward_free()
    batch = sample_batch(data.arrays(), BatchOptions(batch_size=3), {"rows": np.array([0, 3, 5])})
    assert set(batch) == {"rows", "observations", "actions", "next_observations", "masks"}


# Images


@pytest.mark.parametrize("frames", [1, 2, 3, 6])
@pytest.mark.parametrize("make", [regular, compact])
def test_frames_are_stacked_up_to_the_start_of_the_trajectory(make, frames):
    data = make(IMAGES)
    options = BatchOptions(batch_size=14, frame_stack=frames)
    batch = sample_batch(data.arrays(), options, {"rows": np.arange(14, dtype=np.int32)})
    for b, (k, t) in enumerate(WHERE):
        states = IMAGES[k]["states"]
        for name, now in (("observations", t), ("next_observations", t + 1)):
            expected = np.concatenate([states[max(now - back, 0)] for back in range(frames - 1, -1, -1)], -1)
            np.testing.assert_array_equal(batch[name][b], expected)
            assert batch[name].dtype == np.uint8


def test_goals_are_stacked_once():
    data = regular(IMAGES)
    options, goals = BatchOptions(batch_size=14, frame_stack=3), GoalOptions()
    batch = sample_goal_batch(data.arrays(), options, goals, numpy_draws(goal_batch_draws(options, goals, 14), 0, 0))
    assert batch["value_goals"].shape == batch["actor_goals"].shape == batch["observations"].shape == (14, 5, 6, 6)


def test_crops_are_pads_and_cuts():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (49, 5, 6, 2)).astype(np.uint8)
    offsets = np.stack(np.meshgrid(np.arange(7), np.arange(7), indexing="ij"), -1).reshape(49, 2).astype(np.int32)
    found = random_crop(images, offsets, 3)
    assert found.dtype == np.uint8
    for image, (down, right), crop in zip(images, offsets, found, strict=True):
        padded = np.pad(image, ((3, 3), (3, 3), (0, 0)), mode="edge")
        np.testing.assert_array_equal(crop, padded[down : down + 5, right : right + 6])


def test_one_coin_for_the_batch_and_the_same_offsets_for_both():
    data = regular(IMAGES)
    options = BatchOptions(batch_size=14, augment=0.5)
    spec = batch_draws(options, 14)
    assert spec["augment"].shape == () and spec["augment_offsets"].shape == (14, 2)
    assert spec["augment_offsets"].high == 7
    draws = numpy_draws(spec, 0, 0)
    plain = sample_batch(data.arrays(), BatchOptions(batch_size=14), draws)
    for coin, moved in ((0.49, True), (0.51, False)):
        batch = sample_batch(data.arrays(), options, {**draws, "augment": np.float32(coin)})
        for name in ("observations", "next_observations"):
            expected = random_crop(plain[name], draws["augment_offsets"], 3) if moved else plain[name]
            np.testing.assert_array_equal(batch[name], expected)


def test_goals_have_their_own_coin_and_offsets():
    data = regular(IMAGES)
    options, goals = BatchOptions(batch_size=14, augment=0.5), GOAL_PRESETS["hiql"]
    draws = numpy_draws(goal_batch_draws(options, goals, 14), 0, 0)
    off = {**draws, "augment": np.float32(0.9), "goal_augment": np.float32(0.9)}
    plain = sample_goal_batch(data.arrays(), options, goals, off)
    batch = sample_goal_batch(data.arrays(), options, goals, {**off, "goal_augment": np.float32(0.1)})
    np.testing.assert_array_equal(batch["observations"], plain["observations"])
    for name in ("value_goals", "actor_goals", "low_actor_goals", "high_actor_goals", "high_actor_targets"):
        np.testing.assert_array_equal(batch[name], random_crop(plain[name], draws["goal_augment_offsets"], 3))


def test_only_images_are_cropped():
    options = BatchOptions(batch_size=4, augment=0.5)
    with pytest.raises(TwinaxError, match=r"observations has shape \(4, 3\); only images"):
        sample_batch(regular(PARTS).arrays(), options, numpy_draws(batch_draws(options, 14), 0, 0))


# Which rows are goals

N = 20_000


def rows_and_ends(row, end):
    return np.full(N, row, np.int32), np.full(N, end, np.int32)


def uniforms(seed):
    return np.random.default_rng(seed).random(N)


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_geometric_goals_pile_up_at_the_end(gamma, start):
    found = geometric_future(*rows_and_ends(10, 17), uniforms(0), gamma, start)
    expected = np.zeros(18)
    for k in range(400):
        expected[min(10 + start + k, 17)] += (1 - gamma) * gamma**k
    assert_even(np.bincount(found, minlength=18), expected)


def test_geometric_goals_are_numpys():
    """The distribution of NumPy's own geometric numbers, which begin at 1."""
    found = geometric_future(*rows_and_ends(0, 10**6), uniforms(1), 0.99, 1)
    theirs = np.random.default_rng(2).geometric(0.01, N)
    assert stats.ks_2samp(found, theirs).pvalue > 1e-3


def test_even_goals_have_ends_of_half_weight():
    found = uniform_future(*rows_and_ends(10, 17), uniforms(3))
    expected = np.zeros(18)
    expected[11:18] = [0.5, 1, 1, 1, 1, 1, 0.5]
    assert_even(np.bincount(found, minlength=18), expected)
    assert (uniform_future(*rows_and_ends(17, 17), uniforms(3)) == 17).all()
    assert (uniform_future(*rows_and_ends(16, 17), uniforms(3)) == 17).all()


def test_even_goals_are_those_of_the_formula_halves_to_even():
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 1000, 4000).astype(np.int32)
    ends = rows + rng.integers(0, 50, 4000).astype(np.int32)
    uniform = np.where(rng.random(4000) < 0.5, rng.integers(1, 64, 4000) / 64, rng.random(4000))  # with many ties
    first = np.minimum(rows + 1, ends)
    expected = np.round(uniform * first + (1 - uniform) * ends).astype(int)
    ties = (uniform * first + (1 - uniform) * ends) % 1 == 0.5
    assert ties.sum() > 20
    np.testing.assert_array_equal(uniform_future(rows, ends, uniform), expected)


def test_float32_is_enough_for_rows_of_many_digits():
    begin = 30_000_000  # beyond the integers that float32 holds
    found = uniform_future(*rows_and_ends(begin, begin + 5), uniforms(5).astype(np.float32)) - begin
    assert_even(np.bincount(found, minlength=6), [0, 0.5, 1, 1, 1, 0.5])
    found = geometric_future(*rows_and_ends(begin, begin + 3), uniforms(6).astype(np.float32), 0.5, 1) - begin
    assert_even(np.bincount(found, minlength=4), [0, 0.5, 0.25, 0.25])


def mixture_law(data, row, mixture, gamma):
    """Probability of each row as a goal, by the words of the definition."""
    k, t = place(data, row)
    end = LENGTHS[k] - 1
    later = np.zeros(data.rows)
    if mixture.geometric:
        for g in range(3000):
            later[row - t + min(t + mixture.start + g, end)] += (1 - gamma) * gamma**g
    elif t >= end - 1:
        later[row - t + end] = 1
    else:
        for j in range(t + 1, end + 1):
            later[row - t + j] = (0.5 if j in (t + 1, end) else 1) / (end - t - 1)
    anywhere = np.isin(np.arange(data.rows), data.drawable) / data.size
    share = mixture.trajectory / (1 - mixture.current + 1e-6)
    law = (1 - mixture.current) * (share * later + (1 - share) * anywhere)
    law[row] += mixture.current
    return law


MIXTURES = {
    **{name: GOAL_PRESETS[name].value for name in ("crl_infonce", "hilp", "hiql", "qrl", "gcbc")},
    "all": GoalMixture(0.3, 0.3, 0.4, geometric=False),
    "all from 0": GoalMixture(0.3, 0.3, 0.4, geometric=True, start=0),
    "current": GoalMixture(1.0, 0.0, 0.0),
}


@pytest.mark.parametrize("make", [regular, compact])
@pytest.mark.parametrize("name", MIXTURES)
def test_goals_have_the_mixture_of_their_definition(name, make):
    data, mixture, gamma = make(PARTS), MIXTURES[name], 0.8
    for index in (0, 4, 6, 10, 13):
        row = int(data.drawable[index])
        draws = numpy_draws(goal_draws("g", N, data.size), 7, index)
        goals = goal_rows(data.arrays(), np.full(N, row, np.int32), mixture, gamma, draws, "g")
        law = mixture_law(data, row, mixture, gamma)
        law[law < 1e-5] = 0  # one random goal in a million is not for a histogram
        counts = np.bincount(goals, minlength=data.rows)
        rare = counts[law == 0].sum()
        assert rare <= 1
        counts[law == 0] = 0
        assert_even(counts, law)


def test_relabelled_rewards_and_masks():
    data = regular(PARTS, masks=np.zeros(14))
    for negative in (True, False):
        for relabel in (True, False):
            goals = GoalOptions(value=GoalMixture(0.5, 0.5, 0.0), negative=negative, relabel=relabel)
            options = BatchOptions(batch_size=200)
            draws = numpy_draws(goal_batch_draws(options, goals, 14), 0, 0)
            batch = sample_goal_batch(data.arrays(), options, goals, draws)
            reached = (batch["value_goals"] == batch["observations"]).all(1)
            assert 0.4 < reached.mean() < 0.8
            np.testing.assert_array_equal(batch["relabeled_rewards"], reached - (1.0 if negative else 0.0))
            np.testing.assert_array_equal(batch["relabeled_masks"], 1.0 - reached)
            for name in ("rewards", "masks"):
                assert batch[f"relabeled_{name}"].dtype == np.float32
                assert np.array_equal(batch[name], batch[f"relabeled_{name}"]) == relabel


def test_goals_of_values_and_actors_are_independent():
    data = regular(trajectories((1000,)))
    options, goals = BatchOptions(batch_size=4000), GoalOptions(value=GoalMixture(0, 0, 1), actor=GoalMixture(0, 0, 1))
    batch = sample_goal_batch(data.arrays(), options, goals, numpy_draws(goal_batch_draws(options, goals, 1000), 0, 0))
    names = ("observations", "value_goals", "actor_goals")
    correlation = np.corrcoef([batch[name][:, 0] for name in names])
    assert np.abs(correlation - np.eye(3)).max() < 0.06


def test_subgoals():
    """Low: k ahead. High: the actor's goal with a target before it, or a random goal with a target k ahead."""
    data = regular(PARTS)
    goals = GoalOptions(actor=GoalMixture(0.0, 0.6, 0.4), subgoal_steps=2)
    options = BatchOptions(batch_size=3000)
    spec = goal_batch_draws(options, goals, 14)
    assert "high_current" not in spec
    draws = numpy_draws(spec, 0, 0)
    batch = sample_goal_batch(data.arrays(), options, goals, draws)
    picked = draws["high_choice"] < 0.4
    assert 0.37 < picked.mean() < 0.43
    number = {tuple(state): row for row, state in enumerate(data.observations.tolist())}
    for b, row in enumerate(batch["rows"].tolist()):
        end = int(data.ends[row])
        low, high, target = (
            number[tuple(batch[name][b].tolist())]
            for name in ("low_actor_goals", "high_actor_goals", "high_actor_targets")
        )
        assert low == min(row + 2, end)
        if picked[b]:
            assert high == draws["high_random"][b] and target == min(row + 2, end)
        else:
            u = float(draws["high_future"][b])
            assert high == round(u * min(row + 1, end) + (1 - u) * end) and target == min(row + 2, high)


def test_presets():
    table = {
        "crl_infonce": ((0, 1, 0, True), (0, 1, 0, False)),
        "td_infonce": ((0, 1, 0, True), (0, 1, 0, False)),
        "hilp": ((0, 0.625, 0.375, True), (0, 1, 0, False)),
        "gcivl": ((0.2, 0.5, 0.3, True), (0, 1, 0, False)),
        "gciql": ((0.2, 0.5, 0.3, True), (0, 1, 0, False)),
        "hiql": ((0.2, 0.5, 0.3, True), (0, 1, 0, False)),
        "crl": ((0, 1, 0, True), (0, 1, 0, False)),
        "qrl": ((0, 0, 1, False), (0, 1, 0, False)),
        "gcbc": ((0, 1, 0, False), (0, 1, 0, False)),
    }
    assert set(table) == set(GOAL_PRESETS)
    for name, (value, actor) in table.items():
        for mixture, wanted in ((goal_preset(name).value, value), (goal_preset(name).actor, actor)):
            assert (mixture.current, mixture.trajectory, mixture.random, mixture.geometric) == wanted
            assert mixture.start == 1
    assert goal_preset("hiql").subgoal_steps == 25
    with pytest.raises(TwinaxError, match="unknown preset of goals 'hlip'; .* Did you mean 'hilp'"):
        goal_preset("hlip")


# Frameworks


@pytest.mark.parametrize(("name", "make"), [("gcivl", compact), ("hiql", regular)])
def test_batches_are_the_same_in_every_framework(name, make):
    data, goals = make(IMAGES), goal_preset(name)
    options = BatchOptions(batch_size=32, next_actions=True, frame_stack=2, augment=1.0)
    draws = numpy_draws(goal_batch_draws(options, goals, data.size), 5, 2)
    wanted = tree.named_leaves(sample_goal_batch(data.arrays(), options, goals, draws))
    in_jax = jax.jit(lambda arrays, draws: sample_goal_batch(arrays, options, goals, draws))
    found = {
        "jax": in_jax(data.on(jnp.zeros(())), jtu.tree_map(jnp.asarray, draws)),
        "torch": sample_goal_batch(
            data.on(torch.zeros(())), options, goals, {k: torch.from_numpy(np.array(v)) for k, v in draws.items()}
        ),
    }
    for result in found.values():
        assert set(result) == set(wanted)
        for key, value in result.items():
            np.testing.assert_array_equal(np.asarray(value), wanted[key], err_msg=key)
            assert str(value.dtype).removeprefix("torch.") == str(wanted[key].dtype), key


def test_draws_of_pytorchs_own_generator_do_as_well():
    data, goals, options = regular(PARTS), goal_preset("hilp"), BatchOptions(batch_size=16, next_actions=True)
    draws = generator_draws(goal_batch_draws(options, goals, 14), torch.Generator().manual_seed(0))
    batch = sample_goal_batch(data.on(torch.zeros(())), options, goals, draws)
    assert batch["value_goals"].shape == (16, 3) and batch["rows"].max() < 14


def test_mapped_rows_can_be_drawn(tmp_path):
    np.save(tmp_path / "x.npy", regular(PARTS).observations)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    plain = regular(PARTS)
    data = Dataset(mapped, plain.actions, plain.terminals, next_observations=mapped)
    assert isinstance(data.observations, np.memmap)
    batch = sample_batch(data.arrays(), BatchOptions(batch_size=2), {"rows": np.array([3, 1])})
    np.testing.assert_array_equal(batch["observations"], plain.observations[[3, 1]])


# Wrong options


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (BatchOptions, {"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        (BatchOptions, {"frame_stack": 0}, "frame_stack is 0; it must be at least 1"),
        (BatchOptions, {"pad": -1}, "pad is -1; it must be at least 0"),
        (BatchOptions, {"augment": 1.5}, "augment is 1.5; it must be between 0 and 1"),
        (
            GoalMixture,
            {"current": 0.5},
            "current, trajectory and random are 0.5, 1.0 and 0.0; they must be probabilities",
        ),
        (GoalMixture, {"current": -0.5, "random": 0.5}, "they must be probabilities that add up to 1"),
        (GoalMixture, {"start": -1}, "start is -1; it must be at least 0"),
        (GoalOptions, {"gamma": 1.0}, "gamma is 1.0; it must be between 0 and 1, neither of them"),
        (GoalOptions, {"gamma": 0.0}, "gamma is 0.0"),
        (GoalOptions, {"subgoal_steps": -1}, "subgoal_steps is -1; it must be at least 0"),
    ],
)
def test_wrong_options_are_refused(kind, options, words):
    with pytest.raises(TwinaxError) as caught:
        kind(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
