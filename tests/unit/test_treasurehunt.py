"""The treasure hunt against a slow game of plain objects, and each of its rules by hand."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from twinax import ops, tree
from twinax.envs import TreasureHunt
from twinax.envs._treasurehunt import Hunt
from twinax.envs.world import BLANK, EMPTY, OUTSIDE, WALL, decode
from twinax.errors import TwinaxError
from twinax.iqn import Players, play

UP, DOWN, LEFT, RIGHT = range(4)

# The slow game: two layers of objects, one agent after the other


@dataclass(eq=False)
class Thing:
    """Something that stands on one layer of one cell."""

    kind: str
    value: float = 0.0
    passable: bool = True


class SlowHunt:
    """One world, played with objects and loops."""

    moves = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, world: TreasureHunt, place):
        self.world = world
        h, w = world.height, world.width
        self.floor = [[Thing("sand") for _ in range(w)] for _ in range(h)]
        self.play = [[Thing("empty") for _ in range(w)] for _ in range(h)]
        for y in range(h):
            for x in range(w):
                if y in (0, h - 1) or x in (0, w - 1):
                    self.play[y][x] = Thing("wall", -1.0, False)
                    if world.variant == "gem":
                        self.floor[y][x] = Thing("wall", -1.0, False)
        cells = [(y, x) for y in range(1, h - 1) for x in range(1, w - 1)]
        ranked = sorted(range(len(cells)), key=lambda k: place[k])
        self.agents = [Thing("agent", 0.0, False) for _ in range(world.num_agents)]
        for agent, k in zip(self.agents, ranked, strict=False):
            self.put(cells[k], agent)

    def put(self, cell, thing):
        self.play[cell[0]][cell[1]] = thing

    def find(self, agent):
        return next((y, x) for y, row in enumerate(self.play) for x, thing in enumerate(row) if thing is agent)

    def item(self, kind):
        return Thing(kind, getattr(self.world, f"{kind}_value"))

    def sweep(self, uniform):
        """An item appears where the number is below the probability; which one, by its third of what lies below."""
        kinds = ("gem",) if self.world.variant == "gem" else ("gem", "food", "bone")
        p = np.float64(self.world.spawn_prob)
        for y in range(1, self.world.height - 1):
            for x in range(1, self.world.width - 1):
                u = float(uniform[y - 1, x - 1])
                if self.play[y][x].kind == "empty" and u < p:
                    self.put((y, x), self.item(kinds[min(int(u / p * len(kinds)), len(kinds) - 1)]))

    def act(self, agent, action):
        here = self.find(agent)
        there = tuple(a + b for a, b in zip(here, self.moves[action], strict=True))
        target = self.play[there[0]][there[1]]
        if target.passable:
            self.put(there, agent)
            self.put(here, Thing("empty"))
        return target.value

    def act_together(self, actions):
        """Cells where someone stood stay closed for the turn; of several who want a cell the first gets it."""
        starts = [self.find(agent) for agent in self.agents]
        closed, rewards, moves = set(starts), [], []
        for agent, here, action in zip(self.agents, starts, actions, strict=True):
            there = tuple(a + b for a, b in zip(here, self.moves[action], strict=True))
            if there in closed:
                rewards.append(0.0)
                continue
            target = self.play[there[0]][there[1]]
            rewards.append(target.value)
            if target.passable:
                closed.add(there)
                moves.append((agent, here, there))
        for agent, here, there in moves:
            self.put(there, agent)
            self.put(here, Thing("empty"))
        return rewards

    def observe(self, agent):
        """What an agent sees, (channels, y, x): layers added up, and one wall for each cell off the map."""
        world, r = self.world, self.world.radius
        kinds = ("empty", "wall", "sand", "gem", "agent")
        hidden = {"empty"}
        if world.variant != "gem":
            kinds, hidden = ("empty", "wall", "gem", "bone", "food", "agent"), {"empty", "sand"}
        colours = {kind: np.eye(len(kinds))[k] for k, kind in enumerate(kinds)}
        if world.observation == "rgb":
            seen_kinds = kinds[1:]
            colours = {
                kind: np.array([int(255 * part) for part in colorsys.hsv_to_rgb(k / len(seen_kinds), 1, 1)])
                for k, kind in enumerate(seen_kinds)
            }
        y, x = self.find(agent)
        seen = np.zeros((len(colours["wall"]), 2 * r + 1, 2 * r + 1))
        for dy in range(-r, r + 1):
            for dx in range(-r, r + 1):
                stack = ["wall"]
                if 0 <= y + dy < world.height and 0 <= x + dx < world.width:
                    stack = [layer[y + dy][x + dx].kind for layer in (self.floor, self.play)]
                for kind in stack:
                    if kind not in hidden:
                        seen[:, dy + r, dx + r] += colours[kind]
        return np.minimum(seen, 255) / 255 if world.observation == "rgb" else seen

    def map(self):
        return [[thing.kind for thing in row] for row in self.play]


def slow_epoch(world, draws, actions, index=0):
    """Maps at the start of each turn, rewards and observations of one world."""
    game = SlowHunt(world, draws["place"][index])
    maps, rewards, views = [], [], []
    for t in range(world.turns):
        game.sweep(draws["spawn"][t, index])
        maps.append(game.map())
        chosen = actions[t, :, index].tolist()
        if world.turn_rule == "simultaneous":
            views.append([game.observe(agent) for agent in game.agents])
            rewards.append(game.act_together(chosen))
            continue
        seen, got = [], []
        for agent, action in zip(game.agents, chosen, strict=True):
            seen.append(game.observe(agent))
            got.append(game.act(agent, action))
        views.append(seen)
        rewards.append(got)
    return maps, np.array(rewards), np.array(views).reshape(world.turns, world.num_agents, -1)


# The same epoch in the library


def draws_for(world, worlds=1, seed=0):
    """Draws of an epoch and actions, all from one generator."""
    rng = np.random.default_rng(seed)
    draws = {
        "place": rng.random((worlds, len(world.inside)), np.float32),
        "spawn": rng.random((world.turns, worlds, world.height - 2, world.width - 2), np.float32),
    }
    return draws, rng.integers(0, 4, (world.turns, world.num_agents, worlds)).astype(np.int32)


def epoch_of(world, draws, actions, choose=None, frames=1):
    """A whole epoch with fixed actions, in the framework of the draws."""
    blank = ops.zeros((draws["place"].shape[0], frames - 1, world.view_cells), draws["place"], "uint8")
    return play(
        world,
        choose or (lambda agent, window, turn: turn["actions"][agent]),
        [blank] * world.num_agents,
        {"place": draws["place"]},
        {"spawn": draws["spawn"], "actions": actions},
        pictures=True,
    )


def named(world, codes):
    """Codes as the names of what they show."""
    return [[world.names[code] for code in row] for row in np.asarray(codes)]


def seen(world, views):
    """What a network sees of views of single frames."""
    return decode(views[..., None, :], world.codebook)


def assert_same_epoch(world, worlds=1, seed=0):
    draws, actions = draws_for(world, worlds, seed)
    epoch = epoch_of(world, draws, actions)
    for k in range(worlds):
        maps, rewards, views = slow_epoch(world, draws, actions, k)
        np.testing.assert_array_equal(epoch.rewards[:, :, k], rewards)
        np.testing.assert_allclose(seen(world, epoch.views[:, :, k]), views, atol=1e-6)
        if k == 0:
            pictures, places = epoch.pictures
            assert [named(world, picture) for picture in pictures] == maps
            stand = np.stack(np.divmod(places, world.stride), -1) - world.margin
            assert {world.names[pictures[t, y, x]] for t, row in enumerate(stand) for y, x in row} == {"agent"}
    return epoch


@settings(max_examples=25)
@given(
    height=st.integers(3, 8),
    width=st.integers(3, 8),
    agents=st.integers(1, 4),
    radius=st.integers(0, 7),
    spawn=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    rule=st.sampled_from(["sequential", "simultaneous"]),
    variant=st.sampled_from(["gem", "gem_food_bone"]),
    seed=st.integers(0, 2**31),
)
def test_an_epoch_is_that_of_the_slow_game(height, width, agents, radius, spawn, rule, variant, seed):
    world = TreasureHunt(
        height=height,
        width=width,
        num_agents=min(agents, (height - 2) * (width - 2)),
        turns=12,
        radius=min(radius, max(height, width) - 1),
        turn_rule=rule,
        variant=variant,
        spawn_prob=spawn,
    )
    assert_same_epoch(world, worlds=2, seed=seed)


CROWD = TreasureHunt(height=5, width=6, num_agents=6, turns=40, variant="gem_food_bone", spawn_prob=0.3)


@pytest.mark.parametrize("rule", ["sequential", "simultaneous"])
def test_a_crowded_epoch_is_that_of_the_slow_game(rule):
    world = replace(CROWD, turn_rule=rule)
    epoch = assert_same_epoch(world, worlds=3, seed=1)
    assert set(np.unique(epoch.rewards)) == {-10.0, -1.0, 0.0, 5.0, 10.0}  # nothing stayed untried


def test_the_colours_are_those_of_the_slow_game():
    for variant in ("gem", "gem_food_bone"):
        world = replace(CROWD, variant=variant, observation="rgb", turns=15)
        epoch = assert_same_epoch(world, seed=2)
        looks = seen(world, epoch.views).reshape(15, 6, 1, 3, 5, 5)
        assert looks.min() == 0 and looks.max() == 1 and world.observation_size == 75
        # A wall and the outside look alike, and where sand is not seen, so do blank and empty.
        assert len(np.unique(world.codebook.round(5), axis=0)) == len(world.names) - 1 - (variant != "gem")


@pytest.mark.parametrize(
    ("variant", "bytes_of"),
    [
        # Hues 0, 1/5 .. 4/5 for wall, gem, bone, food, agent
        (
            "gem_food_bone",
            {
                "blank": (0, 0, 0),
                "empty": (0, 0, 0),
                "wall": (255, 0, 0),
                "outside": (255, 0, 0),
                "gem": (203, 255, 0),
                "bone": (0, 255, 102),
                "food": (0, 102, 255),
                "agent": (204, 0, 255),
            },
        ),
        # Hues 0, 1/4 .. 3/4 for wall, sand, gem, agent: sand (127, 255, 0) shines through gems (0, 255, 255) and
        # agents (127, 0, 255), and two walls are as red as one.
        (
            "gem",
            {
                "blank": (0, 0, 0),
                "empty": (127, 255, 0),
                "wall": (255, 0, 0),
                "outside": (255, 0, 0),
                "gem": (127, 255, 255),
                "agent": (254, 255, 255),
            },
        ),
    ],
)
def test_the_colours_of_the_original(variant, bytes_of):
    world = TreasureHunt(variant=variant, observation="rgb")
    found = dict(zip(world.names, world.codebook, strict=True))
    assert world.codebook.dtype == np.float32 and set(found) == set(bytes_of)
    for name, colour in bytes_of.items():
        np.testing.assert_array_equal(found[name], np.array(colour, np.float32) / np.float32(255), err_msg=name)


# Rules by hand: maps as text


def hunt(text, **options):
    """A world and a state drawn as text: walls #, empty ., items g f b, agents 0 1 2 ..."""
    rows = text.split()
    agents = sum(c.isdigit() for c in text)
    world = TreasureHunt(
        height=len(rows),
        width=len(rows[0]),
        num_agents=agents,
        variant=options.pop("variant", "gem_food_bone"),
        radius=options.pop("radius", 1),
        **options,
    )
    grid, places = world.ground.copy().reshape(-1, world.stride), [0] * agents
    for y, row in enumerate(rows):
        for x, c in enumerate(row):
            if c in "gfb":
                grid[y + world.margin, x + world.margin] = world.names.index({"g": "gem", "f": "food", "b": "bone"}[c])
            elif c.isdigit():
                grid[y + world.margin, x + world.margin] = world.agent
                places[int(c)] = (y + world.margin) * world.stride + x + world.margin
    return world, Hunt(grid.reshape(1, -1), tuple(np.array([p], np.int32) for p in places))


