"""Pictures that are images already, such as drawings of objects: side by side, each under its label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinax.parts import Picture
from twinax.runs.plots import Drawing

_MOST, _ROW = 12, 4
_LARGEST = 4_000_000
"""Numbers of an image that is still drawn."""


def drawing(arrays: Mapping[str, np.ndarray], picture: Picture) -> Drawing | None:
    """How to draw them; None when there are none."""
    order = dict.fromkeys((*(name for name in picture.labels if name in arrays), *sorted(arrays)))
    images = {name: arrays[name] for name in order if _is_image(arrays[name])}
    names = list(images)[:_MOST]
    if not names:
        return None
    columns = min(len(names), _ROW)
    rows = -(-len(names) // columns)

    def paint(figure: Any) -> None:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in panels:
            axes.set_axis_off()
        for axes, name in zip(panels, names, strict=False):
            axes.imshow(images[name], interpolation="antialiased")
            axes.set_title(_short(picture.labels.get(name, name)), loc="left", fontsize=8, parse_math=False)

    return Drawing(paint, (2.6 * columns, 2.7 * rows), "; ".join(picture.captions.values()))


def _is_image(array: np.ndarray) -> bool:
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3 and 0 < array.size <= _LARGEST


def _short(text: str, most: int = 34) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
