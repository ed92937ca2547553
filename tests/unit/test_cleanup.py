"""Cleanup: each rule by hand, a slow game of plain loops beside it, and the same game in every framework."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

import twinax as tx
from twinax import conf, noise
from twinax.envs import Cleanup
from twinax.envs._cleanup import AGENT, APPLE, CLEAN_BEAM, GRASS, POLLUTION, RIVER, ZAP_BEAM, ZAPPED, Commons
from twinax.envs.sprites import render
from twinax.envs.world import EMPTY, WALL
from twinax.errors import TwinaxError, UnknownName
from twinax.iqn import Learners, Players, ReplayOptions, play

UP, DOWN, LEFT, RIGHT, CLEAN, ZAP = range(6)
SMALL = Cleanup(height=10, width=7, num_agents=2, radius=1, river_rows=3, orchard_rows=2)
"""Rows 1 to 3 are river, 4 to 6 sand, 7 and 8 grass; columns 1 to 5."""


def cell(world: Cleanup, row: int, column: int) -> int:
    return (row + world.margin) * world.stride + column + world.margin


def scene(world: Cleanup, *places, facing=(), pollution=(), apples=()) -> Commons:
    """One world by hand: agents, and what lies on the map, by row and column."""
    cells = world.land.copy()
    for code, some in ((POLLUTION, pollution), (APPLE, apples)):
        cells[[cell(world, *where) for where in some]] = code
    none = np.zeros((1, world.num_agents), np.int32)
    where = np.array([[cell(world, *place) for place in places]], np.int32)
    return Commons(cells[None], where, np.array([facing], np.int32) if len(facing) else none, fired=none, out=none)


def act(world: Cleanup, state: Commons, agent: int, *actions: int):
    total = 0.0
    for action in actions:
        state, reward = world.act(state, agent, np.array([action], np.int32))
        total += float(reward[0])
    return state, total


def where(world: Cleanup, state: Commons, agent: int) -> tuple[int, int]:
    row, column = divmod(int(state.places[0, agent]), world.stride)
    return row - world.margin, column - world.margin


def code(world: Cleanup, state: Commons, row: int, column: int) -> int:
    return int(world.picture(state)[0, row, column])


def numbers(spec, seed: int, *lead: int) -> dict[str, np.ndarray]:
    """Uniform draws for a specification, with further axes in front."""
    rng = np.random.default_rng(seed)
    return {key: rng.random((*lead, *draw.shape), np.float32) for key, draw in spec.items()}


def everywhere(world: Cleanup, value: float) -> dict[str, np.ndarray]:
    return {"spread": np.full((1, world.height - 2, world.width - 2), value, np.float32)}


# The map


def test_river_above_and_orchard_below():
    state = SMALL.reset(numbers(SMALL.reset_draws(3), 0))
    ground = SMALL.picture(dataclasses.replace(state, cells=state.cells))[0]
    agents = ground >= AGENT
    assert agents.sum() == 2
    rows = np.repeat([WALL, *[RIVER] * 3, *[EMPTY] * 3, *[GRASS] * 2, WALL], SMALL.width).reshape(SMALL.height, -1)
    rows[:, [0, -1]] = WALL
    np.testing.assert_array_equal(np.where(agents, rows, ground), rows)
    assert len({tuple(places) for places in state.places}) == 3, "worlds start alike"


def test_names_are_sprites_and_every_code_looks_different_to_a_network():
    assert len(SMALL.names) == len(SMALL.codebook) == AGENT + 4
    render(np.arange(len(SMALL.names))[None], SMALL.names)
    assert len({tuple(row) for row in SMALL.codebook[EMPTY:]}) == len(SMALL.names) - 2  # a wall is like the outside
    assert SMALL.worth[APPLE] == 1 and SMALL.worth.sum() == 1


def test_initial_pollution():
    for chance, level in ((0.0, 0.0), (1.0, 1.0)):
        world = dataclasses.replace(SMALL, initial_pollution=chance)
        state = world.reset(numbers(world.reset_draws(2), 0))
        np.testing.assert_array_equal(world.pollution(state), level)


# Walking


def test_walls_and_agents_block_and_cost_nothing():
    state = scene(SMALL, (4, 1), (4, 2))
    for action in (LEFT, RIGHT):
        after, reward = act(SMALL, state, 0, action)
        assert where(SMALL, after, 0) == (4, 1) and reward == 0
        assert after.facing[0, 0] == action, "a blocked move turns the agent"
    after, _ = act(SMALL, state, 0, UP, UP, UP, UP, UP)
    assert where(SMALL, after, 0) == (1, 1), "the river can be entered, its upper wall cannot"


def test_an_apple_is_eaten_once():
    state = scene(SMALL, (6, 3), (4, 1), apples=[(7, 3)])
    after, reward = act(SMALL, state, 0, DOWN)
    assert reward == 1 and where(SMALL, after, 0) == (7, 3)
    after, reward = act(SMALL, after, 0, DOWN, UP)
    assert reward == 0
    after, _ = act(SMALL, after, 0, UP)
    assert code(SMALL, after, 7, 3) == GRASS


# Beams


def test_the_clean_beam_takes_three_cells_ahead():
    dirty = [(row, column) for row in (1, 2, 3) for column in range(1, 6)]
    state = scene(SMALL, (4, 3), (6, 1), pollution=dirty)
    after, reward = act(SMALL, state, 0, CLEAN)
    assert reward == 0
    gone = {place for place in dirty if after.cells[0, cell(SMALL, *place)] == RIVER}
    assert gone == {(1, 3), (2, 3), (3, 3)}
    away, _ = act(SMALL, scene(SMALL, (4, 3), (6, 1), facing=(DOWN, UP), pollution=dirty), 0, CLEAN)
    assert SMALL.pollution(away)[0] == 1
    far, _ = act(SMALL, scene(SMALL, (5, 3), (6, 1), pollution=dirty), 0, CLEAN)
    assert far.cells[0, cell(SMALL, 1, 3)] == POLLUTION, "the fourth cell is out of reach"


def test_beams_pass_over_agents_and_end_at_walls():
    state = scene(SMALL, (4, 3), (3, 3), pollution=[(2, 3), (3, 3)])
    after, _ = act(SMALL, state, 0, CLEAN)
    assert SMALL.pollution(after)[0] == 0, "also below an agent"
    for length in (1, 3, 6):
        world = dataclasses.replace(SMALL, beam_length=length)
        after, _ = act(world, scene(world, (2, 5), (6, 1), facing=(RIGHT, UP)), 0, ZAP)
        assert not np.any(world.show(after) == ZAP_BEAM), "neither on the wall nor behind it"


def test_a_beam_longer_than_the_world_ends_at_its_wall():
    world = dataclasses.replace(SMALL, beam_length=10**9)
    assert world.beams.shape == (4 * len(world.land), 10)
    after, _ = act(world, scene(world, (8, 3), (8, 5), pollution=[(1, 3), (3, 3), (3, 4)]), 0, CLEAN)
    assert world.pollution(after)[0] == pytest.approx(1 / 15)


def test_a_beam_is_seen_until_its_agent_acts_again():
    state, _ = act(SMALL, scene(SMALL, (4, 3), (4, 4), facing=(UP, LEFT)), 0, CLEAN)
    assert [code(SMALL, state, row, 3) for row in (4, 3, 2, 1)] == [AGENT + UP, *[CLEAN_BEAM] * 3]
    assert np.sum(SMALL.view(state, 1) == CLEAN_BEAM) == 1, "agents nearby see it"
    state = SMALL.begin_turn(state, everywhere(SMALL, 0.99))
    state, _ = act(SMALL, state, 1, ZAP)
    assert code(SMALL, state, 2, 3) == CLEAN_BEAM and code(SMALL, state, 4, 2) == ZAP_BEAM
    assert code(SMALL, state, 4, 3) == ZAPPED, "agents are above beams"
    after, _ = act(SMALL, state, 0, UP)
    assert not np.any(SMALL.picture(after) == CLEAN_BEAM)


def test_who_is_zapped_loses_three_turns_and_is_not_hit_again_meanwhile():
    state = scene(SMALL, (5, 1), (5, 3), facing=(RIGHT, UP), apples=[(5, 4)])
    state, reward = act(SMALL, state, 0, ZAP)
    assert reward == 0 and state.out.tolist() == [[0, 3]]
    for left in (2, 1, 0):
        state, reward = act(SMALL, state, 1, RIGHT)
        assert (where(SMALL, state, 1), reward, state.facing[0, 1]) == ((5, 3), 0, UP)
        assert state.out[0, 1] == left
        if left:
            state, _ = act(SMALL, state, 0, ZAP)
            assert state.out[0, 1] == left, "hit while out"
    state, reward = act(SMALL, state, 1, RIGHT)
    assert where(SMALL, state, 1) == (5, 4) and reward == 1


def test_the_zap_beam_does_not_clean_and_the_clean_beam_does_not_zap():
    state = scene(SMALL, (4, 3), (3, 3), pollution=[(2, 3)])
    zapped, _ = act(SMALL, state, 0, ZAP)
    cleaned, _ = act(SMALL, state, 0, CLEAN)
    assert (SMALL.pollution(zapped)[0] > 0, zapped.out[0, 1]) == (True, 3)
    assert (SMALL.pollution(cleaned)[0] > 0, cleaned.out[0, 1]) == (False, 0)


# All at once


def together(world: Cleanup, state: Commons, *actions: int):
    after, rewards = world.act_together(state, [np.array([action], np.int32) for action in actions])
    return after, [float(reward[0]) for reward in rewards]


def test_at_once_the_first_gets_a_cell_and_nobody_enters_one_that_was_taken():
    state = scene(SMALL, (7, 2), (7, 4), apples=[(7, 3)])
    after, rewards = together(SMALL, state, RIGHT, LEFT)
    assert (where(SMALL, after, 0), where(SMALL, after, 1), rewards) == ((7, 3), (7, 4), [1, 0])
    after, _ = together(SMALL, scene(SMALL, (5, 2), (5, 3)), LEFT, LEFT)
    assert where(SMALL, after, 1) == (5, 3), "it was left, but only now"


def test_at_once_beams_hit_where_agents_stood_and_they_still_act():
    state = scene(SMALL, (5, 1), (5, 3), facing=(RIGHT, LEFT))
    after, _ = together(SMALL, state, ZAP, DOWN)
    assert where(SMALL, after, 1) == (6, 3) and after.out.tolist() == [[0, 3]]
    after, _ = together(SMALL, after, RIGHT, DOWN)
    assert where(SMALL, after, 1) == (6, 3) and after.out.tolist() == [[0, 2]]
    both, _ = together(SMALL, state, ZAP, ZAP)
    assert both.out.tolist() == [[3, 3]]


# River and orchard


def test_growth_falls_in_a_straight_line_and_ends_at_the_threshold():
    rates = Cleanup(apple_prob=0.1, threshold=0.5).growth  # 30 cells of river
    np.testing.assert_allclose(rates[:16], np.linspace(0.1, 0, 16), atol=1e-7)
    assert len(rates) == 31 and not rates[15:].any()


def test_the_level_is_read_from_the_map_in_every_turn():
    world = dataclasses.replace(SMALL, threshold=0.4, apple_prob=0.05, pollution_prob=0.0)
    draws = everywhere(world, 0.03)  # apples grow where the rate is above
    river = [(row, column) for row in (1, 2, 3) for column in range(1, 6)]
    for dirty, grows in ((0, True), (2, True), (3, False), (15, False)):
        state = world.begin_turn(scene(world, (4, 1), (4, 5), pollution=river[:dirty]), draws)
        assert bool(np.any(state.cells == APPLE)) == grows, f"{dirty} polluted cells"
        assert world.pollution(state)[0] == pytest.approx(dirty / 15)
    state = scene(world, (4, 3), (4, 5), pollution=[(1, 3), (2, 3), (3, 3)])
    assert not np.any(world.begin_turn(state, draws).cells == APPLE)
    state, _ = act(world, state, 0, CLEAN)
    assert np.sum(world.begin_turn(state, draws).cells == APPLE) == 10, "cleaning lets apples grow at once"


def test_pollution_comes_before_apples_and_both_stay():
    world = dataclasses.replace(SMALL, pollution_prob=0.04, apple_prob=0.05)
    state = world.begin_turn(scene(world, (4, 1), (4, 5), apples=[(8, 1)]), everywhere(world, 0.03))
    assert world.pollution(state)[0] == 1
    assert np.sum(state.cells == APPLE) == 1, "the river was dirty before anything could grow"
    again = world.begin_turn(state, everywhere(world, 0.99))
    np.testing.assert_array_equal(again.cells, state.cells)


def test_below_an_agent_pollution_appears_and_apples_do_not():
    state = scene(SMALL, (1, 1), (8, 5))
    clean = dataclasses.replace(SMALL, pollution_prob=0.0)
    assert np.sum(clean.begin_turn(state, everywhere(clean, 0.01)).cells == APPLE) == 9
    assert SMALL.begin_turn(state, everywhere(SMALL, 0.01)).cells[0, cell(SMALL, 1, 1)] == POLLUTION


def epoch(world: Cleanup, choose, worlds: int = 8, seed: int = 0, convert=lambda x: x, pictures: bool = True):
    """An epoch of `choose(agent, view, uniform)`, with draws in some framework."""
    turns = {**world.turn_draws(worlds), "player": noise.Draw((world.num_agents, worlds))}
    blank = np.zeros((worlds, 0, world.view_cells), np.uint8)
    draws = (numbers(world.reset_draws(worlds), seed), numbers(turns, seed + 1, world.turns), blank)

    def run(reset, turns, blank):
        history = [blank] * world.num_agents
        return play(
            world,
            lambda k, window, draw: choose(k, window[:, -1], draw["player"][k]),
            history,
            reset,
            turns,
            pictures,
        )

    return run, jtu.tree_map(convert, draws)


def test_apples_stop_unless_somebody_cleans():
    """The river fills within the epoch; where it stays clean the orchard goes on bearing."""
    seeker = Players(1, "seeker")
    late = {}
    for name, chance in (("dirty", 0.05), ("clean", 0.0)):
        world = Cleanup(turns=60, pollution_prob=chance)
        run, draws = epoch(
            world, lambda k, view, uniform, world=world: seeker.choose(world, view, uniform), pictures=False
        )
        late[name] = run(*draws).rewards[40:].sum((0, 1)).mean()
    assert late["clean"] > 10
    assert late["dirty"] < 0.5


def test_a_cleaner_keeps_the_level_down():
    """One agent walks along the river's lower bank and cleans; the level settles far below that without it."""
    world = Cleanup(turns=80, num_agents=1, river_rows=3)
    levels = {}
    for name, actions in (("idle", [DOWN]), ("cleaner", [UP, CLEAN, RIGHT] * 8 + [UP, CLEAN, LEFT] * 8)):
        state = scene(world, (4, 1))
        for turn in range(world.turns):
            state = world.begin_turn(state, numbers(world.turn_draws(1), turn))
            action = actions[turn % len(actions)]
            if action == UP:  # turn towards the river without entering it
                state = dataclasses.replace(state, facing=np.full_like(state.facing, UP))
            else:
                state, _ = act(world, state, 0, action)
        levels[name] = float(world.pollution(state)[0])
    assert levels["idle"] > 0.6
    assert levels["cleaner"] < 0.5 * levels["idle"]