def text_of(world, state):
    """The state as text, agents by number."""
    signs = {"empty": ".", "wall": "#", "gem": "g", "food": "f", "bone": "b", "agent": "a"}
    picture = np.asarray(world.picture(state))[0]
    rows = [[signs[world.names[code]] for code in row] for row in picture]
    for k, place in enumerate(state.places):
        y, x = np.divmod(int(place[0]), world.stride) - np.array(world.margin)
        assert rows[y][x] == "a"  # an agent is where it is said to be
        rows[y][x] = str(k)
    assert not any("a" in row for row in rows)
    return "\n".join("".join(row) for row in rows)


def lines(text):
    return "\n".join(text.split())


def in_torch(state):
    return jtu.tree_map(torch.from_numpy, state)


def moved(text, *actions, framework="numpy", **options):
    """The map and the rewards after the agents acted, in order or together."""
    world, state = hunt(text, **options)
    convert = torch.tensor if framework == "torch" else np.array
    state = in_torch(state) if framework == "torch" else state
    chosen = [convert([action]) for action in actions]
    if world.turn_rule == "simultaneous":
        state, rewards = world.act_together(state, chosen)
    else:
        rewards = []
        for agent, action in enumerate(chosen):
            state, reward = world.act(state, agent, action)
            rewards.append(reward)
    return text_of(world, state), [float(reward[0]) for reward in rewards]


