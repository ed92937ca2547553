"""How many bits of a sort key its place takes."""

from __future__ import annotations

from twinax.errors import TwinaxError

MOST = 20
"""Places need this many bits at most, so that at least twelve are left for chance."""


def index_bits(size: int) -> int:
    """Bits that number `size` places.

    >>> index_bits(8192), index_bits(8193)
    (13, 14)
    """
    bits = max(size - 1, 1).bit_length()
    if bits > MOST:
        raise TwinaxError(f"{size} rows are to be shuffled; at most {2**MOST} can be")
    return bits
