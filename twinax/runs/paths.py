"""Pictures of paths: where they went, around which walls, to which goal, and how good each place is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.parts import Picture
from twinax.runs.curves import LARGEST
from twinax.runs.plots import INK, Drawing

REACHED, MISSED = "#0072b2", "#d55e00"
"""Blue and vermilion of Okabe and Ito: distinct for colour-blind readers, on white and on black."""
BORDER = 0.6
"""Cells of the border that are left out: it is all wall, so a part of it is enough."""


def drawing(arrays: Mapping[str, np.ndarray], picture: Picture) -> Drawing | None:
    """How to draw them; None when there are no paths, or what is beside them does not fit."""
    seeds = len(arrays["paths"]) if "paths" in arrays and arrays["paths"].ndim == 4 else 0
    first = {name: array[0] if seeds and array.ndim and len(array) else array for name, array in arrays.items()}
    if not _fit(first):
        return None
    left, right, top, bottom = box = _box(first)
    values = "values" in first

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2 if values else 1, squeeze=False)[0]
        _ground(panels[0], first, box)
        _paths(figure, panels[0], first, picture.labels)
        if values:
            shown = panels[1].imshow(
                np.ma.masked_invalid(first["values"]),
                extent=(left, right, bottom, top),
                cmap="viridis",
                interpolation="none",
            )
            _ground(panels[1], first, box)  # again: an image brings limits of its own
            panels[1].set_title(picture.labels.get("values", "Values"), loc="left", fontsize=10, parse_math=False)
            bar = figure.colorbar(shown, ax=panels[1], shrink=0.85, pad=0.03)
            bar.outline.set_visible(False)
            bar.ax.tick_params(length=0, labelsize=8)
            bar.ax.locator_params(nbins=5)

    height = 3.4
    width = height * min(max((right - left) / (bottom - top), 0.6), 1.8)
    said = [text for name, text in picture.captions.items() if name in first]
    said += [f"the first of {seeds} seeds"] if seeds > 1 else []
    return Drawing(paint, (2 * width + 1.1 if values else width + 0.2, height + 0.5), "; ".join(said))


def _fit(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether there is all that it takes to paint them; a file may hold anything."""
    if not all(array.dtype.kind in "fiub" for array in arrays.values()):
        return False
    shapes = {name: array.shape for name, array in arrays.items()}
    paths, walls = shapes.get("paths", ()), shapes.get("walls")
    return (
        len(paths) == 3
        and paths[2] == 2
        and bool(_seen(arrays["paths"]).any())
        and shapes.get("successes", paths[:1]) == paths[:1]
        and shapes.get("goal", (3,)) == (3,)
        and bool(_seen(arrays.get("goal", np.zeros(3))))
        and (walls is None or len(walls) == 2 and bool(arrays["walls"].any()))
        and ("values" not in shapes or len(shapes["values"]) == 2 and walls is not None)
    )


def _seen(points: np.ndarray) -> Any:
    """Whether points can be drawn."""
    return (np.abs(np.asarray(points, float)) <= LARGEST).all(-1)


def _box(arrays: Mapping[str, np.ndarray]) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of what is shown: of the walls, or as far as paths go."""
    if "walls" in arrays:
        rows, columns = arrays["walls"].shape
        return 0, columns, 0, rows
    points = np.asarray(arrays["paths"][_seen(arrays["paths"])], float)
    low, high = points.min(0), points.max(0)
    room = 0.05 * float((high - low).max()) or 1.0
    return low[0] - room, high[0] + room, low[1] - room, high[1] + room


def _ground(axes: Any, arrays: Mapping[str, np.ndarray], box: tuple[float, float, float, float]) -> None:
    """Walls and goal, and the limits of what is shown."""
    from matplotlib.patches import Circle

    left, right, top, bottom = box
    if "walls" in arrays:
        _walls(axes, arrays["walls"])
    border = BORDER if "walls" in arrays else 0.0
    axes.set_xlim(left + border, right - border)
    axes.set_ylim(bottom - border, top + border)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    if "goal" in arrays:
        x, y, radius = (float(value) for value in arrays["goal"])
        axes.add_patch(Circle((x, y), radius, facecolor="none", edgecolor=INK, linewidth=1.6, zorder=5))


def _walls(axes: Any, walls: np.ndarray) -> None:
    """All walls as one shape, so that no seams are seen between its cells."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
    cells = np.argwhere(walls)[:, ::-1]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    shape = Path(np.concatenate([cell + corners for cell in cells]), codes * len(cells))
    axes.add_patch(PathPatch(shape, facecolor=INK, edgecolor="none", alpha=0.28, zorder=1))


def _paths(figure: Any, axes: Any, arrays: Mapping[str, np.ndarray], labels: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    reached = arrays.get("successes", np.ones(len(arrays["paths"]))) > 0
    # What failed lies on top: there is less of it in the end, and it is what one looks for.
    for wanted, colour in ((True, REACHED), (False, MISSED)):
        for path in arrays["paths"][reached == wanted]:
            path = path[_seen(path)]
            if not len(path):
                continue
            axes.plot(*path.T, color=colour, linewidth=1.1, alpha=0.75, solid_capstyle="round", zorder=2)
            axes.plot(*path[0], color=colour, marker="o", markersize=3.4, zorder=3)
            if not wanted:
                axes.plot(*path[-1], color=colour, marker="x", markersize=5, markeredgewidth=1.4, zorder=4)
    axes.set_title(labels.get("paths", "Paths"), loc="left", fontsize=10, parse_math=False)
    if "successes" not in arrays:
        return
    counts = (
        (REACHED, labels.get("reached", "reached it"), int(reached.sum())),
        (MISSED, labels.get("missed", "did not"), int((~reached).sum())),
    )
    texts = [f"{text}: {count}".replace("$", "\\$") for _, text, count in counts]
    handles = [
        Line2D([], [], color=colour, linewidth=1.6, marker="x" if colour == MISSED else "", markersize=5)
        for colour, _, _ in counts
    ]
    figure.legend(handles, texts, loc="outside lower left", ncols=2, fontsize=8, frameon=False, borderpad=0)