# The slow game


class SlowCleanup:
    """One world, played with sets and loops."""

    def __init__(self, world: Cleanup, draws):
        self.world, self.apples, self.dirty = world, set(), set()
        inside = [(r, c) for r in range(1, world.height - 1) for c in range(1, world.width - 1)]
        self.river = {place for place in inside if place[0] <= world.river_rows}
        self.orchard = {place for place in inside if place[0] >= world.height - 1 - world.orchard_rows}
        order = np.argsort(draws["place"][0], kind="stable")
        self.agents = [inside[k] for k in order[: world.num_agents]]
        self.inside = set(inside)
        self.facing, self.out = [UP] * world.num_agents, [0] * world.num_agents
        self.fired = [None] * world.num_agents
        self.dirty = {place for place in self.river if self.number(draws, place) < world.initial_pollution}

    @staticmethod
    def number(draws, place):
        return draws["spread"][0, place[0] - 1, place[1] - 1]

    def begin_turn(self, draws):
        world = self.world
        self.dirty |= {place for place in self.river if self.number(draws, place) < world.pollution_prob}
        rate = world.apple_prob * max(0.0, 1 - len(self.dirty) / len(self.river) / world.threshold)
        free = self.orchard - set(self.agents)
        self.apples |= {place for place in free if self.number(draws, place) < np.float32(rate)}

    def beam(self, agent):
        row, column = self.agents[agent]
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[self.facing[agent]]
        cells = []
        for k in range(1, self.world.beam_length + 1):
            if (row + k * down, column + k * right) not in self.inside:
                break
            cells.append((row + k * down, column + k * right))
        return cells

    def act(self, agent, action, stood, out):
        if out[agent]:
            self.out[agent] -= 1
            self.fired[agent] = None
            return 0.0
        self.fired[agent] = None
        if action in (CLEAN, ZAP):
            self.fired[agent] = action
            cells = self.beam(agent)
            if action == CLEAN:
                self.dirty -= set(cells)
            else:
                for other, place in enumerate(stood):
                    if place in cells and not out[other]:
                        self.out[other] = self.world.zap_turns
            return 0.0
        self.facing[agent] = action
        (row, column), (down, right) = self.agents[agent], ((-1, 0), (1, 0), (0, -1), (0, 1))[action]
        there = (row + down, column + right)
        if there not in self.inside or there in stood or there in self.agents:
            return 0.0
        self.agents[agent] = there
        reward = float(there in self.apples)
        self.apples.discard(there)
        return reward

    def turn(self, actions):
        if self.world.turn_rule == "sequential":
            return [self.act(k, action, list(self.agents), list(self.out)) for k, action in enumerate(actions)]
        stood, out = list(self.agents), list(self.out)
        return [self.act(k, action, stood, out) for k, action in enumerate(actions)]

    def picture(self):
        shown = np.full((self.world.height, self.world.width), WALL)
        layers = [(self.inside, EMPTY), (self.river, RIVER), (self.dirty, POLLUTION)]
        layers += [(self.orchard, GRASS), (self.apples, APPLE)]
        for action, look in ((CLEAN, CLEAN_BEAM), (ZAP, ZAP_BEAM)):
            layers += [(self.beam(k), look) for k, fired in enumerate(self.fired) if fired == action]
        layers += [
            ([p], ZAPPED if o else AGENT + f) for p, f, o in zip(self.agents, self.facing, self.out, strict=True)
        ]
        for places, look in layers:
            for place in places:
                shown[place] = look
        return shown