SMALL = """
    #####
    #g0f#
    #.b.#
    #####
"""


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("action", "reward", "after"),
    [
        (UP, -1, "##### #g0f# #.b.# #####"),  # into the wall: it costs 1, nobody moves
        (DOWN, -10, "##### #g.f# #.0.# #####"),  # the bone is gone, and the cell that was left is empty
        (LEFT, 10, "##### #0.f# #.b.# #####"),
        (RIGHT, 5, "##### #g.0# #.b.# #####"),
    ],
)
def test_a_step(framework, action, reward, after):
    assert moved(SMALL, action, framework=framework) == (lines(after), [reward])


def test_values_of_items_are_options():
    values: dict[str, Any] = {"gem_value": 2.5, "food_value": -3.0, "bone_value": 0.0}
    assert [moved(SMALL, action, **values)[1][0] for action in (DOWN, LEFT, RIGHT)] == [0.0, 2.5, -3.0]


@pytest.mark.parametrize("rule", ["sequential", "simultaneous"])
def test_an_agent_is_an_obstacle_that_costs_nothing(rule):
    text = "##### #01.# #####"
    assert moved(text, RIGHT, UP, turn_rule=rule) == (lines(text), [0.0, -1.0])


def test_the_earlier_agent_takes_the_item():
    text = "##### #0g1# #####"
    for rule in ("sequential", "simultaneous"):
        assert moved(text, RIGHT, LEFT, turn_rule=rule) == (lines("##### #.01# #####"), [10.0, 0.0])
    # The order is that of the list, not that of the map.
    text = "##### #1g0# #####"
    assert moved(text, LEFT, RIGHT) == (lines("##### #10.# #####"), [10.0, 0.0])


