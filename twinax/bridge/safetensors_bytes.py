"""Arrays as the bytes of a safetensors file: the same arrays always give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np


def encode(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file with its header in the order of names.

    The library itself writes metadata in the order of a hash table, which changes from one call to the next.

    >>> encode({"bias": np.zeros(2)}, {"b": "2", "a": "1"}) == encode({"bias": np.zeros(2)}, {"a": "1", "b": "2"})
    True
    """
    from safetensors.numpy import save

    # safetensors writes the memory as it lies, so a transposed view would be stored scrambled. The reshape keeps 0-d
    # arrays 0-d.
    content = save(
        {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()},
        metadata=dict(metadata or {}) or None,
    )
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[8 + size :]
