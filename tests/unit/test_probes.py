"""Probe worlds: their values by recursion over every draw and action, and the mistakes that each of them exposes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import ops, tree
from twinax.envs import PROBES, Box, Control
from twinax.envs._probes import Aim, Endless, FarRestart, ProbeState, RandomEnd
from twinax.errors import TwinaxError

GAMMA = 0.9
NAMES = (
    "constant_reward",
    "seen_reward",
    "delayed_reward",
    "endless",
    "random_end",
    "far_restart",
    "choice",
    "aim",
)
CHANCES = (np.arange(40) + 0.5) / 40
"""Uniform draws in equal parts: the mean over them is exact for probabilities that are multiples of 1/40."""


def every_action(world):
    if isinstance(world.actions, Box):
        return np.linspace(-3, 3, 61)[:, None]
    return np.arange(world.actions.n, dtype=np.int32)


def starts(world):
    """What is seen at the beginning of an episode, over every draw."""
    return np.unique(world.observe(world.reset({"start": CHANCES[:, None]}))).tolist()


def outcomes(world, seen, action):
    """What follows, over every draw: rows of (reward, terminated, next observation)."""
    state = ProbeState(np.full((len(CHANCES), 1), seen))
    draws = dict.fromkeys(world.step_draws(1), CHANCES)
    moved = world.step(state, np.repeat(action[None], len(CHANCES), 0), draws)
    return list(zip(moved.reward, moved.terminated, world.observe(moved.state)[:, 0].tolist(), strict=True))


def solved(world, gamma):
    """The value of each observation that can be met, by recursion backwards from nothing."""
    table, waiting = {}, starts(world)
    while waiting:
        seen = waiting.pop()
        if seen not in table:
            table[seen] = [outcomes(world, seen, action) for action in every_action(world)]
            waiting += [after for rows in table[seen] for _, end, after in rows if not end]
    value = dict.fromkeys(table, 0.0)
    for _ in range(int(25 / (1 - gamma))):
        value = {
            seen: max(
                sum(r + gamma * (0 if end else value[after]) for r, end, after in rows) / len(rows) for rows in actions
            )
            for seen, actions in table.items()
        }
    return value


@pytest.mark.parametrize("gamma", [0.0, 0.5, GAMMA])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_a_recursion(name, gamma):
    world = PROBES[name]()
    assert isinstance(world, Control) and world.name == name and world.observation_size == 1
    for seen, value in solved(world, gamma).items():
        np.testing.assert_allclose(world.value(np.array([[seen]]), gamma), [value], atol=1e-9)


def test_values_follow_the_settings():
    for world in (RandomEnd(probability=0.1), RandomEnd(probability=1.0), FarRestart(toll=-2.0), Endless(time_limit=1)):
        for seen, value in solved(world, GAMMA).items():
            np.testing.assert_allclose(world.value(np.array([[seen]]), GAMMA), [value], atol=1e-9)


def test_there_are_no_other_probes():
    assert tuple(PROBES) == NAMES


def test_what_is_seen_first():
    sides = {"seen_reward": [-1, 1], "choice": [-1, 1], "aim": [-1, 1], "far_restart": [-1]}
    assert {name: starts(PROBES[name]()) for name in NAMES} == {name: sides.get(name, [0]) for name in NAMES}


def test_an_aim_beyond_its_bounds_is_an_aim_at_them():
    world, state = Aim(), ProbeState(np.array([[-1.0], [1.0]]))
    for action, bound in ((9.0, world.actions.high), (-9.0, world.actions.low)):
        rewards = [world.step(state, np.full((2, 1), a), {}).reward for a in (action, *bound)]
        np.testing.assert_array_equal(*rewards)


# Mistakes

MISTAKES = {
    None: {},
    "an end is bootstrapped through": {
        "constant_reward": 8.9,
        "seen_reward": 0.4,
        "delayed_reward": 8,
        "random_end": 6,
    },
    "a time limit is an end": {"endless": 6, "far_restart": 8},
    "the first observation after a restart is bootstrapped": {"far_restart": 15},
    "no discount": {"delayed_reward": 0.09, "random_end": 0.9},
    "two discounts": {"delayed_reward": 0.08, "random_end": 0.5},
    "a reward of the observation after it": {"seen_reward": 1.9},
    "an action of another step": {"choice": 1.9, "aim": 8.9},
    "actions between -1 and 1": {"aim": 0.24},
    "ends are noted one step late": {"delayed_reward": 8},
}
"""By how much at least each mistake spoils the value of a probe."""


def best(world, seen):
    if world.name == "choice":
        return (seen[:, 0] > 0).astype(np.int32)
    return 1.5 * seen if world.name == "aim" else np.zeros(len(seen), np.int32)


def played(world, mistake, steps=30):
    """The rows that a learner keeps while it plays well: (seen, reward, whether to bootstrap, next seen)."""
    rows = []
    # Every world has its own chances, in equal parts at each step.
    chances = [np.random.default_rng(t).permutation(CHANCES) for t in range(steps)]
    state, time, late = world.reset({"start": CHANCES[:, None]}), np.zeros(len(CHANCES), int), None
    for t in range(steps):
        seen = world.observe(state)
        action = best(world, -seen if mistake == "an action of another step" else seen)
        if mistake == "actions between -1 and 1":
            action = np.clip(action, -1, 1)
        moved = world.step(state, action, dict.fromkeys(world.step_draws(1), chances[t]))
        time += 1
        cut = ~moved.terminated & (time == world.time_limit)
        last, over = world.observe(moved.state), moved.terminated | cut
        state = ProbeState(np.where(over[:, None], world.reset({"start": CHANCES[::-1, None]}).seen, last))
        time = np.where(over, 0, time)
        ends = over if mistake == "a time limit is an end" else moved.terminated
        if mistake == "an end is bootstrapped through":
            ends = ends & False
        if mistake == "ends are noted one step late":
            ends, late = (ends & False) if late is None else late, ends
        following = world.observe(state) if mistake and "restart" in mistake else last
        beside = last if mistake and "reward of" in mistake else seen
        rows.append((beside[:, 0], moved.reward, ~ends, following[:, 0]))
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def learned(rows, gamma):
    """Observations and a table of their values whose every entry is the mean of its targets."""
    seen, reward, bootstrap, following = rows
    keys, places = np.unique(np.concatenate([seen, following]), return_inverse=True)
    here, there = places[: len(seen)], places[len(seen) :]
    count = np.bincount(here, minlength=len(keys))
    table = np.zeros(len(keys))
    for _ in range(400):
        table = np.bincount(here, reward + gamma * bootstrap * table[there], len(keys)) / np.maximum(count, 1)
    return keys[count > 0], table[count > 0]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_exposed(mistake):
    for name in NAMES:
        world = PROBES[name]()
        gamma = {"no discount": 1.0, "two discounts": GAMMA**2}.get(mistake, GAMMA)
        if gamma == 1 and world.time_limit:
            continue
        seen, value = learned(played(world, mistake), gamma)
        miss = np.abs(world.value(seen[:, None], GAMMA) - value).max()
        if name in MISTAKES[mistake]:
            assert miss > MISTAKES[mistake][name], (mistake, name, miss)
        elif mistake is None:
            assert miss < 1e-9, (name, miss)


# Frameworks


def test_frameworks_agree(double_precision, quick_compilation):
    """Every probe, in JAX as one program."""
    rng = np.random.default_rng(0)
    worlds = {name: PROBES[name]() for name in NAMES}
    draws = {"start": rng.random((6, 1)), "end": rng.random((4, 6))}
    actions = {
        name: rng.uniform(-3, 3, (4, 6, 1)) if isinstance(world, Aim) else rng.integers(world.actions.n, size=(4, 6))
        for name, world in worlds.items()
    }

    def run(draws, actions):
        def walk(world, actions):
            def turn(state, given):
                action, end = given
                moved = world.step(state, action, dict.fromkeys(world.step_draws(6), end))
                return moved.state, (moved, world.observe(moved.state))

            return ops.scan(turn, world.reset({"start": draws["start"]}), (actions, draws["end"]))

        return {name: walk(world, actions[name]) for name, world in worlds.items()}

    def check(found, wanted, kind):
        for leaf, value in tree.named_leaves(found).items():
            dtype = "bool" if leaf.endswith("terminated") else kind
            assert str(value.dtype).removeprefix("torch.") == dtype and value.shape == wanted[leaf].shape, leaf
            if not isinstance(value, jax.ShapeDtypeStruct):
                atol = 1e-12 if kind == "float64" else 1e-5
                np.testing.assert_allclose(np.asarray(value), wanted[leaf], rtol=0, atol=atol, err_msg=leaf)

    wanted = tree.named_leaves(run(draws, actions))
    check(jax.jit(run)(*jtu.tree_map(jnp.asarray, (draws, actions))), wanted, "float64")
    check(run(*jtu.tree_map(torch.from_numpy, (draws, actions))), wanted, "float64")
    single = jtu.tree_map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, (draws, actions))
    check(run(*single), wanted, "float32")
    check(run(*jtu.tree_map(torch.from_numpy, single)), wanted, "float32")
    check(jax.eval_shape(run, *jtu.tree_map(jnp.asarray, single)), wanted, "float32")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Endless(time_limit=0), "the time limit of endless is 0; it must be at least 1"),
        (lambda: FarRestart(time_limit=-3), "the time limit of far_restart is -3; it must be at least 1"),
        (lambda: RandomEnd(probability=0.0), "the probability of an end in random_end is 0.0; it must be above 0"),
        (lambda: RandomEnd(probability=1.5), "random_end is 1.5; it must be above 0 and at most 1"),
    ],
)
def test_wrong_settings_are_refused(make, words):
    with pytest.raises(TwinaxError) as caught:
        make()
    assert words in str(caught.value) and "\n" not in str(caught.value)
