"""The ring of frames against a slow one that never forgets: gaps, ends, eligible steps, windows, and draws."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twinax import tree
from twinax.envs import TreasureHunt
from twinax.errors import TwinaxError
from twinax.iqn import Replay, ReplayOptions, sample
from twinax.iqn._replay import reprioritise

HABITS = {"store_done": False, "clear_gap": False, "returns": False}
SORREL = {**HABITS, "ring": False}


# The slow replay: everything that was ever written, in a list


@dataclasses.dataclass
class Slot:
    """One slot at the time it was written."""

    view: list[int]
    action: int = 0
    reward: float = 0.0
    done: bool = False
    step: bool = True


class SlowReplay:
    """One agent in one world. Slot k of a ring holds the last entry whose place in the list is k modulo the memory."""

    def __init__(self, options: ReplayOptions, view: int):
        self.options, self.view = options, view
        self.log: list[Slot] = []

    @property
    def oldest(self):
        return max(0, len(self.log) - self.options.buffer_size)

    def before(self, place):
        """What lay in the slot that the entry at `place` takes: nothing in the first lap."""
        earlier = place - self.options.buffer_size
        return self.log[earlier] if earlier >= 0 else Slot([0] * self.view)

    def history(self):
        """What an agent is shown as the frames before its first."""
        gap = range(len(self.log), len(self.log) + self.options.frame_stack - 1)
        return [[0] * self.view if self.options.clear_gap else self.before(place).view for place in gap]

    def add(self, views, actions, rewards):
        for _ in range(self.options.frame_stack - 1):
            old = Slot([0] * self.view) if self.options.clear_gap else self.before(len(self.log))
            self.log.append(dataclasses.replace(old, done=False, step=False))
        last = len(actions) - 1
        for k, (view, action, reward) in enumerate(zip(views, actions, rewards, strict=True)):
            done = k == last and self.options.store_done
            self.log.append(Slot(list(view), int(action), float(reward), done))

    def transition(self, place):
        """(window, next window, action, return, discount) of an entry, or None if it must not be drawn."""
        o = self.options
        ahead = o.n_step if o.returns else 1
        window = range(place - o.frame_stack + 1, place + 1)
        if window[0] < self.oldest or any(self.log[k].done for k in window[:-1]):
            return None
        if o.store_done and not self.log[place].step:
            return None
        total, discount = 0.0, 1.0
        for k in range(place, place + ahead):
            if k >= len(self.log):
                return None
            total += discount * self.log[k].reward
            discount *= o.gamma
            if self.log[k].done:
                return self.views(window), None, self.log[place].action, total, 0.0
        if place + ahead >= len(self.log):
            return None
        discount = o.gamma**o.n_step
        return self.views(window), self.views([k + ahead for k in window]), self.log[place].action, total, discount

    def views(self, places):
        return [self.log[k].view for k in places]

    def slots(self):
        """Transitions by slot, for those that may be drawn."""
        places = range(self.oldest, len(self.log))
        found = {place % self.options.buffer_size: self.transition(place) for place in places}
        return {slot: transition for slot, transition in found.items() if transition is not None}


AGENTS, WORLDS, VIEW = 2, 2, 3


def episodes(turns, count, seed=0):
    """Frames without zeros, so that a blank one is seen; rewards that small floats hold."""
    rng = np.random.default_rng(seed)
    shape = (turns, AGENTS, WORLDS)
    for _ in range(count):
        views = rng.integers(1, 200, (*shape, VIEW)).astype(np.uint8)
        yield views, rng.integers(0, 4, shape).astype(np.int32), rng.integers(-8, 9, shape).astype(np.float32)


def filled(options, turns, count, seed=0):
    """The replay and the slow ones, by agent and world, after some episodes."""
    replay = Replay.empty(options, AGENTS, WORLDS, VIEW)
    slow = {(a, w): SlowReplay(options, VIEW) for a in range(AGENTS) for w in range(WORLDS)}
    for views, actions, rewards in episodes(turns, count, seed):
        history = replay.history(options)
        assert history.shape == (AGENTS, WORLDS, options.frame_stack - 1, VIEW) and history.dtype == np.uint8
        for (a, w), one in slow.items():
            assert history[a, w].tolist() == one.history()
            one.add(views[:, a, w].tolist(), actions[:, a, w], rewards[:, a, w])
        replay = replay.add_episode(options, views, actions, rewards)
    return replay, slow


def assert_eligible(replay, slow, options):
    allowed = replay.eligible(options)
    for (a, w), one in slow.items():
        assert set(np.flatnonzero(allowed[a, w]).tolist()) == set(one.slots())
    return allowed


def assert_batch(batch, slow, options):
    """Every row of a batch is the slow replay's transition of that slot."""
    for a, row in enumerate(batch.index):
        for b, index in enumerate(row):
            transition = slow[a, index // options.buffer_size].slots()[index % options.buffer_size]
            views, next_views, action, total, discount = transition
            assert batch.views[a, b].tolist() == views and batch.actions[a, b] == action
            assert batch.returns[a, b] == pytest.approx(total, rel=1e-5, abs=1e-5)
            assert batch.discounts[a, b] == pytest.approx(discount, rel=1e-6)
            if next_views is not None:  # after an end nothing is read of it
                assert batch.next_views[a, b].tolist() == next_views


SWITCHES = st.fixed_dictionaries({name: st.booleans() for name in HABITS})


@settings(max_examples=60)
@given(
    frames=st.integers(1, 5),
    n_step=st.integers(1, 4),
    turns=st.integers(1, 7),
    spare=st.integers(0, 20),
    count=st.integers(1, 7),
    switches=st.one_of(st.just({}), st.just(HABITS), SWITCHES),
    seed=st.integers(0, 1000),
)
def test_the_ring_is_the_slow_replay(frames, n_step, turns, spare, count, switches, seed):
    memory = turns + frames - 1 + spare
    options = ReplayOptions(buffer_size=memory, frame_stack=frames, n_step=n_step, gamma=0.9, **switches)
    replay, slow = filled(options, turns, count, seed)
    written = count * (turns + frames - 1)
    assert replay.head == written % memory and replay.size == min(written, memory)
    allowed = assert_eligible(replay, slow, options).reshape(AGENTS, -1)
    most = int(allowed.sum(1).min())
    if not most:
        return
    uniform = np.random.default_rng(seed).random(allowed.shape, np.float32)
    batch, ready = sample(replay, options, uniform, most)
    assert ready and (most == allowed.shape[1] or not sample(replay, options, uniform, most + 1)[1])
    assert all(len(set(row.tolist())) == most for row in batch.index)
    assert np.take_along_axis(allowed, batch.index, 1).all() and (batch.weights == 1).all()
    assert_batch(batch, slow, options)


def test_a_ring_by_hand():
    options = ReplayOptions(buffer_size=8, frame_stack=3, n_step=2, gamma=0.5)
    replay = Replay.empty(options, 1, 1, 1)

    def add(replay, *frames):
        shape = (len(frames), 1, 1)
        views, rewards = np.array(frames, np.uint8).reshape(*shape, 1), np.array(frames, np.float32).reshape(shape)
        return replay.add_episode(options, views, np.ones(shape, np.int32), rewards)

    replay = add(replay, 1, 2, 3)
    assert replay.views[0, 0, :, 0].tolist() == [0, 0, 1, 2, 3, 0, 0, 0]
    assert np.flatnonzero(replay.done).tolist() == [4] and np.flatnonzero(replay.real).tolist() == [2, 3, 4]
    assert np.flatnonzero(replay.eligible(options)).tolist() == [2, 3, 4]
    assert (int(replay.head), int(replay.size)) == (5, 5)
    # The second episode goes round: slots 5 and 6 are the gap, then 7, 0, 1.
    replay = add(replay, 4, 5, 6)
    assert replay.views[0, 0, :, 0].tolist() == [5, 6, 1, 2, 3, 0, 0, 4]
    assert np.flatnonzero(replay.done).tolist() == [1, 4]
    # Of the first episode only its last step has a whole history left.
    assert np.flatnonzero(replay.eligible(options)).tolist() == [0, 1, 4, 7]
    batch, _ = sample(replay, options, np.arange(8, dtype=np.float32)[None] / 8, 4)
    assert batch.index.tolist() == [[0, 1, 4, 7]]
    assert batch.views[0, :, :, 0].tolist() == [[0, 4, 5], [4, 5, 6], [1, 2, 3], [0, 0, 4]]
    assert batch.returns.tolist() == [[5 + 3.0, 6.0, 3.0, 4 + 2.5]]
    assert batch.discounts.tolist() == [[0.0, 0.0, 0.0, 0.25]]
    assert batch.next_views[0, 3, :, 0].tolist() == [4, 5, 6]


def test_the_gap_is_the_history_that_an_agent_saw():
    """Windows from the ring are those that were acted on, blank or stale."""
    for switches in ({}, {"clear_gap": False}):
        options = ReplayOptions(buffer_size=11, frame_stack=4, n_step=1, **switches)
        replay, _ = filled(options, 5, 6)
        history = replay.history(options)
        views, actions, rewards = next(episodes(5, 1, seed=9))
        replay = replay.add_episode(options, views, actions, rewards)
        first = (int(replay.head) - 5) % 11
        assert replay.eligible(options)[:, :, first].all()
        uniform = np.where(np.arange(22) % 11 == first, 0.1, 0.9)[None].repeat(2, 0)
        batch, _ = sample(replay, options, uniform, 2)
        for a in range(AGENTS):
            for w in range(WORLDS):
                np.testing.assert_array_equal(batch.views[a, w, :-1], history[a, w])
                np.testing.assert_array_equal(batch.views[a, w, -1], views[0, a, w])
        assert bool(history.any()) == bool(switches)


def test_habits_of_the_original():
    """No ends, so phantom steps in the gaps are drawn, and an episode's last step is followed by a gap."""
    options = ReplayOptions(buffer_size=30, frame_stack=3, n_step=3, gamma=0.9, **HABITS)
    replay, slow = filled(options, 5, 6)
    assert not replay.done.any()
    allowed = replay.eligible(options)
    gaps = ~replay.real & allowed
    assert gaps[0, 0].sum() >= 6  # two for each episode in the ring
    assert replay.views[gaps].any(), "after the first lap a gap holds old frames"
    uniform = np.random.default_rng(0).random((AGENTS, 60))
    batch, _ = sample(replay, options, uniform, int(allowed[0].sum()))
    assert_batch(batch, slow, options)
    # One reward, the discount of three turns, and the very next frame
    np.testing.assert_allclose(batch.discounts, 0.9**3, rtol=1e-6)
    a, slots = np.arange(AGENTS)[:, None], batch.index % 30
    np.testing.assert_array_equal(batch.returns, replay.rewards[a, batch.index // 30, slots])
    np.testing.assert_array_equal(batch.next_views[:, :, :-1], batch.views[:, :, 1:])
    ended = ReplayOptions(buffer_size=30, frame_stack=3, n_step=3, gamma=0.9)
    assert filled(ended, 5, 6)[0].eligible(ended).sum() < allowed.sum()


# The original's buffer: slots in a row


class SlowRow:
    """One agent in one world: slots that are overwritten, a write position, and a count that lags behind it."""

    def __init__(self, options: ReplayOptions, view: int):
        self.options = options
        self.slots = [Slot([0] * view) for _ in range(options.buffer_size)]
        self.head, self.size = 0, 0

    def add(self, views, actions, rewards):
        o = self.options
        for k in range(o.frame_stack - 1):  # a gap is skipped, whatever lies there; it counts as one
            if o.clear_gap:
                self.slots[(self.head + k) % o.buffer_size] = Slot([0] * len(views[0]))
        self.head = (self.head + o.frame_stack - 1) % o.buffer_size
        self.size = min(self.size + 1, o.buffer_size)
        for k, (view, action, reward) in enumerate(zip(views, actions, rewards, strict=True)):
            done = o.store_done and k == len(actions) - 1
            self.slots[self.head] = Slot(list(view), int(action), float(reward), done)
            self.head = (self.head + 1) % o.buffer_size
            self.size = min(self.size + 1, o.buffer_size)

    def draws(self):
        """Every draw, by the slot of its step: (window, next window, action, reward, discount, weight)."""
        o, found = self.options, {}
        for start in range(max(1, self.size - o.frame_stack - 1)):
            window = [self.slots[start + k] for k in range(o.frame_stack)]
            following = [self.slots[start + k + 1] for k in range(o.frame_stack)]
            step = window[-1]
            discount = 0.0 if step.done else o.gamma**o.n_step
            weight = 0.0 if any(slot.done for slot in window[:-1]) else 1.0
            looks = [slot.view for slot in window], [slot.view for slot in following]
            found[start + o.frame_stack - 1] = (*looks, step.action, step.reward, discount, weight)
        return found


def in_a_row(options, turns, count, seed=0):
    """The replay and the original's buffers, by agent and world, after some episodes."""
    replay = Replay.empty(options, AGENTS, WORLDS, VIEW)
    slow = {(a, w): SlowRow(options, VIEW) for a in range(AGENTS) for w in range(WORLDS)}
    for views, actions, rewards in episodes(turns, count, seed):
        for (a, w), one in slow.items():
            one.add(views[:, a, w].tolist(), actions[:, a, w], rewards[:, a, w])
        replay = replay.add_episode(options, views, actions, rewards)
    return replay, slow


def assert_row(replay, slow, options, turns, count):
    """All draws that there are, and no other; each is the one of the original."""
    one = slow[0, 0]
    assert (int(replay.head), int(replay.size)) == (one.head, one.size)
    wanted = [
        sorted(slot + w * options.buffer_size for w in range(WORLDS) for slot in slow[a, w].draws()) for a in (0, 1)
    ]
    allowed = replay.eligible(options).reshape(AGENTS, -1)
    assert [np.flatnonzero(row).tolist() for row in allowed] == wanted
    assert len(wanted[0]) == WORLDS * options.available(turns, count)
    batch, ready = sample(replay, options, np.random.default_rng(0).random(allowed.shape), len(wanted[0]))
    assert ready and not sample(replay, options, np.zeros(allowed.shape), len(wanted[0]) + 1)[1]
    for a in range(AGENTS):
        assert sorted(batch.index[a].tolist()) == wanted[a]
        for b, index in enumerate(batch.index[a].tolist()):
            world, slot = divmod(index, options.buffer_size)
            views, next_views, action, reward, discount, weight = slow[a, world].draws()[slot]
            assert batch.views[a, b].tolist() == views and batch.next_views[a, b].tolist() == next_views
            assert (batch.actions[a, b], batch.returns[a, b]) == (action, reward)
            assert (batch.discounts[a, b], batch.weights[a, b]) == (pytest.approx(discount, rel=1e-6), weight)


@pytest.mark.parametrize("switches", [{}, {"store_done": True}, {"store_done": True, "clear_gap": True}])
@pytest.mark.parametrize("frames", [1, 2, 3, 5])
def test_every_draw_is_one_of_the_original_buffer(frames, switches):
    """Small memories after each of ten episodes: not full, exactly full, and gone round in many places."""
    turns, states = 4, set()
    for memory in (turns + frames, 15, 20, 21):
        options = ReplayOptions(buffer_size=memory, frame_stack=frames, n_step=3, gamma=0.9, **{**SORREL, **switches})
        for count in range(1, 11):
            replay, slow = in_a_row(options, turns, count, seed=memory)
            assert_row(replay, slow, options, turns, count)
            written = count * (turns + 1)
            states.add("full" if written == memory else "part" if written < memory else "round")
            spanned = [draw[-1] for draw in slow[0, 0].draws().values()]
            states |= {"learned from"} if any(spanned) else set()
            states |= {"spans an end"} if not all(spanned) else set()
    ends = {"spans an end"} if frames > 1 and switches else set()
    assert states == {"part", "full", "round", "learned from"} | ends


@settings(max_examples=40)
@given(
    frames=st.integers(1, 5),
    turns=st.integers(1, 7),
    spare=st.integers(0, 20),
    count=st.integers(1, 9),
    store_done=st.booleans(),
    clear_gap=st.booleans(),
)
def test_a_row_of_slots_is_the_original_buffer(frames, turns, spare, count, store_done, clear_gap):
    memory = max(turns + frames - 1, frames + 1) + spare
    switches = {**SORREL, "store_done": store_done, "clear_gap": clear_gap}
    options = ReplayOptions(buffer_size=memory, frame_stack=frames, n_step=2, gamma=0.9, **switches)
    assert_row(*in_a_row(options, turns, count), options, turns, count)


def test_the_draws_of_the_original_are_even():
    """Every order of the random numbers, so every draw there is: each pair of windows comes equally often."""
    options = ReplayOptions(buffer_size=6, frame_stack=2, n_step=3, **SORREL)
    replay = Replay.empty(options, 1, 1, 1)
    for first in (1, 4):
        views = np.arange(first, first + 3, dtype=np.uint8).reshape(3, 1, 1, 1)
        replay = replay.add_episode(options, views, np.zeros((3, 1, 1), np.int32), np.zeros((3, 1, 1), np.float32))
    # Slot 2 is written next, so its window joins the newest frame to one of the first episode.
    assert replay.views[0, 0, :, 0].tolist() == [5, 6, 2, 3, 0, 4] and (replay.head, replay.size) == (2, 6)
    counts: dict[tuple[int, ...], int] = {}
    for order in itertools.permutations(range(6)):
        batch, _ = sample(replay, options, np.array([order], np.float32) / 6, 2)
        pair = tuple(sorted(batch.index[0].tolist()))
        counts[pair] = counts.get(pair, 0) + 1
    assert counts == {(1, 2): 240, (1, 3): 240, (2, 3): 240}


def test_the_range_of_the_original_is_never_empty():
    """It draws its first window as soon as there is a step; with one slot less nothing would lie behind it."""
    options = ReplayOptions(buffer_size=6, frame_stack=5, **SORREL)
    replay, slow = in_a_row(options, 1, 1)
    assert int(replay.size) == 2 and sorted(slow[0, 0].draws()) == [4]
    assert_row(replay, slow, options, 1, 1)
    assert ReplayOptions(buffer_size=5, frame_stack=5, **SORREL).available(1, 9) == 0
    assert ReplayOptions(buffer_size=6, frame_stack=5, **SORREL).available(1, 0) == 0


def test_frames_take_a_quarter_at_most():
    for world in (
        TreasureHunt(),
        TreasureHunt(variant="gem_food_bone"),
        TreasureHunt(observation="rgb"),
        TreasureHunt(radius=0),
    ):
        replay = Replay.empty(ReplayOptions(alpha=0.5), 5, 2, world.view_cells)
        slots = 5 * 2 * 1024
        floats = 4 * world.observation_size
        assert replay.views.nbytes / slots <= floats / 4
        if world.radius:  # with everything else that a slot holds
            assert sum(x.nbytes for x in jtu.tree_leaves(replay)) / slots <= floats / 4
    codes, floats = Replay.empty(ReplayOptions(), 1, 1, 25).views.nbytes / 1024, 4 * TreasureHunt().observation_size
    assert (codes, floats) == (25, 500)


# Draws


def test_even_draws_are_even():
    options = ReplayOptions(buffer_size=12, frame_stack=2, n_step=1)
    replay, _ = filled(options, 5, 3)
    allowed = replay.eligible(options).reshape(AGENTS, -1)
    rng, rounds, counts = np.random.default_rng(0), 3000, np.zeros(allowed.shape)
    for _ in range(rounds):
        batch, _ = sample(replay, options, rng.random(allowed.shape, np.float32), 4)
        np.add.at(counts, (np.arange(AGENTS)[:, None], batch.index), 1)
    assert not counts[~allowed].any()
    for a in range(AGENTS):
        share = 4 / allowed[a].sum()
        assert np.abs(counts[a, allowed[a]] - rounds * share).max() < 5 * np.sqrt(rounds * share * (1 - share))


PRIORITISED = ReplayOptions(buffer_size=13, frame_stack=2, n_step=2, gamma=0.9, alpha=0.6, beta=0.5)


def weighed(options=PRIORITISED, seed=0):
    """A replay whose steps have very different priorities."""
    replay, slow = filled(options, 5, 4)
    priority = np.random.default_rng(seed).uniform(0.05, 3.0, replay.priority.shape).astype(np.float32)
    return dataclasses.replace(replay, priority=priority), slow


def test_prioritised_draws_are_in_proportion():
    replay, slow = weighed()
    allowed = replay.eligible(PRIORITISED).reshape(AGENTS, -1)
    assert not allowed.all()
    wanted = np.where(allowed, replay.priority.reshape(AGENTS, -1), 0)
    wanted /= wanted.sum(1, keepdims=True)
    rng, rounds, counts = np.random.default_rng(0), 3000, np.zeros(allowed.shape)
    for _ in range(rounds):
        batch, ready = sample(replay, PRIORITISED, rng.random((AGENTS, 8), np.float32), 8)
        np.add.at(counts, (np.arange(AGENTS)[:, None], batch.index), 1)
    assert ready and not counts[~allowed].any()
    # One draw from each of eight equal parts varies less than eight free ones.
    assert (np.abs(counts - 8 * rounds * wanted) <= 5 * np.sqrt(8 * rounds * wanted)).all()
    assert_batch(batch, slow, PRIORITISED)
    # Weights: (number of steps * probability) ** -beta, the largest of a batch being 1
    chance = np.take_along_axis(wanted, batch.index, 1) * allowed.sum(1, keepdims=True)
    expected = chance**-PRIORITISED.beta
    np.testing.assert_allclose(batch.weights, expected / expected.max(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_draws_are_steps_as_well(dtype):
    """Numbers so near 0 and 1 that rounding reaches the ends of the running sum."""
    replay, _ = weighed()
    replay = dataclasses.replace(replay, priority=replay.priority.astype(dtype))
    allowed = replay.eligible(PRIORITISED).reshape(AGENTS, -1)
    for u in (0.0, 2.0**-24, 1 - 2.0**-24, 1.0):
        for batch_size in (1, 7, 8):
            batch, _ = sample(replay, PRIORITISED, np.full((AGENTS, batch_size), u, dtype), batch_size)
            assert np.take_along_axis(allowed, batch.index, 1).all()
            assert (batch.weights > 0).all() and (batch.weights.max(1) == 1).all()


def test_steps_without_priority_are_not_drawn_even_at_the_end():
    """The first slot is a gap, the last were never written: no draw ends there, or spoils the weights of others."""
    options = dataclasses.replace(PRIORITISED, buffer_size=40)
    replay, _ = filled(options, 5, 4)
    batch, ready = sample(replay, options, np.array([[0.0, 1.0], [0.5, 1.0]], np.float32), 2)
    assert ready and np.take_along_axis(replay.eligible(options).reshape(AGENTS, -1), batch.index, 1).all()
    np.testing.assert_array_equal(batch.weights, 1.0)  # fresh steps are alike


def test_too_few_steps_are_not_ready_and_weigh_nothing():
    for options in (
        ReplayOptions(buffer_size=20, frame_stack=3, n_step=2),
        dataclasses.replace(PRIORITISED, buffer_size=20),
    ):
        empty = Replay.empty(options, AGENTS, WORLDS, VIEW)
        shape = (AGENTS, 6 if options.alpha else 40)
        batch, ready = sample(empty, options, np.full(shape, 0.5, np.float32), 6)
        assert not ready and not batch.weights.any()
        some, _ = filled(options, 2, 1)
        batch, ready = sample(some, options, np.random.default_rng(0).random(shape, np.float32), 6)
        assert not ready and np.isfinite(batch.weights).all()


def test_new_steps_have_the_largest_priority_of_their_agent():
    replay, _ = weighed()
    priority = replay.priority.copy()
    priority[0], priority[1] = 0.25, 4.0
    replay = dataclasses.replace(replay, priority=priority)
    replay = replay.add_episode(PRIORITISED, *next(episodes(5, 1, seed=3)))
    newest = (int(replay.head) - 1 - np.arange(5)) % 13
    assert (replay.priority[0][:, newest] == 1.0).all()  # at least 1: small errors do not make new steps rare
    assert (replay.priority[1][:, newest] == 4.0).all()
    assert (replay.priority[:, :, (int(replay.head) - 6) % 13] == 0).all()  # the gap


def test_priorities_follow_the_errors():
    replay, _ = weighed()
    before = replay.priority.copy()
    index = np.array([[0, 5, 5, 25], [3, 3, 3, 13]], np.int32)
    errors = np.array([[1.0, -2.0, 0.5, 0.0], [0.1, 0.3, 0.2, 4.0]], np.float32)
    after = reprioritise(replay, PRIORITISED, index, errors).priority.reshape(AGENTS, -1)
    before = before.reshape(AGENTS, -1)
    for a, found in enumerate(({0: 1.0, 5: 2.0, 25: 0.0}, {3: 0.3, 13: 4.0})):
        for slot, error in found.items():
            assert after[a, slot] == pytest.approx((error + 1e-6) ** 0.6, rel=1e-5)
        others = [k for k in range(26) if k not in found]
        np.testing.assert_array_equal(after[a, others], before[a, others])
    even, _ = filled(ReplayOptions(buffer_size=12, frame_stack=2), 5, 2)
    assert (
        even.priority is None
        and reprioritise(even, ReplayOptions(buffer_size=12, frame_stack=2), index, errors) is even
    )


# Frameworks


@pytest.mark.parametrize(
    "options",
    [
        ReplayOptions(buffer_size=17, frame_stack=3, n_step=2),
        PRIORITISED,
        ReplayOptions(buffer_size=17, frame_stack=3, **SORREL),
    ],
    ids=["even", "prioritised", "sorrel"],
)
def test_the_replay_is_the_same_in_every_framework(options, double_precision):
    blocks = list(episodes(6, 4, seed=5))
    stacked = tuple(np.stack(parts) for parts in zip(*blocks, strict=True))
    rng = np.random.default_rng(1)
    uniform = rng.random((AGENTS, 6 if options.alpha else WORLDS * options.buffer_size))
    errors = rng.normal(size=(AGENTS, 6))

    def run(replay, blocks, uniform, errors):
        histories = []
        for k in range(4):
            histories.append(replay.history(options))
            replay = replay.add_episode(options, *(part[k] for part in blocks))
        batch, ready = sample(replay, options, uniform, 6)
        replay = reprioritise(replay, options, batch.index, errors)
        again, _ = sample(replay, options, 1 - uniform, 6)
        return replay, batch, ready, again, histories

    def start():
        replay = Replay.empty(options, AGENTS, WORLDS, VIEW)
        return jtu.tree_map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, replay)

    arguments = (stacked, uniform, errors)
    wanted = tree.named_leaves(run(start(), *arguments))
    found = {
        "jax": jax.jit(run)(*jtu.tree_map(jnp.asarray, (start(), *arguments))),
        "torch": run(*jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), (start(), *arguments))),
    }
    for result in found.values():
        for name, value in tree.named_leaves(result).items():
            np.testing.assert_allclose(np.asarray(value), wanted[name], rtol=1e-12, err_msg=name)
            assert str(value.dtype).removeprefix("torch.") == str(np.asarray(wanted[name]).dtype), name


# Wrong options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"buffer_size": 0}, "buffer_size is 0; it must be at least 1"),
        ({"frame_stack": 0}, "frame_stack is 0"),
        ({"n_step": 0}, "n_step is 0"),
        ({"gamma": 1.1}, "gamma is 1.1; it must be between 0 and 1"),
        ({"gamma": -0.1}, "gamma is -0.1"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"alpha": -1.0}, "alpha is -1.0; it must be between 0 and 1"),
        ({"alpha": 1000.0}, "alpha is 1000.0; it must be between 0 and 1"),  # priorities would leave single precision
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": float("inf")}, "alpha is inf"),
        ({"beta": 1.5}, "beta is 1.5"),
        ({"beta": None}, "beta is None; it must be a number"),
        ({"buffer_size": 30.5}, "buffer_size is 30.5; it must be a whole number"),
        ({"n_step": "3"}, "n_step is '3'; it must be a whole number"),
        ({"frame_stack": True}, "frame_stack is True; it must be a whole number"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(TwinaxError) as caught:
        ReplayOptions(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
