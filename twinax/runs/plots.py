"""Figures of a report: drawn once with matplotlib, kept as SVG for the page and as PNG in plots/.

The ink of an SVG is the page's own text colour, so a figure reads on a light page and on a dark one.
"""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinax.errors import require
from twinax.runs import files
from twinax.runs.curves import RunRecord, Series, common_unit
from twinax.runs.glossary import title

COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#ca9a04", "#06b6d4", "#ec4899")
"""Middle tones that are distinct on white and on black, also for most colour-blind readers."""

INK = "#010203"
"""Stands for the colour of the text in an SVG; see `_inline`."""
_EQUAL = ({"linewidth": 1.6, "linestyle": "-", "alpha": 0.9},)
# Engines that agree lie on top of each other: a wide line, dashes and dots keep all of them in sight.
_STACKED = (
    {"linewidth": 4.5, "linestyle": "-", "alpha": 0.45},
    {"linewidth": 2.2, "linestyle": (0, (4, 3)), "alpha": 1.0},
    {"linewidth": 1.4, "linestyle": (0, (1, 2)), "alpha": 1.0},
)
_MOST_POINTS = 800
BAND = "95 % confidence interval of the mean (Student's t)"
"""What the band around the line of several seeds is."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.7,
}


SMALL, LARGE = (4.3, 2.6), (6.2, 3.1)
"""Inches of a curve: such that its text is about as large as the page's."""


class Drawing(NamedTuple):
    """A figure that is not drawn yet."""

    paint: Callable[[Any], None]
    size: tuple[float, float]
    """Inches."""
    said: str = ""
    """What is seen, in words."""


def draw(name: str, paint: Callable[[Any], None], size: tuple[float, float], plots: Path) -> str:
    """Let `paint` fill a figure; its PNG goes to plots/<name>.png and the inline SVG is returned."""
    require("matplotlib", "plots", "a report")
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        with files.writing("the figure", plots / f"{name}.png", plots.parent):
            plots.mkdir(parents=True, exist_ok=True)
            with files.replacing(plots / f"{name}.png") as temporary:
                figure.savefig(temporary, format="png", dpi=150, facecolor="white", metadata={"Software": None})
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name)


def curve(name: str, runs: Sequence[RunRecord], over: str = "steps") -> Callable[[Any], None] | None:
    """How to paint one number of all runs over steps or seconds; None when no run has two points of it."""
    indexed = [(index, series) for index, run in enumerate(runs) if (series := run.series(name)) is not None]
    if not any(len(series.steps) > 1 for _, series in indexed):
        return None

    unit = common_unit(runs)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        logarithmic = _spans_decades([series for _, series in indexed])
        strokes = _STACKED if over == "steps" and _coincide([series for _, series in indexed]) else _EQUAL
        for order, (index, series) in enumerate(indexed):
            if over == "steps" and unit is not None:
                series = dataclasses.replace(series, steps=series.steps * runs[index].unit.per_step)
            _line(axes, series, COLOURS[index % len(COLOURS)], strokes[order % len(strokes)], over, logarithmic)
        if logarithmic:
            axes.set_yscale("log")
        elif min(series.values.min() for _, series in indexed) < 0 < max(series.values.max() for _, series in indexed):
            axes.axhline(0, color=INK, alpha=0.4, linewidth=0.8)
        axes.grid(True)
        counted = unit.name[:60] if unit is not None else "steps"
        axes.set_xlabel("seconds of training" if over == "seconds" else counted, parse_math=False)
        axes.set_title(title(name), loc="left", fontsize=11, fontweight="bold", parse_math=False)
        axes.margins(x=0.01)
        _seed_legend(figure, [(COLOURS[index % len(COLOURS)], series) for index, series in indexed])
        values = np.concatenate([series.values.ravel() for _, series in indexed])
        whole = bool(np.all(values % 1 == 0))
        if not np.ptp(values):
            space = max(1.0, 1e-6 * abs(float(values[0]))) if whole else 0.1 * abs(float(values[0])) or 1.0
            axes.set_ylim(float(values[0]) - space, float(values[0]) + space)
        _plain_numbers(axes, whole)

    return paint


