"""Sprites: every pixel of a map where it belongs, drawings that are told apart, and sentences for wrong maps."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from twinax.envs import _sprite_art
from twinax.envs.sprites import agent_name, render, sprites
from twinax.errors import TwinaxError, UnknownName

HUNT = ["wall", "empty", "gem", "food", "bone", "agent"]
NEEDED = {
    "blank", "empty", "wall", "outside", "gem", "food", "bone", "agent", "agent_1", "river", "pollution", "apple",
    "apple_tree", "grass", "clean_beam", "zap_beam", "zapped_agent",
}  # fmt: skip


def on_sand(name):
    return render(np.array([[0]]), [name])


def test_every_sprite_is_there_whole_and_cannot_be_changed():
    assert sprites().keys() >= NEEDED
    assert all(sprite.shape == (16, 16, 4) and sprite.dtype == np.uint8 for sprite in sprites().values())
    with pytest.raises(ValueError, match="read-only"):
        sprites()["gem"][0] = 0


@pytest.mark.parametrize("name", sorted({*_sprite_art.ART, "agent", "zapped_agent"}))
def test_a_drawing_fills_its_tile(name):
    art = {"agent": _sprite_art.AGENT, "zapped_agent": _sprite_art.ZAPPED} | _sprite_art.ART
    lines = art[name].split()
    assert len({len(line) for line in lines}) == 1, "lines of different lengths"
    assert 16 % len(lines) == 16 % len(lines[0]) == 0, "a pattern that does not fit into the tile"


def test_each_cell_stands_where_it_belongs():
    cells = np.random.default_rng(0).integers(0, len(HUNT), (2, 3, 4, 5))
    picture = render(cells, HUNT)
    assert picture.shape == (2, 3, 64, 80, 3) and picture.dtype == np.uint8
    for index in np.ndindex(cells.shape):
        *world, row, column = index
        there = picture[(*world, slice(16 * row, 16 * row + 16), slice(16 * column, 16 * column + 16))]
        np.testing.assert_array_equal(there, on_sand(HUNT[cells[index]]))


def test_scale_repeats_pixels_in_both_directions():
    cells, agents = np.array([[0, 1, 2], [3, 4, 1]]), np.array([[1, 2]])
    expected = render(cells, HUNT, agents).repeat(3, axis=0).repeat(3, axis=1)
    np.testing.assert_array_equal(render(cells, HUNT, agents, scale=3), expected)


def test_sand_shows_through():
    gem, sand = sprites()["gem"], sprites()["empty"][..., :3]
    clear = gem[..., 3] == 0
    assert 0.2 < clear.mean() < 0.6
    shown = on_sand("gem")
    np.testing.assert_array_equal(shown[clear], sand[clear])
    np.testing.assert_array_equal(shown[~clear], gem[~clear][:, :3])


def test_names_are_laid_over_each_other():
    shown, apple = on_sand("grass+apple"), sprites()["apple"]
    clear = apple[..., 3] == 0
    np.testing.assert_array_equal(shown[clear], on_sand("grass")[clear])
    np.testing.assert_array_equal(shown[~clear], on_sand("apple")[~clear])
    water, beam, shot = (on_sand(name)[0, 0].astype(int) for name in ("river", "clean_beam", "river+clean_beam"))
    colour = sprites()["clean_beam"][0, 0].astype(float)
    np.testing.assert_allclose(shot, (colour[:3] * colour[3] + water * (255 - colour[3])) / 255, atol=0.5)
    assert not np.array_equal(beam, shot)


def test_agents_stand_on_their_cells_in_their_colours():
    cells = np.ones((2, 3, 4), int)
    agents = np.array([[[0, 1], [2, 3], [-1, 2]], [[1, 1], [1, 1], [2, 0]]])
    expected = render(cells, HUNT)
    expected[0, :16, 16:32], expected[0, 32:48, 48:64] = on_sand("agent"), on_sand("agent_1")
    expected[1, 16:32, 16:32], expected[1, 32:48, :16] = on_sand("agent_1"), on_sand("agent_2")
    np.testing.assert_array_equal(render(cells, HUNT, agents), expected)
    two = np.ones((2, 5, 3, 4), int).swapaxes(0, 1)  # two axes of worlds, in another order in memory
    many = render(two, HUNT, np.broadcast_to(agents, (5, *agents.shape)))
    np.testing.assert_array_equal(many, np.broadcast_to(expected, many.shape))


def test_an_agent_leaves_what_is_below_it_in_sight():
    shown = render(np.array([[0]]), ["grass"], np.array([[0, 0]]))
    clear = sprites()["agent"][..., 3] == 0
    np.testing.assert_array_equal(shown[clear], on_sand("grass")[clear])
    assert (shown != on_sand("grass")).any()


def test_kinds_are_told_apart():
    shown = {name: on_sand(name).astype(int) for name in {*_sprite_art.ART, "agent", "zapped_agent"}}
    for one, other in itertools.combinations(sorted(shown), 2):
        far = np.abs(shown[one] - shown[other]).max(axis=-1) > 40
        assert far.mean() > 0.2, f"{one} looks like {other}"


def test_agents_are_told_apart():
    middles = [np.array(body[1]) for body in _sprite_art.BODIES]
    for one, other in itertools.combinations(middles, 2):
        assert np.linalg.norm(one - other) > 75
    assert agent_name(len(middles)) == "agent" and len({agent_name(k) for k in range(8)}) == 8


def test_a_hundred_frames_in_a_moment():
    rng = np.random.default_rng(0)
    cells, agents = rng.integers(0, len(HUNT), (100, 10, 10)), rng.integers(0, 10, (100, 5, 2))
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        render(cells, HUNT, agents)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.2


@pytest.mark.parametrize(
    ("cells", "names", "options", "sentence"),
    [
        ([[0, 6]], HUNT, {}, "codes from 0 to 6, but there are 6 names"),
        ([[-1, 0]], HUNT, {}, "codes from -1 to 0"),
        ([0, 1], HUNT, {}, r"shape \(2,\).*\(..., height, width\)"),
        ([[0.0]], HUNT, {}, "type float64"),
        ([[0]], HUNT, {"scale": 0}, "scale is 0"),
        ([[0]], HUNT, {"agents": np.array([0, 0])}, r"agents has shape \(2,\)"),
        ([[0]], HUNT, {"agents": np.array([[[0, 0]]])}, r"cells of shape \(1, 1\)"),
        ([[0]], HUNT, {"agents": np.array([[0.0, 0.0]])}, "whole numbers"),
    ],
)
def test_what_is_no_map_is_named(unchecked, cells, names, options, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        render(np.array(cells), names, **options)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownName, match="unknown sprite 'gme'; known: agent, .*zapped_agent. Did you mean 'gem'"):
        render(np.array([[0]]), ["grass+gme"])
