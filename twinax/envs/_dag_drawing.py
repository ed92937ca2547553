"""A picture of a graph: nodes on a circle, edges as arrows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinax.errors import require

INCHES, DOTS = 3.2, 100
EXTRA, MISSING, EDGE = "#c0392b", "#b0b0b0", "#2c3e50"


def drawn(adjacency: np.ndarray, names: Sequence[str], truth: np.ndarray | None = None) -> np.ndarray:
    """(height, width, 3) of uint8. With a true graph, edges that it has not are red, and those that it has besides are
    dotted and grey."""
    require("matplotlib", "plots", "drawing a graph")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch

    number = len(adjacency)
    figure = Figure(figsize=(INCHES, INCHES), dpi=DOTS)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
    axes.axis("off")
    angle = np.pi / 2 - 2 * np.pi * np.arange(number) / number
    place = np.stack([np.cos(angle), np.sin(angle)], 1)
    size = 16 if number <= 8 else 11
    known = adjacency if truth is None else truth

    def arrow(source: int, target: int, **style) -> None:
        axes.add_patch(
            FancyArrowPatch(
                tuple(place[source]),
                tuple(place[target]),
                arrowstyle="-|>",
                mutation_scale=12,
                shrinkA=size,
                shrinkB=size,
                connectionstyle="arc3,rad=0.08",
                **style,
            )
        )

    for source, target in np.argwhere(known & ~adjacency):
        arrow(source, target, color=MISSING, linestyle=":", linewidth=1.0)
    for source, target in np.argwhere(adjacency):
        arrow(source, target, color=EDGE if known[source, target] else EXTRA, linewidth=1.4)
    for (x, y), name in zip(place, names, strict=True):
        text = name if len(name) <= 8 else f"{name[:7]}…"
        axes.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=9 if len(text) <= 3 else 7,
            bbox={"boxstyle": "circle,pad=0.4" if len(text) <= 3 else "round,pad=0.4", "fc": "white", "ec": EDGE},
        )
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