def _line(
    axes: Any, series: Series, colour: str, stroke: Mapping[str, Any], over: str, logarithmic: bool = False
) -> None:
    x = series.seconds if over == "seconds" else series.steps
    marks = {"marker": "o", "markersize": stroke["linewidth"] + 1.5}
    if len(x) > 60:
        keep, marks = _thin(len(x)), {}
        if series.values.shape[1] == 1:
            axes.plot(x[keep], series.mean[keep], color=colour, linewidth=0.6, alpha=0.25)
        # Seed by seed: the band then belongs to what the line shows.
        x, smooth = _running_mean(x, series.values)
        series = Series(x, x, smooth)
    if series.values.shape[1] > 1:
        low, high = series.interval
        # An interval may reach zero, which a logarithmic scale has no place for: there it ends below the lowest seed.
        low = np.maximum(low, 0.5 * series.values.min()) if logarithmic else low
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, series.mean, color=colour, **marks, **stroke)


def _seed_legend(figure: Any, coloured: Sequence[tuple[str, Series]]) -> None:
    """Below the axes, where it hides nothing: what line and band are, when there are several seeds."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    several = [(colour, series.values.shape[1]) for colour, series in coloured if series.values.shape[1] > 1]
    if not several:
        return
    counts = sorted({count for _, count in several})
    # With several runs the ink stands for all of them: which colour is which run is said by the page.
    colour = several[0][0] if len(coloured) == 1 else INK
    handles = [Line2D([], [], color=colour, linewidth=1.6), Patch(color=colour, alpha=0.2, linewidth=0)]
    labels = [f"mean of {' or '.join(map(str, counts))} seeds", BAND]
    figure.legend(
        handles, labels, loc="outside lower left", ncols=2, fontsize=7, frameon=False, borderpad=0, columnspacing=1.2
    )


def _running_mean(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over a window of a fiftieth of the points, shorter at the two ends; along the first axis of `y`."""
    half = max(1, len(y) // 100)
    sums = np.concatenate([np.zeros_like(y[:1], dtype=float), np.cumsum(y, axis=0)])
    index = np.arange(len(y))
    reach = np.minimum(half, np.minimum(index, len(y) - 1 - index))
    width = (2 * reach + 1).reshape(-1, *(1 for _ in y.shape[1:]))
    smooth = (sums[index + reach + 1] - sums[index - reach]) / width
    keep = _thin(len(y))
    return x[keep], smooth[keep]


def _thin(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(int))


def _spans_decades(curves: Sequence[Series]) -> bool:
    """Whether a logarithmic scale shows more: all positive, and most of the range below the top decade."""
    values = np.concatenate([series.values.ravel() for series in curves])
    return bool(values.min() > 0 and np.percentile(values, 98) > 10 * np.percentile(values, 2))


def _coincide(curves: Sequence[Series]) -> bool:
    """Whether two of the curves would hide each other."""
    means = [np.log(series.mean) if _spans_decades(curves) else series.mean for series in curves]
    for index, one in enumerate(means):
        for other in means[index + 1 :]:
            if len(one) == len(other) and np.median(np.abs(one - other)) <= 0.03 * np.ptp(one):
                return True
    return False


def _plain_numbers(axes: Any, whole: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if axes.get_yscale() == "log":
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))


def _inline(svg: str, name: str) -> str:
    """The SVG element alone, with its ids made its own and its ink the colour of the text around it."""
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height|version)="[^"]*"', "", head)
    # Most ids name groups that nothing refers to, and some of them twice.
    used = set(re.findall(r"""(?:url\(|href=")#([^)"]+)""", body))
    prefix = re.sub(r"\W", "-", name)
    body = re.sub(r' id="([^"]*)"', lambda match: f' id="{prefix}-{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r"""(url\(|href=")#""", rf"\1#{prefix}-", body)
    return f'{head} role="img">{body}'.replace(INK, "currentColor")