def test_agents_act_on_what_the_earlier_left():
    # 1 may enter the cell that 0 left, and 0 must not enter the one that 1 is about to leave.
    assert moved("###### #10g.# ######", RIGHT, RIGHT) == (lines("###### #.10.# ######"), [10.0, 0.0])
    assert moved("###### #01g.# ######", RIGHT, RIGHT) == (lines("###### #0.1.# ######"), [0.0, 10.0])


def test_together_nobody_enters_a_cell_where_someone_stood():
    rule = {"turn_rule": "simultaneous"}
    assert moved("###### #10g.# ######", RIGHT, RIGHT, **rule) == (lines("###### #1.0.# ######"), [10.0, 0.0])
    assert moved("###### #01.g# ######", RIGHT, RIGHT, **rule) == (lines("###### #0.1g# ######"), [0.0, 0.0])
    # No swaps, in one turn or round a corner
    assert moved("#### #01# #### ", RIGHT, LEFT, **rule) == (lines("#### #01# ####"), [0.0, 0.0])
    ring = "#### #01# #32# ####"
    assert moved(ring, RIGHT, DOWN, LEFT, UP, **rule) == (lines(ring), [0.0] * 4)


def test_together_the_first_in_the_list_wins():
    text = "##### #.2.# #0g1# #.3.# #####"
    after, rewards = moved(text, RIGHT, LEFT, DOWN, UP, turn_rule="simultaneous")
    assert (after, rewards) == (lines("##### #.2.# #.01# #.3.# #####"), [10.0, 0.0, 0.0, 0.0])
    after, rewards = moved(text, UP, LEFT, DOWN, UP, turn_rule="simultaneous")
    assert (after, rewards) == (lines("##### #02.# #.1.# #.3.# #####"), [0.0, 10.0, 0.0, 0.0])


def test_a_later_agent_sees_what_an_earlier_one_did():
    world, state = hunt("###### #0g.1# ######", radius=2)
    before = world.view(state, 1).reshape(5, 5)[2, :2]
    state, _ = world.act(state, 0, np.array([RIGHT]))
    after = world.view(state, 1).reshape(5, 5)[2, :2]
    assert [world.names[code] for code in before] == ["gem", "empty"]
    assert [world.names[code] for code in after] == ["agent", "empty"]


