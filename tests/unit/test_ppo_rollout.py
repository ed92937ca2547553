"""Playing on: clocks, limits, restarts, the true last observation, and pools of starts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

from twinax import ops, tree
from twinax.envs._control import Box, Control, Discrete, Moved
from twinax.noise import Draw, numpy_draws
from twinax.ppo import begin, play, to_world
from twinax.ppo._episodes import episode_draws, play_episodes
from twinax.ppo._rollout import started


@tree.record
class Place:
    at: object


@dataclass(frozen=True)
class Line(Control):
    """Walk right from a random place below 1; action 1 ends it. The reward is the place before the step."""

    time_limit: int = 4
    name = "line"
    observation_size = 1
    actions = Discrete(2)
    privileged = True

    @property
    def critic_size(self):
        return 2

    def reset_draws(self, worlds):
        return {"start": Draw((worlds,))}

    def reset(self, draws):
        return Place(draws["start"])

    def step(self, state, action, draws):
        return Moved(Place(state.at + 1), state.at, action == 1, {"place": state.at})

    def observe(self, state):
        return state.at[:, None]

    def observe_critic(self, state):
        return ops.stack([state.at, -state.at], -1)


def never(observation, noise):
    zero = np.zeros(len(observation), np.int64)
    return zero, np.zeros(len(observation)), zero


def given(world, steps, worlds, seed=0):
    spec = {"policy": Draw((steps, worlds, 2)), "reset/start": Draw((steps, worlds))}
    return numpy_draws(spec, seed, 0)


def test_a_time_limit_truncates_and_the_next_observation_is_the_true_one():
    world, steps, worlds = Line(), 10, 3
    first = {"start": np.array([0.1, 0.2, 0.3])}
    draws = given(world, steps, worlds)
    playing, happened = play(world, never, begin(world, first), draws)
    place = np.array(first["start"])
    for t in range(steps):
        np.testing.assert_allclose(happened.observation[t, :, 0], place)
        np.testing.assert_allclose(happened.critic[t], np.stack([place, -place], -1))
        np.testing.assert_allclose(happened.reward[t], place)
        # Before a restart, whatever comes after it.
        np.testing.assert_allclose(happened.next_observation[t, :, 0], place + 1)
        np.testing.assert_allclose(happened.next_critic[t, :, 0], place + 1)
        last = (t + 1) % 4 == 0
        assert (happened.truncated[t] == last).all() and not happened.terminated.any()
        assert (happened.length[t] == t % 4 + 1).all()
        place = draws["reset/start"][t] if last else place + 1
    np.testing.assert_allclose(happened.total[3], happened.reward[:4].sum(0))
    np.testing.assert_allclose(happened.total[4], happened.reward[4])
    assert (playing.clock == 2).all()
    np.testing.assert_allclose(playing.total, happened.reward[8:].sum(0), rtol=1e-6)


def test_an_end_at_the_limit_is_an_end():
    def third(observation, noise):
        action = (observation[:, 0] > 3).astype(np.int64)  # at the fourth step
        return action, np.zeros(len(action)), action

    world = Line()
    _, happened = play(world, third, begin(world, {"start": np.array([0.5])}), given(world, 5, 1))
    assert happened.terminated[:, 0].tolist() == [False, False, False, True, False]
    assert not happened.truncated.any()


def test_worlds_without_a_limit_go_on():
    world = Line(time_limit=0)
    _, happened = play(world, never, begin(world, {"start": np.array([0.5])}), given(world, 30, 1))
    assert not happened.ended.any() and happened.length[-1] == 30


def test_restarts_come_from_the_pool_by_pick():
    world, steps, worlds = Line(), 8, 2
    pool = started(world, {"start": np.array([0.0, 0.25, 0.5, 0.75])})
    pick = np.random.default_rng(0).integers(0, 4, (steps, worlds))
    draws = {"policy": np.zeros((steps, worlds, 2)), "pick": pick}
    _, happened = play(world, never, begin(world, {"start": np.array([0.1, 0.9])}), draws, pool)
    np.testing.assert_allclose(happened.observation[4, :, 0], np.array([0.0, 0.25, 0.5, 0.75])[pick[3]])


def test_episodes_end_once():
    world = Line()
    draws = numpy_draws(episode_draws(world, 5, 4), 3, 0)

    def act(observation):
        return (observation[:, 0] > 2).astype(np.int64)

    found = play_episodes(world, act, draws, 4)
    start = draws["reset/start"]
    np.testing.assert_allclose(found["returns"], 3 * start + 3, rtol=1e-6)  # at start, + 1 and + 2
    np.testing.assert_allclose(found["lengths"], 3)
    np.testing.assert_allclose(found["terms"]["place"], found["returns"] / 3)
    assert not found["survived"].any()


def test_points_become_actions():
    box = Box((-1.0, 0.0), (1.0, 4.0))
    point = np.array([[-5.0, 1.0], [0.5, 9.0]])
    np.testing.assert_allclose(to_world(box, point, False), [[-1, 1], [0.5, 4]])
    np.testing.assert_allclose(to_world(box, np.zeros((1, 2)), True), [[0, 2]])
    np.testing.assert_allclose(to_world(box, np.full((1, 2), 50.0), True), [[1, 4]])


def test_bad_spaces():
    for bad, words in (
        (lambda: Box((0.0,), (0.0,)), "entry 0 of an action is bounded by 0.0 and 0.0"),
        (lambda: Box((0.0,), (1.0, 2.0)), "1 and 2 entries"),
        (lambda: Box((), ()), "0 entries"),
        (lambda: Discrete(0), "0 choices"),
    ):
        with pytest.raises(Exception, match=words):
            bad()


def test_what_a_step_has_seen_is_not_asked_for_again():
    @dataclass(frozen=True)
    class Knowing(Line):
        asked = 0

        def step(self, state, action, draws):
            moved = super().step(state, action, draws)
            return dataclasses.replace(moved, seen=Line.observe_both(self, moved.state))

        def observe_both(self, state):
            Knowing.asked += 1
            return super().observe_both(state)

    steps, worlds = 6, 3
    draws = given(Line(), steps, worlds)
    begins = {"start": draws["reset/start"][0]}
    _, plain = play(Line(), never, begin(Line(), begins), draws)
    _, known = play(Knowing(), never, begin(Knowing(), begins), draws)
    for name in ("observation", "critic", "next_observation", "next_critic"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(known, name))
    # Of the first states, and of those that each step begins anew.
    assert Knowing.asked == 1 + steps