@pytest.mark.parametrize("rule", ["sequential", "simultaneous"])
@pytest.mark.parametrize("seed", range(3))
def test_the_slow_game_is_the_same(rule, seed):
    world = Cleanup(
        height=8, width=6, num_agents=4, radius=1, river_rows=2, orchard_rows=2, turn_rule=rule, turns=60,
        pollution_prob=0.03, apple_prob=0.5, initial_pollution=0.2, zap_turns=2, beam_length=2 + seed,
    )  # fmt: skip
    draws = numbers(world.reset_draws(1), seed)
    state, slow = world.reset(draws), SlowCleanup(world, draws)
    rng, total = np.random.default_rng(seed), 0.0
    for turn in range(world.turns):
        draws = numbers(world.turn_draws(1), 100 * seed + turn)
        state = world.begin_turn(state, draws)
        slow.begin_turn(draws)
        np.testing.assert_array_equal(world.picture(state)[0], slow.picture(), err_msg=f"at the start of turn {turn}")
        actions = rng.choice(6, world.num_agents, p=[0.2, 0.25, 0.2, 0.2, 0.1, 0.05])
        if rule == "sequential":
            rewards = []
            for k, action in enumerate(actions):
                state, reward = act(world, state, k, action)
                rewards.append(reward)
        else:
            state, rewards = together(world, state, *actions)
        assert rewards == slow.turn(actions), f"turn {turn}"
        np.testing.assert_array_equal(world.picture(state)[0], slow.picture(), err_msg=f"after turn {turn}")
        total += sum(rewards)
    assert total > 5, "too little happened to show anything"


