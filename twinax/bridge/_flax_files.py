"""Files of parameters that Flax writes, read without Flax. Nothing is unpickled."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from twinax.errors import TwinaxError, require
from twinax.npz_files import read_npz

ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Flax's extension codes of msgpack."""
CHUNKED = "__msgpack_chunked_array__"
"""Key of a dictionary that stands for an array too large for one msgpack object."""


def read_flax(path: str | Path) -> dict[str, Any]:
    """The nested dictionary of arrays in a file of `flax.serialization.to_bytes`, or in an npz file with keys as a/b/c.

    Lists become dictionaries with the keys "0", "1", ...; numbers become arrays without axes; None and text stay.

    >>> params = read_flax("critic.msgpack")["params"]  # doctest: +SKIP
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = ": it is a directory, as Orbax writes; restore it with Orbax and save" if path.is_dir() else ""
        hint = f"{hint} flax.serialization.to_bytes(params) as one file" if hint else f": {error.strerror or error}"
        raise TwinaxError(f"cannot read {path}{hint}") from None
    if _is_pickle(path, data):
        raise TwinaxError(
            f"{path} is a pickle, which can run any code when it is loaded and is never loaded here: where you trust "
            "it, load it yourself and write flax.serialization.msgpack_serialize(params) to a file, or "
            "np.savez(file, **flax.traverse_util.flatten_dict(params, sep='/'))"
        )
    if data[:4] == b"PK\x03\x04":
        return _from_npz(path)
    return _from_msgpack(path, data)


def _is_pickle(path: Path, data: bytes) -> bool:
    """By name, or by the first two bytes, which no msgpack dictionary with entries has."""
    return path.suffix.lower() in (".pkl", ".pickle") or re.match(rb"\x80[\x02-\x05]", data) is not None


def _from_npz(path: Path) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, array in read_npz(path).items():
        *parents, last = key.split("/")
        place = tree
        for part in parents:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise TwinaxError(f"{path}: '{part}' of '{key}' is an array and a dictionary at once")
        if last in place:
            raise TwinaxError(f"{path}: '{key}' is an array and a dictionary at once")
        place[last] = array
    return tree


def _from_msgpack(path: Path, data: bytes) -> dict[str, Any]:
    require("msgpack", "offline", "reading Flax files")
    import msgpack  # pyright: ignore[reportMissingImports]

    def extension(code: int, content: bytes) -> Any:
        if code in (ARRAY, SCALAR):
            return _array(*msgpack.unpackb(content))
        if code == COMPLEX:
            return np.asarray(complex(*msgpack.unpackb(content)))
        raise ValueError(f"it has an object of the unknown kind {code}")

    try:
        tree = _plain(msgpack.unpackb(data, ext_hook=extension))
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.UnpackException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TwinaxError(f"{path} is not a whole file of flax.serialization: {reason}") from None
    if not isinstance(tree, dict):
        raise TwinaxError(f"{path} holds one {type(tree).__name__}, where a dictionary of parameters was expected")
    return tree


def _array(shape: list[int], name: str, content: bytes) -> np.ndarray:
    """An array as Flax packs it: shape, name of the dtype, bytes."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) or min(shape, default=0) < 0:
        raise ValueError(f"an array is said to be {tuple(shape)} of {name}, but has {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(shape).copy()


def _plain(node: Any) -> Any:
    """The tree with chunks joined, and with nothing but dictionaries above its leaves."""
    if isinstance(node, (list, tuple)):
        node = {str(i): part for i, part in enumerate(node)}
    if isinstance(node, Mapping):
        if CHUNKED in node:
            chunks, shape = (_in_order(node[key]) for key in ("chunks", "shape"))
            return np.concatenate(chunks).reshape(shape)
        return {str(key): _plain(part) for key, part in node.items()}
    return np.asarray(node) if isinstance(node, (bool, int, float)) else node


def _in_order(parts: Any) -> list[Any]:
    return [parts[str(i)] for i in range(len(parts))] if isinstance(parts, Mapping) else list(parts)
