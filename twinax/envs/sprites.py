"""Sprites of the grid worlds, and pictures of whole maps by table lookup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from jaxtyping import Integer, UInt8

from twinax.envs import _sprite_art
from twinax.errors import TwinaxError, UnknownName

SIZE = 16
"""Pixels along a side of a sprite."""

_FLOOR = "empty"
_BODY_LETTERS = "HBS"


@cache
def sprites() -> dict[str, UInt8[np.ndarray, "16 16 4"]]:
    """Every sprite by name as RGBA; the arrays are shared and cannot be written.

    >>> sprites()["gem"].shape
    (16, 16, 4)
    """
    pixels = {name: _pixels(art) for name, art in _sprite_art.ART.items()}
    for number, body in enumerate(_sprite_art.BODIES):
        pixels[agent_name(number)] = _pixels(_sprite_art.AGENT, body)
    pixels["zapped_agent"] = _pixels(_sprite_art.ZAPPED, _sprite_art.ZAPPED_BODY)
    for sprite in pixels.values():
        sprite.flags.writeable = False
    return pixels


def agent_name(number: int) -> str:
    """The sprite of an agent by its place in the list; colours repeat after the eighth.

    >>> agent_name(0), agent_name(3), agent_name(8)
    ('agent', 'agent_3', 'agent')
    """
    number %= len(_sprite_art.BODIES)
    return f"agent_{number}" if number else "agent"


def render(
    cells: Integer[np.ndarray, "*batch height width"],
    names: Sequence[str],
    agents: Integer[np.ndarray, "*batch agent 2"] | None = None,
    scale: int = 1,
) -> UInt8[np.ndarray, "*batch height_pixels width_pixels 3"]:
    """Pictures of maps: RGB, `16 * scale` pixels per cell.

    cells    codes of what stands on each cell
    names    the sprite of each code; "grass+apple" lays the second over the first, and sand is below all
    agents   rows and columns of agents, drawn on top in their own colours; one outside the map is left out
    scale    how many pixels each pixel of a sprite becomes in both directions

    >>> picture = render(np.array([[0, 1], [1, 2]]), ["wall", "empty", "gem"], agents=np.array([[0, 1]]), scale=2)
    >>> picture.shape, picture.dtype
    ((64, 64, 3), dtype('uint8'))
    """
    cells = np.asarray(cells)
    _check_cells(cells, names, scale)
    table = np.stack([_enlarge(_tile(name), scale) for name in names])
    tiles = table.take(cells, axis=0)
    if agents is not None:
        _lay_agents(tiles, _checked_agents(np.asarray(agents), cells), scale)
    # (..., row, column, y, x, channel) -> (..., row, y, column, x, channel): cells' lines become the picture's lines.
    *batch, height, width, side, _, _ = tiles.shape
    return np.ascontiguousarray(tiles.swapaxes(-4, -3)).reshape(*batch, height * side, width * side, 3)


def _lay_agents(tiles: np.ndarray, agents: np.ndarray, scale: int) -> None:
    """Draw agents over the tiles they stand on, in place, in the order of their list."""
    height, width = tiles.shape[-5:-3]
    flat = tiles.reshape(-1, *tiles.shape[-5:])
    places = agents.reshape(-1, *agents.shape[-2:])
    for number in range(places.shape[1]):
        row, column = places[:, number, 0], places[:, number, 1]
        there = np.flatnonzero((row >= 0) & (row < height) & (column >= 0) & (column < width))
        index = (there, row[there], column[there])
        flat[index] = _lay(flat[index], _enlarge(sprites()[agent_name(number)], scale))


def _tile(name: str) -> np.ndarray:
    """The RGB of one name, on sand."""
    tile = sprites()[_FLOOR][..., :3]
    for part in name.split("+"):
        if part not in sprites():
            raise UnknownName("sprite", part, sprites())
        tile = _lay(tile, sprites()[part])
    return tile


def _lay(below: np.ndarray, sprite: np.ndarray) -> np.ndarray:
    """A sprite over RGB tiles, mixed by its alpha and rounded."""
    alpha = sprite[..., 3:].astype(np.uint32)
    mixed = sprite[..., :3] * alpha + below * (255 - alpha)
    return ((mixed + 127) // 255).astype(np.uint8)


def _enlarge(sprite: np.ndarray, scale: int) -> np.ndarray:
    return sprite.repeat(scale, axis=0).repeat(scale, axis=1)


def _pixels(art: str, body: Sequence[tuple[int, int, int]] = ()) -> np.ndarray:
    """The RGBA of a drawing; `body` colours the letters of an agent."""
    colours = _sprite_art.COLOURS | {
        letter: (*colour, 255) for letter, colour in zip(_BODY_LETTERS, body, strict=False)
    }
    pattern = np.array([[colours[letter] for letter in line] for line in art.split()], np.uint8)
    return np.tile(pattern, (SIZE // pattern.shape[0], SIZE // pattern.shape[1], 1))


def _check_cells(cells: np.ndarray, names: Sequence[str], scale: int) -> None:
    if scale < 1 or int(scale) != scale:
        raise TwinaxError(f"scale is {scale}; it must be a whole number of at least 1")
    if cells.ndim < 2 or cells.dtype.kind not in "iu":
        raise TwinaxError(
            f"cells has shape {cells.shape} and type {cells.dtype}; "
            "a map needs whole numbers of shape (..., height, width)"
        )
    if cells.size and not 0 <= cells.min() <= cells.max() < len(names):
        raise TwinaxError(
            f"cells has codes from {cells.min()} to {cells.max()}, but there are {len(names)} names: "
            f"give a name for each code from 0"
        )


def _checked_agents(agents: np.ndarray, cells: np.ndarray) -> np.ndarray:
    fits = agents.ndim == cells.ndim and agents.shape[:-2] == cells.shape[:-2] and agents.shape[-1] == 2
    if not fits or agents.dtype.kind not in "iu":
        raise TwinaxError(
            f"agents has shape {agents.shape} and type {agents.dtype} for cells of shape {cells.shape}; "
            f"give rows and columns as whole numbers of shape {(*cells.shape[:-2], 'agents', 2)}"
        )
    return agents
