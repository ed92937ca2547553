"""A maze as a report shows it: walls, goal, paths of evaluated episodes, and how good each place is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinax.runs.plots import INK

REACHED, MISSED = "#0072b2", "#d55e00"
"""Blue and vermilion of Okabe and Ito: distinct for colour-blind readers, on white and on black."""
BORDER = 0.6
"""Cells of the border that are left out."""


def in_pictures(images: Mapping[str, np.ndarray]) -> bool:
    """Whether the pictures of an evaluation are those of a maze, with all that it takes to paint it."""
    if "maze/walls" not in images or images["maze/walls"].ndim not in (2, 3):
        return False
    found = _first(images)
    shapes = {name: array.shape for name, array in found.items()}
    paths = shapes.get("paths", ())
    return (
        all(array.dtype.kind in "fiub" for array in found.values())
        and bool(found["walls"].any())
        and len(paths) == 3
        and paths[2] == 2
        and shapes.get("successes") == paths[:1]
        and shapes.get("goal") == (3,)
        and bool(np.isfinite(found["goal"]).all())
        and len(shapes.get("values", (1, 1))) == 2
    )


def size(images: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Inches for `maze`."""
    rows, columns = _first(images)["walls"].shape
    height = 3.4
    width = height * min(max(columns / rows, 0.6), 1.8)
    return (2 * width + 1.1 if "maze/values" in images else width + 0.2), height + 0.5


def caption(images: Mapping[str, np.ndarray]) -> str:
    """What `maze` shows, in a sentence."""
    paths = len(_first(images)["paths"])
    seeds = len(images["maze/walls"]) if images["maze/walls"].ndim == 3 else 1
    text = f"paths of {paths} evaluated episodes from their starts (dots) towards the goal (ring)"
    text += "; right, the value that the agent gives each place" if "maze/values" in images else ""
    return text + (f"; the first of {seeds} seeds" if seeds > 1 else "")


def maze(images: Mapping[str, np.ndarray]) -> Callable[[Any], None] | None:
    """How to paint the maze of an evaluation; None when the pictures are of something else."""
    if not in_pictures(images):
        return None
    found = _first(images)

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2 if "values" in found else 1, squeeze=False)[0]
        _walls(panels[0], found["walls"])
        _paths(figure, panels[0], found)
        _goal(panels[0], found["goal"])
        if "values" in found:
            rows, columns = found["walls"].shape
            shown = panels[1].imshow(
                np.ma.masked_invalid(found["values"]),
                extent=(0, columns, rows, 0),
                cmap="viridis",
                interpolation="none",
            )
            _walls(panels[1], found["walls"])  # again: an image brings limits of its own
            _goal(panels[1], found["goal"])
            panels[1].set_title("Value", loc="left", fontsize=10)
            bar = figure.colorbar(shown, ax=panels[1], shrink=0.85, pad=0.03)
            bar.outline.set_visible(False)
            bar.ax.tick_params(length=0, labelsize=8)
            bar.ax.locator_params(nbins=5)

    return paint


def _first(images: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the maze without their prefix; of several seeds those of the first."""
    several = images["maze/walls"].ndim == 3
    found = {name.removeprefix("maze/"): array for name, array in images.items() if name.startswith("maze/")}
    return {name: array[0] if several and array.shape[:1] > (0,) else array for name, array in found.items()}


def _walls(axes: Any, walls: np.ndarray) -> None:
    """All walls as one shape, so that no seams are seen between its cells."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
    cells = np.argwhere(walls)[:, ::-1]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    shape = Path(np.concatenate([cell + corners for cell in cells]), codes * len(cells))
    axes.add_patch(PathPatch(shape, facecolor=INK, edgecolor="none", alpha=0.28, zorder=1))
    # The border is all wall: a part of it is enough.
    axes.set_xlim(BORDER, walls.shape[1] - BORDER)
    axes.set_ylim(walls.shape[0] - BORDER, BORDER)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def _paths(figure: Any, axes: Any, found: Mapping[str, np.ndarray]) -> None:
    from matplotlib.lines import Line2D

    reached = found["successes"] > 0
    # What failed lies on top: there is less of it in the end, and it is what one looks for.
    for wanted, colour in ((True, REACHED), (False, MISSED)):
        for path in found["paths"][reached == wanted]:
            path = path[np.isfinite(path).all(1)]
            if not len(path):
                continue
            axes.plot(*path.T, color=colour, linewidth=1.1, alpha=0.75, solid_capstyle="round", zorder=2)
            axes.plot(*path[0], color=colour, marker="o", markersize=3.4, zorder=3)
            if not wanted:
                axes.plot(*path[-1], color=colour, marker="x", markersize=5, markeredgewidth=1.4, zorder=4)
    counts = ((REACHED, "reached the goal", int(reached.sum())), (MISSED, "did not", int((~reached).sum())))
    labels = [f"{text}: {count}" for _, text, count in counts]
    handles = [
        Line2D([], [], color=colour, linewidth=1.6, marker="x" if colour == MISSED else "", markersize=5)
        for colour, _, _ in counts
    ]
    axes.set_title("Paths", loc="left", fontsize=10)
    figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8, frameon=False, borderpad=0)


def _goal(axes: Any, goal: np.ndarray) -> None:
    from matplotlib.patches import Circle

    x, y, radius = (float(value) for value in goal)
    axes.add_patch(Circle((x, y), radius, facecolor="none", edgecolor=INK, linewidth=1.6, zorder=5))