# Frameworks and many worlds

PLAYED = {
    rule: Cleanup(height=9, width=7, num_agents=3, radius=2, turns=30, turn_rule=rule, pollution_prob=0.05)
    for rule in ("sequential", "simultaneous")
}


def assert_same(one, other):
    for name, a in tx.tree.named_leaves(one).items():
        np.testing.assert_array_equal(np.asarray(a), np.asarray(tx.tree.named_leaves(other)[name]), err_msg=name)


@pytest.mark.parametrize("rule", PLAYED)
def test_three_frameworks_play_the_same_epoch(rule):
    world, anyone = PLAYED[rule], Players(1, "random")

    def choose(_, view, uniform):
        return anyone.choose(world, view, uniform)

    found = {}
    for name, convert in (
        ("numpy", np.asarray),
        ("torch", lambda x: torch.from_numpy(np.array(x))),
        ("jax", jnp.asarray),
    ):
        run, draws = epoch(world, choose, worlds=5, convert=convert)
        found[name] = (jax.jit(run) if name == "jax" else run)(*draws)
    assert_same(found["numpy"], found["torch"])
    assert_same(found["numpy"], found["jax"])
    shown = np.unique(found["numpy"].views)
    assert {RIVER, POLLUTION, GRASS, APPLE, CLEAN_BEAM, ZAP_BEAM, ZAPPED} <= set(shown.tolist())


