"""Rings: arrays of a fixed length, in which the newest rows take the places of the oldest.

One whole number says all of a ring: how many rows were written. It is counted round and round, below twice the length,
or an int32 would overflow after 2^31 rows.
"""

from __future__ import annotations

from typing import Any

from twinax import ops


def places(written: Any, number: int, length: int) -> Any:
    """Where the next rows go; for several rings `written` has an axis of size 1 last.

    >>> import numpy as np
    >>> places(np.array(3, np.int32), 4, 5).tolist()
    [3, 4, 0, 1]
    """
    return (written + ops.arange(number, written)) % length


def held(written: Any, length: int) -> Any:
    """How many rows are in the ring."""
    return ops.minimum(written, ops.full((), length, written))


def counted(written: Any, number: int, length: int) -> Any:
    """The count after more rows; the next place and the rows held are those of the true number.

    >>> import numpy as np
    >>> [int(counted(np.array(n, np.int32), 4, 5)) for n in (0, 4, 8)]
    [4, 8, 7]
    """
    total = written + number
    return ops.where(total < 2 * length, total, length + total % length)
