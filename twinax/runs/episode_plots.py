"""Figures of one episode: what its reward is made of, and what its world tracks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twinax.episode import Episode
from twinax.runs.plots import COLOURS

MORE = ("#84cc16", "#64748b", "#0ea5e9", "#d946ef", "#78716c")
"""Colours for a reward of many terms."""
SMOOTH = 5
"""Steps over which terms are averaged, so that a figure of 500 steps can be read."""

Painting = tuple[Callable[[Any], None], tuple[float, float]]
"""How to fill a figure, and its inches."""


def paintings(episode: Episode) -> dict[str, Painting]:
    """By name; tracks only where the world has some."""
    by_name: dict[str, Painting] = {"reward": (lambda figure: paint_reward(figure, episode), (8.0, 3.2))}
    panels = len(episode.view.tracks) + len(episode.view.bars)
    if panels:
        by_name["tracks"] = (lambda figure: paint_tracks(figure, episode), (8.0, 0.6 + 1.25 * panels))
    return by_name


def paint_reward(figure: Any, episode: Episode) -> None:
    """Terms stacked up from zero, those below it downwards; their sum is the line."""
    axes, times = figure.subplots(), episode.times
    reward = _smooth(episode.reward)
    order = sorted(episode.terms, key=lambda name: -float(np.abs(episode.terms[name]).mean()))
    colours = [*COLOURS, *MORE]
    above, below = np.zeros_like(reward), np.zeros_like(reward)
    for k, name in enumerate(order):
        value = _smooth(episode.terms[name])
        for base, part in ((above, np.maximum(value, 0)), (below, np.minimum(value, 0))):
            if np.any(part):
                axes.fill_between(times, base, base + part, color=colours[k % len(colours)], alpha=0.75, linewidth=0)
                base += part
        mean = float(episode.terms[name].mean())
        axes.fill_between([], [], color=colours[k % len(colours)], alpha=0.75, label=f"{_words(name)}  {mean:+.2g}")
    total = float(episode.reward.sum())
    axes.plot(times, reward, color="#010203", linewidth=1.2, label=f"reward  {float(episode.reward.mean()):+.2g}")
    axes.axhline(0, color="#010203", alpha=0.4, linewidth=0.8)
    axes.set_title(f"Reward of a step: {total:.4g} in all, {episode.ended}", loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("seconds" if episode.seconds else "steps")
    axes.margins(x=0)
    axes.grid(True)
    figure.legend(loc="outside right center", fontsize=8, frameon=False, title="term, mean", title_fontsize=8)


def paint_tracks(figure: Any, episode: Episode) -> None:
    """What holds at some times as bars, and below the numbers that the world tracks, on one axis of time."""
    view, times = episode.view, episode.times
    ratios = [0.45 * len(rows) for rows in view.bars.values()] + [1.0] * len(view.tracks)
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    for axes, (title, rows) in zip(panels, view.bars.items(), strict=False):
        _paint_bars(axes, rows, times)
        axes.set_title(title[0].upper() + title[1:], loc="left", fontsize=9)
    for axes, (title, lines) in zip(panels[len(view.bars) :], view.tracks.items(), strict=True):
        for k, (name, values) in enumerate(lines.items()):
            style = {"linewidth": 1.3} if k == 0 else {"linewidth": 1.2, "linestyle": (0, (4, 2))}
            axes.plot(times, values, color=COLOURS[(0, 1)[min(k, 1)]], label=name, **style)
        _widen(axes, np.concatenate([np.ravel(values) for values in lines.values()]))
        axes.set_title(title[0].upper() + title[1:], loc="left", fontsize=9)
        axes.legend(loc="lower left", bbox_to_anchor=(0.25, 1.0), ncols=3, fontsize=8, frameon=False, borderpad=0)
        axes.grid(True)
    panels[0].margins(x=0)
    panels[-1].set_xlabel("seconds" if episode.seconds else "steps")


def _widen(axes: Any, values: np.ndarray) -> None:
    """A scale that does not make hills of what hardly moves."""
    low, high, least = float(values.min()), float(values.max()), 0.15 * float(np.abs(values).max())
    if high - low < least:
        middle = 0.5 * (low + high)
        axes.set_ylim(middle - 0.55 * least, middle + 0.55 * least)


def _paint_bars(axes: Any, rows: dict[str, np.ndarray], times: np.ndarray) -> None:
    step = times[0]
    for row, holds in enumerate(rows.values()):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], holds.astype(int), [0]])))
        bars = [(times[a] - step, (b - a) * step) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        axes.broken_barh(bars, (len(rows) - row - 0.85, 0.7), color=COLOURS[(row + 1) % 2], alpha=0.85)
    axes.set_yticks([len(rows) - row - 0.5 for row in range(len(rows))], list(rows))
    axes.set_ylim(0, len(rows))
    axes.tick_params(axis="y", length=0)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _smooth(values: np.ndarray) -> np.ndarray:
    if len(values) <= 2 * SMOOTH:
        return np.array(values, float)
    weight = np.convolve(np.ones(len(values)), np.ones(SMOOTH), "same")
    return np.convolve(values, np.ones(SMOOTH), "same") / weight
