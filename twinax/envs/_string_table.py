"""A table with one value for every string of a length over an alphabet, read from a file."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from twinax.errors import TwinaxError
from twinax.npz_files import read_npz

MOST = 2**24
"""Strings of a table at most."""
NAMES = ("key", "value")
"""Arrays of a file: strings, and a number for each."""


@dataclass(frozen=True)
class StringTable:
    """A value for each string, in the order in which a dictionary has them."""

    alphabet: str
    """The letters, in order."""
    length: int
    """Letters of each string."""
    digest: str
    """What tells its values from others."""
    values: np.ndarray = field(compare=False, repr=False)
    """A float64 for each of the len(alphabet)^length strings."""


def make_table(keys: np.ndarray, values: np.ndarray, who: str) -> StringTable:
    """A table of strings in any order, each of which must stand there once.

    >>> make_table(np.array(["b", "a"]), np.array([2.0, 1.0]), "it").values.tolist()
    [1.0, 2.0]
    """
    try:
        keys = np.char.decode(keys, "ascii") if keys.dtype.kind == "S" else keys
    except UnicodeDecodeError as error:
        raise TwinaxError(f"{who}: 'key' has bytes that are no ASCII text ({error}); save text") from None
    if keys.dtype.kind != "U" or keys.ndim != 1 or values.shape != keys.shape or values.dtype.kind not in "fiu":
        raise TwinaxError(
            f"{who}: 'key' is {keys.dtype}{keys.shape} and 'value' {values.dtype}{values.shape}; they must be strings "
            "and a number for each"
        )
    if not len(keys):
        raise TwinaxError(f"{who}: 'key' has no strings; a table has a row for each string")
    lengths = np.char.str_len(keys)
    if lengths.min() != lengths.max() or lengths.min() < 1:
        few, many = int(lengths.min()), int(lengths.max())
        raise TwinaxError(f"{who}: strings have {few} to {many} letters; all must have the same number, at least 1")
    length = int(lengths[0])
    characters = np.ascontiguousarray(keys.astype(f"U{length}")).view(np.uint32).reshape(len(keys), length)
    codes, letters = np.unique(characters, return_inverse=True)
    total = len(codes) ** length
    if total > MOST:
        raise TwinaxError(
            f"{who}: {length} letters of {len(codes)} make {total:,} strings; a table has at most {MOST:,}"
        )
    alphabet = "".join(map(chr, codes.tolist()))
    place = letters.reshape(characters.shape) @ np.array([len(codes) ** k for k in reversed(range(length))])
    counts = np.bincount(place, minlength=total)
    if (counts != 1).any():
        wrong = int((counts != 1).argmax())
        digits = [wrong // len(codes) ** k % len(codes) for k in reversed(range(length))]
        rows = characters == codes[np.bincount(letters.reshape(-1)).argmin()]
        stray = np.flatnonzero(rows.any(1))  # in a whole table no letter is rarer than another
        hint = f"; few rows have the rarest letter, such as {keys[stray[0]]}" if 100 * len(stray) < len(keys) else ""
        raise TwinaxError(
            f"{who}: the string {''.join(alphabet[k] for k in digits)} stands there {counts[wrong]} times; each of the "
            f"{total:,} strings of {length} letters of '{alphabet}' must stand there once{hint}"
        )
    placed = np.empty(total)
    placed[place] = values
    if not np.isfinite(placed).all():
        bad = int((~np.isfinite(values)).argmax())
        raise TwinaxError(f"{who}: the value of {keys[bad]} is {values[bad]}; every value must be finite")
    placed.setflags(write=False)
    return StringTable(alphabet, length, hashlib.sha256(placed.tobytes()).hexdigest(), placed)


def read_table(file: str | Path) -> StringTable:
    """The table of an npz file with `key` and `value`; nothing is unpickled."""
    path = Path(file).expanduser()
    try:
        about = path.stat()
    except OSError as error:
        raise TwinaxError(f"{path}: there is no such file of values ({error.strerror})") from None
    return _read(path.resolve(), about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> StringTable:
    try:
        arrays = read_npz(path, NAMES)
    except OSError as error:
        raise TwinaxError(f"{path}: this file of values cannot be read ({error.strerror or error})") from None
    if missing := [name for name in NAMES if name not in arrays]:
        raise TwinaxError(f"{path}: there is no array '{missing[0]}'; a file of values has the arrays key and value")
    return make_table(*(arrays[name] for name in NAMES), who=str(path))