@pytest.mark.parametrize(("rule", "sight"), [("sequential", "agent"), ("simultaneous", "gem")])
def test_in_a_turn_agents_look_one_after_the_other_or_all_first(rule, sight):
    world = TreasureHunt(height=3, width=6, num_agents=2, turns=1, turn_rule=rule, spawn_prob=0.5)
    draws = {
        "place": np.array([[0.1, 0.8, 0.9, 0.2]], np.float32),
        "spawn": np.array([0.9, 0.1, 0.9, 0.9], np.float32).reshape(1, 1, 1, 4),
    }
    epoch = epoch_of(world, draws, np.array([[[RIGHT], [UP]]], np.int32))
    assert named(world, epoch.pictures[0][0])[1] == ["wall", "agent", "gem", "empty", "agent", "wall"]
    assert world.names[epoch.views[0, 1, 0].reshape(5, 5)[2, 0]] == sight


# The map, placing and spawning


def test_the_map():
    world = TreasureHunt(height=4, width=5, num_agents=1)
    state = world.reset({"place": np.arange(6, dtype=np.float32)[None]})
    assert text_of(world, state) == lines("##### #0..# #...# #####")
    assert len(world.inside) == 6 and len(TreasureHunt(height=21, width=21).inside) == 361
    assert len(TreasureHunt().inside) == 64
    padded = np.asarray(state.cells[0]).reshape(-1, world.stride)
    assert padded.shape == (4 + 2 * 2, 5 + 2 * 2)
    assert (padded[:2] == OUTSIDE).all() and (padded[:, :2] == OUTSIDE).all() and (padded[2, 2:-2] == WALL).all()


def test_agents_start_on_different_cells_inside_and_there_are_no_items():
    world = TreasureHunt(height=5, width=6, num_agents=4)
    draws, _ = draws_for(world, worlds=3000, seed=3)
    state = world.reset(draws)
    picture = np.asarray(world.picture(state))
    assert set(np.unique(picture)) == {EMPTY, WALL, world.agent}
    assert ((picture == world.agent).sum((1, 2)) == 4).all()
    assert (picture[:, [0, -1]] == WALL).all() and (picture[:, :, [0, -1]] == WALL).all()
    # Every agent is on every one of the 12 cells equally often, within five standard deviations.
    spread = 5 * np.sqrt(3000 / 12 * 11 / 12)
    for place in state.places:
        counts = np.bincount(place, minlength=len(world.ground))
        assert set(np.flatnonzero(counts)) == set(world.inside.tolist())
        assert np.abs(counts[world.inside] - 3000 / 12).max() < spread
    together = np.bincount(state.places[0] * 1000 + state.places[1])
    assert np.count_nonzero(together) == 12 * 11


def test_a_full_world_has_an_agent_on_every_cell():
    world = TreasureHunt(height=4, width=4, num_agents=4, turns=5)
    draws, actions = draws_for(world)
    epoch = epoch_of(world, draws, actions)
    assert text_of(world, world.reset(draws)).count("#") == 12
    assert set(np.unique(epoch.rewards)) == {-1.0, 0.0}  # nobody can move, and nothing spawns
    pictures, places = epoch.pictures
    assert (pictures == pictures[0]).all() and (places == places[0]).all()


@pytest.mark.parametrize("variant", ["gem", "gem_food_bone"])
def test_rate_and_kinds_of_what_spawns(variant):
    world = TreasureHunt(variant=variant, spawn_prob=0.3)
    draws, _ = draws_for(replace(world, turns=1), worlds=1000, seed=4)
    before = world.reset(draws)
    after = world.begin_turn(before, {"spawn": draws["spawn"][0]})
    was, now = np.asarray(world.picture(before)), np.asarray(world.picture(after))
    changed = was != now
    # Only on empty cells inside; agents and walls stay as they are.
    assert (was[changed] == EMPTY).all() and not changed[:, [0, -1]].any() and not changed[:, :, [0, -1]].any()
    number = 1000 * (64 - 5)
    assert abs(changed.sum() - 0.3 * number) < 5 * np.sqrt(0.3 * 0.7 * number)
    kinds = {
        world.names[code]: int(count) for code, count in zip(*np.unique(now[changed], return_counts=True), strict=True)
    }
    assert set(kinds) == ({"gem"} if variant == "gem" else {"gem", "food", "bone"})
    each = changed.sum() / len(kinds)
    assert all(abs(count - each) < 5 * np.sqrt(each) for count in kinds.values())
    # A second sweep leaves the items where they are.
    again = world.begin_turn(after, {"spawn": draws["spawn"][0][::-1]})
    held = np.isin(now, [world.names.index(kind) for kind in kinds])
    np.testing.assert_array_equal(np.asarray(world.picture(again))[held], now[held])


