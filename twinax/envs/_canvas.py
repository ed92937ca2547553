"""Drawing in a world's own units; smooth, because more pixels are drawn than are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinax.errors import require

FINER = 3
"""Pixels drawn along each side of one that is seen."""

Point = Any
"""Two numbers."""


class Canvas:
    """A picture; x to the right and y up, `scale` pixels for a unit, `centre` in its middle."""

    def __init__(self, width: int, height: int, scale: float, centre: Point, background: str = "#ffffff"):
        require("PIL", "plots", "a drawn film")
        from PIL import Image, ImageDraw

        self.size = (width, height)
        self._image = Image.new("RGB", (FINER * width, FINER * height), background)
        self._draw = ImageDraw.Draw(self._image)
        self._scale = FINER * scale
        self._shift = np.array([FINER * width / 2, FINER * height / 2]) - self._scale * np.array(
            [centre[0], -centre[1]]
        )

    def _place(self, points: Any) -> list[tuple[float, float]]:
        pixels = np.asarray(points, float).reshape(-1, 2) * [self._scale, -self._scale] + self._shift
        return [(float(x), float(y)) for x, y in pixels]

    def polygon(self, points: Any, colour: str) -> None:
        """A filled shape."""
        self._draw.polygon(self._place(points), fill=colour)

    def circle(self, centre: Point, radius: float, colour: str) -> None:
        """A disc."""
        (x, y), r = self._place(centre)[0], radius * self._scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def line(self, points: Any, width: float, colour: str) -> None:
        """A line with round ends; its width is in units of the world."""
        places, thick = self._place(points), max(1, round(width * self._scale))
        self._draw.line(places, fill=colour, width=thick, joint="curve")
        for point in np.asarray(points, float).reshape(-1, 2):
            self.circle(point, 0.5 * thick / self._scale, colour)

    def arrow(self, start: Point, end: Point, width: float, colour: str) -> None:
        """A line with a head at its end."""
        start, end = np.asarray(start, float), np.asarray(end, float)
        along = end - start
        length = float(np.hypot(*along))
        if length == 0:
            return
        along = along / length
        across = np.array([-along[1], along[0]])
        neck = end - min(4 * width, length) * along
        self.line([start, neck], width, colour)
        self.polygon([end, neck + 2 * width * across, neck - 2 * width * across], colour)

    def text(self, pixel: tuple[int, int], words: str, size: int = 12, colour: str = "#444444", anchor: str = "la"):
        """Words at a pixel of the seen picture."""
        from PIL import ImageFont

        font = ImageFont.load_default(FINER * size)
        self._draw.text((FINER * pixel[0], FINER * pixel[1]), words, fill=colour, font=font, anchor=anchor)

    def label(self, point: Point, words: str, size: int = 10, colour: str = "#999999", anchor: str = "ma") -> None:
        """Words at a point of the world."""
        x, y = self._place(point)[0]
        self.text((round(x / FINER), round(y / FINER)), words, size, colour, anchor)

    def array(self) -> np.ndarray:
        """The picture as uint8 (height, width, 3)."""
        from PIL import Image

        return np.asarray(self._image.resize(self.size, Image.Resampling.BOX))


def captioned(frames: np.ndarray, captions: Sequence[str], size: int = 13) -> np.ndarray:
    """Frames with a line of words below each, on white."""
    from PIL import Image, ImageDraw, ImageFont

    font, images = ImageFont.load_default(size), []
    for frame, words in zip(frames, captions, strict=True):
        image = Image.new("RGB", (frame.shape[1], frame.shape[0] + 2 * size), "#ffffff")
        image.paste(Image.fromarray(frame), (0, 0))
        ImageDraw.Draw(image).text((8, frame.shape[0] + size // 2), words, fill="#333333", font=font)
        images.append(np.asarray(image))
    return np.stack(images)
