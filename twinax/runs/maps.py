"""Pictures that are maps: arrays side by side on one scale, and what two of them differ by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.parts import Picture
from twinax.runs.curves import LARGEST
from twinax.runs.glossary import title
from twinax.runs.plots import Drawing

_MOST = 8


def drawing(arrays: Mapping[str, np.ndarray], picture: Picture) -> Drawing | None:
    """How to draw them; None when there is nothing to see."""
    order = dict.fromkeys((*(name for name in picture.labels if name in arrays), *sorted(arrays)))
    flattened = {name: _flat(arrays[name]) for name in order}
    maps = [name for name in flattened if flattened[name].ndim == 2 and np.isfinite(flattened[name]).any()][:_MOST]
    if not maps:
        return None
    pair = [name for name in picture.difference or () if name in maps]
    compared = len(pair) == 2 and arrays[pair[0]].shape == arrays[pair[1]].shape
    words = {name: picture.labels.get(name) or title(name) for name in maps}

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(maps) + compared, squeeze=False)[0]
        top = max(float(np.nanmax(flattened[name])) for name in maps) or 1.0
        bottom = min(float(np.nanmin(flattened[name])) for name in maps)
        reach = max(top, -bottom)
        # Of numbers with both signs 0 is the middle, and white.
        scale = ("viridis", 0, top) if bottom >= 0 else ("RdBu_r", -reach, reach)
        shown = None
        for axes, name in zip(panels, maps, strict=False):
            array = flattened[name]
            cmap, low, high = scale
            shown = axes.imshow(array, origin="lower", cmap=cmap, vmin=low, vmax=high, interpolation="none")
            _frame(axes, words[name], array)
        figure.colorbar(shown, ax=list(panels[: len(maps)]), shrink=0.75, pad=0.02)
        if compared:
            rest = flattened[pair[0]] - flattened[pair[1]]
            reach = float(np.abs(np.nan_to_num(rest)).max()) or 1.0
            shown = panels[-1].imshow(
                rest, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="none"
            )
            _frame(panels[-1], f"{words[pair[0]]} - {words[pair[1]].lower()}", rest)
            figure.colorbar(shown, ax=panels[-1], shrink=0.75, pad=0.04)

    said = [text for name, text in picture.captions.items() if name in arrays]
    if compared:
        one, other = (np.asarray(arrays[name], float) for name in pair)
        distances = 0.5 * np.abs(one - other).reshape(*one.shape[:-2], -1).sum(axis=-1)
        said.append(f"half the L1 distance of these two pictures is {float(np.mean(distances)):.4g}")
    return Drawing(paint, (2.6 * (len(maps) + compared) + 1.2, 2.7), "; ".join(said))


def _frame(axes: Any, text: str, array: np.ndarray) -> None:
    axes.set_title(text, loc="left", fontsize=10, parse_math=False)
    axes.set_xticks([0, array.shape[1] - 1])
    axes.set_yticks([0, array.shape[0] - 1] if array.shape[0] > 1 else [])
    axes.tick_params(length=0, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)


def _flat(array: np.ndarray) -> np.ndarray:
    """The mean over a leading seed axis; a single row for a vector. What cannot be drawn is not a number."""
    if array.dtype.kind not in "fiub" or not array.size:
        return np.zeros((0, 0))
    array = np.array(array, dtype=float)
    array[~(np.abs(array) <= LARGEST)] = np.nan
    array = array.mean(axis=0) if array.ndim == 3 else array
    return array[None] if array.ndim == 1 else array