@pytest.mark.parametrize("probability", [0.0, 1e-12, 1.0])
def test_certain_and_impossible_items(probability):
    world = TreasureHunt(variant="gem_food_bone", spawn_prob=probability, turns=1)
    draws, _ = draws_for(world, worlds=20)
    state = world.reset(draws)
    after = np.asarray(world.picture(world.begin_turn(state, {"spawn": np.maximum(draws["spawn"][0], 1e-6)})))
    assert (after == EMPTY).sum() == (0 if probability == 1 else 20 * 59)
    assert (after == world.agent).sum() == 100


def test_items_appear_before_the_first_look_and_on_cells_just_left():
    world = TreasureHunt(height=3, width=4, num_agents=1, turns=2, spawn_prob=0.5, radius=1)
    draws = {
        "place": np.array([[0.1, 0.2]], np.float32),
        "spawn": np.array([[0.9, 0.1], [0.1, 0.9]], np.float32).reshape(2, 1, 1, 2),
    }
    epoch = epoch_of(world, draws, np.full((2, 1, 1), RIGHT, np.int32))
    first, second = epoch.pictures[0]
    assert named(world, first)[1] == ["wall", "agent", "gem", "wall"]
    assert named(world, second)[1] == ["wall", "gem", "agent", "wall"]
    assert epoch.rewards[:, 0, 0].tolist() == [10.0, -1.0]
    assert world.names[epoch.views[0, 0, 0].reshape(3, 3)[1, 2]] == "gem"


# Views