@pytest.mark.parametrize("rule", PLAYED)
def test_many_worlds_are_single_worlds(rule):
    world, anyone = PLAYED[rule], Players(1, "random")

    def choose(_, view, uniform):
        return anyone.choose(world, view, uniform)

    run, (reset, turns, blank) = epoch(world, choose, worlds=4, pictures=False)
    whole = run(reset, turns, blank)
    for k in range(4):
        mine = slice(k, k + 1)
        own = {key: value[:, :, mine] if key == "player" else value[:, mine] for key, value in turns.items()}
        alone = run({key: value[mine] for key, value in reset.items()}, own, blank[mine])
        np.testing.assert_array_equal(alone.views, whole.views[:, :, mine])
        np.testing.assert_array_equal(alone.rewards, whole.rewards[:, :, mine])


# Options, configuration, training


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"river_rows": 0}, "river_rows is 0; it must be at least 1"),
        ({"orchard_rows": 9}, "3 rows of river and 9 of orchard do not fit into the 10 rows"),
        ({"beam_length": 0}, "beam_length is 0"),
        ({"zap_turns": 0}, "zap_turns is 0"),
        ({"zap_turns": 10**12}, "zap_turns is 1000000000000; it must be at most 2147483647"),
        ({"zap_turns": 2.5}, "zap_turns is 2.5; it must be a whole number"),
        ({"pollution_prob": "often"}, "pollution_prob is 'often'; it must be a number"),
        ({"threshold": None}, "threshold is None; it must be a number"),
        ({"pollution_prob": 1.5}, "pollution_prob is 1.5; it must be between 0 and 1"),
        ({"initial_pollution": -0.1}, "initial_pollution is -0.1"),
        ({"apple_prob": float("nan")}, "apple_prob is nan"),
        ({"threshold": 0.0}, "threshold is 0.0; it must be above 0"),
        ({"apple_value": float("inf")}, "apple_value is inf; it must be finite"),
        ({"num_agents": 0}, "num_agents is 0"),
        ({"num_agents": 101}, "101 agents do not fit on 100 free cells"),
        ({"turn_rule": "random"}, "unknown turn rule 'random'"),
    ],
)
def test_wrong_options(options, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        Cleanup(**options)


def test_the_configuration_knows_it():
    config = conf.compose(["experiment=treasurehunt", "world=cleanup", "world.zap_turns=5", "players.random=1"])
    problem = conf.build_problem(config)
    assert problem.world == Cleanup(zap_turns=5)
    assert [name for name, _ in problem.seats] == ["iqn", "iqn", "random"]
    with pytest.raises(TwinaxError, match="'world.gem_value' belongs to world=treasurehunt"):
        conf.compose(["experiment=treasurehunt", "world=cleanup", "world.gem_value=3"])
    with pytest.raises(UnknownName, match="cleanup"):
        conf.compose(["experiment=treasurehunt", "world=cleaning"])


@pytest.mark.usefixtures("quick_compilation")
def test_agents_train_in_it():
    world = Cleanup(height=8, width=6, num_agents=2, radius=1, river_rows=2, orchard_rows=2, turns=12, apple_prob=0.3)
    groups = {
        "plain": Learners(
            1,
            "qr",
            8,
            num_quantiles=4,
            dueling=False,
            noisy=False,
            batch_size=16,
            replay=ReplayOptions(128, frame_stack=2),
        ),
        "seeker": Players(1, "seeker"),
    }
    problem = tx.iqn.problem(world, groups, num_envs=2, evaluation_num_envs=2, film=False)
    run = tx.train(problem, mode="jax", steps=4, seed=0, progress=False)
    assert np.isfinite(run.summary["loss"]) and run.summary["score_agent_1"] > 0
    assert run.metrics[-1]["trained"] == 1
    before = tx.tree.named_leaves(problem.init(0).networks)
    assert any(np.any(before[name] != leaf) for name, leaf in tx.tree.named_leaves(run.networks).items())
