"""Threefry-2x32 with 20 rounds (Salmon et al., 2011): a counter and a key give random bits.

JAX has the same cipher, but runs its rounds as a loop over whole arrays; on a CPU with several threads that is some ten
times slower than this. Here every number is worked out on its own, in one expression of its index, so XLA makes
it where it is used and never stores the bits.
"""

from __future__ import annotations

from typing import Any

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """Two words (uint32) of random bits for each counter; words of key and counter may be arrays.

    >>> import jax.numpy as jnp
    >>> pi = [jnp.uint32(word) for word in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    >>> [hex(int(word)) for word in threefry((pi[2], pi[3]), (pi[0], pi[1]))]  # as published
    ['0xc4923a9c', '0x483df7a0']
    """
    import jax.numpy as jnp

    words = (*key, key[0] ^ key[1] ^ jnp.uint32(PARITY))
    a, b = counter[0] + words[0], counter[1] + words[1]
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            a = a + b
            b = ((b << jnp.uint32(turn)) | (b >> jnp.uint32(32 - turn))) ^ a
        a = a + words[(block + 1) % 3]
        b = b + words[(block + 2) % 3] + jnp.uint32(block + 1)
    return a, b
