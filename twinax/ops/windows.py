"""Where the windows of a convolution or of a pool lie."""

from __future__ import annotations

from collections.abc import Sequence


def same_padding(
    sizes: Sequence[int], windows: Sequence[int], stride: int, dilation: int = 1
) -> tuple[tuple[int, int], ...]:
    """XLA's border for ceil(size / stride) places, (before, after) of each axis: an odd one is larger after.

    >>> same_padding((64, 9), (3, 3), 2)
    ((0, 1), (1, 1))
    """
    covered = [(w - 1) * dilation + 1 for w in windows]
    total = [max(-(-n // stride) * stride - stride + w - n, 0) for n, w in zip(sizes, covered, strict=True)]
    return tuple((n // 2, n - n // 2) for n in total)