@pytest.mark.parametrize("radius", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("variant", ["gem", "gem_food_bone"])
def test_views_from_every_cell(radius, variant):
    """All corners and borders, also where the view is larger than the map."""
    world = TreasureHunt(height=5, width=6, num_agents=1, radius=radius, variant=variant, spawn_prob=0.4)
    rng = np.random.default_rng(radius)
    for k in range(12):
        place = np.where(np.arange(12) == k, 0.1, 0.9).astype(np.float32)
        spawn = rng.random((3, 4), np.float32)
        state = world.begin_turn(world.reset({"place": place[None]}), {"spawn": spawn[None]})
        game = SlowHunt(world, place)
        game.sweep(spawn)
        got = seen(world, world.view(state, 0))[0]
        assert got.shape == (world.observation_size,) == (len(world.codebook[0]) * (2 * radius + 1) ** 2,)
        np.testing.assert_array_equal(got.reshape(-1, 2 * radius + 1, 2 * radius + 1), game.observe(game.agents[0]))


def test_channels_of_the_world_with_gems():
    world, state = hunt("##### #0g.# #..1# #####", variant="gem")
    assert world.observation_size == 45 and TreasureHunt().observation_size == 125
    empty, wall, sand, gem, agent = seen(world, world.view(state, 0)).reshape(5, 3, 3)
    assert not empty.any()
    np.testing.assert_array_equal(wall, [[2, 2, 2], [2, 0, 0], [2, 0, 0]])  # both layers
    np.testing.assert_array_equal(sand, [[0, 0, 0], [0, 1, 1], [0, 1, 1]])  # under agents and items as well
    np.testing.assert_array_equal(gem, [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(agent, [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    wide, state = hunt("##### #0g.# #..1# #####", variant="gem", radius=2)
    _, wall, sand, _, agent = seen(wide, wide.view(state, 0)).reshape(5, 5, 5)
    np.testing.assert_array_equal(wall[0], [1, 1, 1, 1, 1])  # off the map: one wall
    np.testing.assert_array_equal(wall[1], [1, 2, 2, 2, 2])
    np.testing.assert_array_equal(wall[:, 0], [1, 1, 1, 1, 1])
    np.testing.assert_array_equal(agent, np.eye(25)[12].reshape(5, 5) + np.eye(25)[19].reshape(5, 5))
    assert sand.sum() == 6


def test_channels_of_the_world_with_three_kinds():
    world, state = hunt("##### #0g.# #fb1# #####", radius=2)
    assert world.observation_size == 150
    empty, wall, gem, bone, food, agent = seen(world, world.view(state, 0)).reshape(6, 5, 5)
    assert not empty.any()
    np.testing.assert_array_equal(wall, [[1] * 5, [1] * 5, [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1] * 5])
    for channel, places in ((gem, [(2, 3)]), (bone, [(3, 3)]), (food, [(3, 2)]), (agent, [(2, 2), (3, 4)])):
        assert list(zip(*np.nonzero(channel), strict=True)) == places
    assert set(np.unique(world.codebook)) == {0.0, 1.0}


def test_a_blank_frame_is_nothing_and_frames_stand_one_after_the_other():
    for world in (TreasureHunt(), TreasureHunt(variant="gem_food_bone"), TreasureHunt(observation="rgb")):
        assert not world.codebook[BLANK].any()
    world, state = hunt("##### #0g.# #..1# #####")
    views = np.concatenate([np.zeros((1, 9), int), world.view(state, 1), world.view(state, 0)])
    together = decode(views[None], world.codebook)
    assert together.shape == (1, 3 * world.observation_size)
    alone = [decode(views[k : k + 1], world.codebook) for k in range(3)]
    np.testing.assert_array_equal(together[0], np.concatenate(alone))


def test_agents_are_given_their_last_frames():
    world = replace(CROWD, num_agents=2, turns=6)
    draws, actions = draws_for(world)
    windows = {0: [], 1: []}

    def choose(agent, window, turn):
        windows[agent].append(window)
        return turn["actions"][agent]

    epoch = epoch_of(world, draws, actions, choose, frames=3)
    for agent in (0, 1):
        history = np.concatenate([np.zeros((2, 1, world.view_cells)), epoch.views[:, agent]])
        for t, window in enumerate(windows[agent]):
            np.testing.assert_array_equal(window[0], history[t : t + 3, 0])


# Frameworks and batches of worlds


@pytest.mark.parametrize("rule", ["sequential", "simultaneous"])
def test_epochs_are_equal_bit_for_bit_in_every_framework(rule):
    world = replace(CROWD, num_agents=4, height=6, turn_rule=rule)
    draws, actions = draws_for(world, worlds=3, seed=6)
    wanted = tree.named_leaves(epoch_of(world, draws, actions))
    tensors = {name: torch.from_numpy(value) for name, value in draws.items()}
    compiled = jax.jit(lambda d, a: epoch_of(world, d, a))
    found = {
        "torch": epoch_of(world, tensors, torch.from_numpy(actions)),
        "jax": compiled(jtu.tree_map(jnp.asarray, draws), jnp.asarray(actions)),
    }
    assert set(wanted) == {"views", "actions", "rewards", "pictures.0", "pictures.1"}
    assert np.ptp(wanted["rewards"]) > 0
    for epoch in found.values():
        for name, value in tree.named_leaves(epoch).items():
            np.testing.assert_array_equal(np.asarray(value), wanted[name], err_msg=name)
            assert str(value.dtype).removeprefix("torch.") == str(wanted[name].dtype), name
    # Wider draws of the same numbers make the same choices.
    wide = epoch_of(world, {name: value.astype(np.float64) for name, value in draws.items()}, actions)
    np.testing.assert_array_equal(wide.views, wanted["views"])


@pytest.mark.parametrize("rule", ["sequential", "simultaneous"])
def test_many_worlds_are_single_worlds(rule):
    world = replace(CROWD, turn_rule=rule)
    draws, actions = draws_for(world, worlds=4, seed=7)
    many = epoch_of(world, draws, actions)
    for k in range(4):
        own = {"place": draws["place"][k : k + 1], "spawn": draws["spawn"][:, k : k + 1]}
        single = epoch_of(world, own, actions[:, :, k : k + 1])
        np.testing.assert_array_equal(single.views[:, :, 0], many.views[:, :, k])
        np.testing.assert_array_equal(single.rewards[:, :, 0], many.rewards[:, :, k])
    assert (many.views[:, :, 0] != many.views[:, :, 1]).any()
    np.testing.assert_allclose(many.score, many.rewards.sum(0).mean(1))


# Players


def sought(text, **options):
    world, state = hunt(text, radius=options.pop("radius", 2), **options)
    view = world.view(state, 0).astype(np.uint8)
    choices = [Players(rule="seeker").choose(world, view, np.array([u], np.float32)) for u in (0.1, 0.4, 0.6, 0.9)]
    return [int(choice[0]) for choice in choices]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("###### #.g..# #....# #.0..# ######", UP),
        ("###### #.0..# #....# #.g..# ######", DOWN),
        ("###### #g.0.# ######", LEFT),
        ("###### #.0.f# ######", RIGHT),
        ("###### #gf0.# ######", LEFT),  # 10 in two steps is as good as 5 in one
        ("###### #g.0f# ######", LEFT),  # and the first cell in view wins
        ("###### #bg0.# ######", LEFT),
        ("####### #g.0f.# #######", LEFT),
        ("####### #g..0f# #######", RIGHT),  # out of sight
    ],
)
def test_a_seeker_walks_to_what_is_worth_most_per_step(text, action):
    assert sought(text) == [action] * 4


def test_a_seeker_that_sees_nothing_of_value_walks_at_random():
    for text in ("##### #.0.# #####", "##### #b0b# #####", "######## #0...1g# ########"):
        assert sought(text) == [UP, DOWN, LEFT, RIGHT]
    assert sought("##### #.0.# #####", radius=0) == [UP, DOWN, LEFT, RIGHT]


def test_random_players_choose_every_action_equally_often():
    uniform = np.random.default_rng(0).random(40_000, np.float32)
    counts = np.bincount(Players().choose(TreasureHunt(), None, uniform))
    assert len(counts) == 4 and np.abs(counts - 10_000).max() < 5 * np.sqrt(40_000 * 3 / 16)
    edge = Players().choose(
        TreasureHunt(), None, np.array([0.0, np.nextafter(1, 0, dtype=np.float32), 1.0], np.float32)
    )
    assert edge.tolist() == [0, 3, 3]


@pytest.mark.parametrize("values", [(10.0, 5.0, -10.0), (0.3, 0.1, 0.2)])
def test_a_seeker_chooses_alike_in_every_framework(values):
    gem, food, bone = values
    world = TreasureHunt(variant="gem_food_bone", radius=4, gem_value=gem, food_value=food, bone_value=bone)
    rng, rows = np.random.default_rng(0), 2000
    views, uniform = np.full((rows, 81), EMPTY, np.uint8), rng.random(rows, np.float32)
    for _ in range(3):  # few items, so that prospects are often equal
        views[np.arange(rows), rng.integers(0, 81, rows)] = rng.integers(4, 7, rows)
    seeker = Players(rule="seeker")
    wanted = seeker.choose(world, views, uniform)
    np.testing.assert_array_equal(seeker.choose(world, torch.from_numpy(views), torch.from_numpy(uniform)), wanted)
    np.testing.assert_array_equal(jax.jit(lambda v, u: seeker.choose(world, v, u))(views, uniform), wanted)


# Wrong options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_agents": 0}, "num_agents is 0; it must be at least 1"),
        ({"num_agents": -2}, "num_agents is -2"),
        ({"height": 4, "width": 4, "num_agents": 5}, "5 agents do not fit on 4 free cells"),
        ({"height": 2}, "a world of 2 x 10 has no room"),
        ({"width": 0}, "a world of 10 x 0 has no room"),
        ({"radius": 10}, "the radius of vision is 10, but the world is 10 x 10; it must be between 0 and 9"),
        ({"radius": -1}, "the radius of vision is -1"),
        ({"turns": 0}, "turns is 0"),
        ({"turn_rule": "parallel"}, "unknown turn rule 'parallel'; known: sequential, simultaneous"),
        (
            {"variant": "gems"},
            "unknown variant of the treasure hunt 'gems'; known: gem, gem_food_bone. Did you mean 'gem'?",
        ),
        ({"observation": "ascii"}, "unknown kind of observation 'ascii'; known: one_hot, rgb"),
        ({"spawn_prob": 1.5}, "spawn_prob is 1.5; it must be between 0 and 1"),
        ({"spawn_prob": -0.1}, "spawn_prob is -0.1"),
        ({"spawn_prob": float("nan")}, "spawn_prob is nan"),
        ({"gem_value": float("inf")}, "gem_value is inf; it must be finite"),
    ],
)
def test_wrong_worlds_are_refused(options, words):
    with pytest.raises(TwinaxError) as caught:
        TreasureHunt(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_wrong_players_are_refused():
    with pytest.raises(TwinaxError, match="unknown rule of a player 'clever'; known: random, seeker"):
        Players(rule="clever")
    with pytest.raises(TwinaxError, match="count is 0; it must be at least 1"):
        Players(count=0)
