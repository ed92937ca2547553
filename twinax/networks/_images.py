"""What encoders of images share: (..., height, width, channels) with numbers from 0 to 255; the channels of stacked
frames lie side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from twinax.errors import TwinaxError
from twinax.types import Array


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of an image, (height, width, channels); another one is refused."""
    if len(shape) != 3 or min(shape) < 1:
        raise TwinaxError(
            f"an image encoder reads (height, width, channels), but an observation has shape {tuple(shape)}; for "
            "vectors take the encoder 'mlp'"
        )
    height, width, channels = shape
    return int(height), int(width), int(channels)


def flat_images(x: Any, shape: tuple[int, int, int]) -> tuple[Array, tuple[int, ...]]:
    """Images with one leading axis, and the leading axes that they had."""
    if tuple(x.shape[-3:]) != shape:
        raise TwinaxError(
            f"the encoder reads images of shape {shape}, but the observations have shape {tuple(x.shape)}"
        )
    rows = tuple(x.shape[:-3])
    return x.reshape(math.prod(rows), *shape), rows
