"""Files larger than the memory: blocks of rows, and copies of arrays that can be mapped.

An array that cannot be mapped as it lies in its file is copied once, some rows at a time, to a directory beside the
data: FILE.mapped/STAMP-KEY/NAME.npy. The stamp is of the data, the key of what was done with them, so a copy is used
again until the data change.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.memory import ALIGNMENT, is_mapped

CHUNK = 1 << 16
"""Rows looked at together, at most."""
BLOCK = 1 << 22
"""Bytes looked at together, as long as that is a row."""
SUFFIX = ".mapped"
_NAME = re.compile(r"\.?(?P<stamp>[0-9a-f]{12})-[0-9a-f]{12}(\.(?P<host>.*)\.(?P<process>\d+)\.part)?")
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_temporary: dict[Path, Path] = {}
_announced: set[Path] = set()


def row_blocks(array: Any, multiple: int = 1) -> Iterator[slice]:
    """Slices over the rows of an array; each has a multiple of some rows, such as a chunk of an HDF5 file."""
    rows = array.shape[0]
    bytes_of_row = max(1, int(np.prod(array.shape[1:])) * array.dtype.itemsize)
    size = max(1, min(CHUNK, BLOCK // bytes_of_row))
    size = -(-size // multiple) * multiple
    for begin in range(0, rows, size):
        yield slice(begin, min(begin + size, rows))


def gathered(source: Any, index: np.ndarray, multiple: int = 1) -> Iterator[np.ndarray]:
    """Rows of a source by ascending numbers, a block of the source at a time."""
    for block in row_blocks(source, multiple):
        first, last = np.searchsorted(index, [block.start, block.stop])
        if first < last:
            yield np.asarray(source[block])[index[first:last] - block.start]


# Where copies are


@dataclass(frozen=True)
class Origin:
    """Data of which copies are kept."""

    path: Path
    """The file or directory."""
    stamp: str
    """Changes when the data change."""
    key: str = ""
    """Which part of the data an array is."""

    @classmethod
    def of_files(cls, path: Path, files: Iterable[Path] | None = None) -> Origin:
        """A file, or a directory and those of its files that matter."""
        facts = [(file.name, (status := file.stat()).st_size, status.st_mtime_ns) for file in files or [path]]
        return cls(path if path.name.strip(".") else path.resolve(), _digest(facts))  # "." has no name to add to

    @classmethod
    def of_array(cls, array: np.ndarray) -> Origin:
        """What a mapped array lies in; a copy of a copy stays with the data."""
        base: Any = array
        while isinstance(base.base, np.ndarray):
            base = base.base
        file = Path(str(base.filename))
        place = (base.offset, array.ctypes.data - base.ctypes.data, array.shape, array.strides, str(array.dtype))
        folder = file.parent
        if folder.parent.name.endswith(SUFFIX) and (named := _NAME.fullmatch(folder.name)):
            stamp = named["stamp"]
            path = next((one for one, where in _temporary.items() if where == folder.parent), None)
            path = path or folder.parent.with_name(folder.parent.name.removesuffix(SUFFIX))
            return cls(path, stamp, _digest([folder.name, file.name, *place]))
        if file.suffix == ".npy":  # one of the arrays of a directory
            whole = cls.of_files(folder, sorted(folder.glob("*.npy")))
            return cls(folder, whole.stamp, _digest([file.name, *place]))
        return cls(file, cls.of_files(file).stamp, _digest(place))


def kept(origin: Origin, key: Any, fill: Callable[[Path], None]) -> dict[str, np.memmap]:
    """Arrays that `fill` writes as npy files into a directory, mapped; or those that it wrote another time."""
    name = f"{origin.stamp}-{_digest([origin.key, key])}"
    whose = origin.path.resolve()
    beside = origin.path.with_name(origin.path.name + SUFFIX)
    for place in (beside, _temporary.get(whose)):
        if place is not None and (place / name).is_dir():
            return _mapped_files(place / name)
    place = _writable(origin.path, beside)
    _tidy(place, origin.stamp)
    part = place / f".{name}.{platform.node()}.{os.getpid()}.part"
    try:
        part.mkdir(exist_ok=True)
        fill(part)
        if not (place / name).is_dir():  # another process may have been faster
            part.rename(place / name)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TwinaxError(f"{origin.path}: there is no space in {place} for a copy that can be mapped") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return _mapped_files(place / name)


def _mapped_files(folder: Path) -> dict[str, np.memmap]:
    return {file.stem: np.lib.format.open_memmap(file, "r") for file in sorted(folder.glob("*.npy"))}


def _writable(path: Path, beside: Path) -> Path:
    """The directory of copies; a temporary one where nothing can be written."""
    place, until = beside, "used again next time"
    try:
        beside.mkdir(exist_ok=True)
        if not os.access(beside, os.W_OK):
            raise PermissionError(errno.EACCES, "not writable")
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        whose = path.resolve()
        if whose not in _temporary:
            _temporary[whose] = Path(tempfile.mkdtemp(prefix="twinax-", suffix=SUFFIX))
            atexit.register(shutil.rmtree, _temporary[whose], ignore_errors=True)
        place, until = _temporary[whose], "deleted at the end, because nothing can be written beside the data"
    if place.resolve() not in _announced:
        _announced.add(place.resolve())
        print(f"{path}: copies of arrays that cannot be mapped as they are go to {place}; {until}", file=sys.stderr)
    return place


def _tidy(place: Path, stamp: str) -> None:
    """Delete copies of the data as they were before they changed, and parts that killed processes left."""
    for folder in place.iterdir():
        named = _NAME.fullmatch(folder.name)  # nothing but what was made here is ever deleted
        if named is None:
            continue
        if named["process"]:
            left = named["host"] == platform.node() and not _alive(int(named["process"]))
        else:
            left = named["stamp"] != stamp
        if left:
            shutil.rmtree(folder, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _digest(facts: Any) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


# Writing


class ArrayFile:
    """An npy file that grows by blocks of rows.

    NumPy leaves room in the header for the number of rows, which is written last.
    """

    def __init__(self, path: Path, row: tuple[int, ...], dtype: Any):
        self.row, self.dtype, self.rows = row, np.dtype(dtype), 0
        self.file = path.open("wb")
        self._header()

    def _header(self) -> None:
        facts = {"shape": (self.rows, *self.row), "fortran_order": False, "descr": self.dtype.str}
        self.file.seek(0)
        np.lib.format.write_array_header_1_0(self.file, facts)

    def append(self, block: np.ndarray) -> None:
        """More rows; an error if they are of another kind, such as real numbers after images."""
        if not np.can_cast(block.dtype, self.dtype, "same_kind"):
            name = Path(self.file.name).stem
            raise TwinaxError(f"{name} has dtype {block.dtype} after {self.rows} rows of {self.dtype}")
        self.file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def close(self) -> None:
        """Write the number of rows."""
        self._header()
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_blocks(path: Path, blocks: Iterable[np.ndarray], row: tuple[int, ...], dtype: Any) -> None:
    """An npy file of blocks of rows."""
    with ArrayFile(path, row, dtype) as file:
        for block in blocks:
            file.append(block)


def in_blocks(
    array: np.ndarray, dtype: Any, change: Callable[[np.ndarray], np.ndarray], key: Any, name: str = "array"
) -> np.ndarray:
    """What `change` makes of rows; a mapped array stays on the disk. The key names the change."""
    if not is_mapped(array):
        done = np.empty(array.shape, dtype)
        for block in row_blocks(array):
            done[block] = change(array[block])
        return done

    def fill(folder: Path) -> None:
        write_blocks(folder / f"{name}.npy", (change(array[b]) for b in row_blocks(array)), array.shape[1:], dtype)

    return kept(Origin.of_array(array), key, fill)[name]


def aligned(array: np.ndarray) -> np.ndarray:
    """A mapped array that JAX can use where it lies; other arrays as they are."""
    if not is_mapped(array) or (array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous):
        return array
    return in_blocks(array, array.dtype, lambda block: block, "aligned")
