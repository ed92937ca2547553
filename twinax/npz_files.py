"""Arrays of npz files and of directories of npy files, in memory or mapped from the disk. Nothing is unpickled."""

from __future__ import annotations

import lzma
import math
import os
import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.mapped_files import BLOCK, Origin, kept

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # of a member of a zip file: name and extra field follow


_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, struct.error,
    RuntimeError, tokenize.TokenError, SyntaxError, OverflowError, TypeError,
)  # fmt: skip
"""What the readers of zip members and of npy headers raise when they meet nonsense."""


def npz_names(path: Path) -> list[str]:
    """The arrays in a file."""
    with _opened(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def npz_sizes(path: Path, names: Iterable[str]) -> dict[str, int]:
    """Bytes of arrays when they are not compressed."""
    wanted = set(names)
    with _opened(path) as archive:
        sizes = {member.filename.removesuffix(".npy"): member.file_size for member in archive.infolist()}
    return {name: size for name, size in sizes.items() if name in wanted}


def read_npz(path: Path, names: Iterable[str] | None = None, mapped: bool = False) -> dict[str, np.ndarray]:
    """Arrays of a file by name; those that are not there are left out.

    `np.load` cannot map arrays inside an npz. But a member that is not compressed lies in the file as it is, so once
    its place is known it can be mapped like any other file. Of a compressed member a copy is mapped.
    """
    wanted = None if names is None else set(names)
    arrays = {}
    with _opened(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename or (wanted is not None and name not in wanted):
                continue
            try:
                arrays[name] = _mapped(path, archive, member) if mapped else _read(archive, member)
            except _DAMAGE as error:
                raise TwinaxError(f"{path}: the array '{name}' cannot be read ({_line(error)})") from None
    return arrays


def read_npy_directory(path: Path, names: Iterable[str] | None = None, mapped: bool = False) -> dict[str, np.ndarray]:
    """Arrays of a directory with one npy file for each."""
    wanted = None if names is None else set(names)
    arrays = {}
    for file in sorted(path.glob("*.npy")):
        if wanted is None or file.stem in wanted:
            try:
                arrays[file.stem] = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
            except _DAMAGE as error:
                raise TwinaxError(f"{file}: cannot be read ({_line(error)})") from None
    return arrays


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], compressed: bool = False) -> None:
    """A file that `np.load` reads, written beside its place and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        with path.open("rb") as file:
            whole = file.read(4) == b"PK\x03\x04"
        reason = "it begins as one, but its end is missing" if whole else "it is not a zip archive"
        raise TwinaxError(f"{path}: this is no npz file: {reason}") from None


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    return shape, fortran, dtype


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        _check_size(_header(file), file.tell(), member)
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _check_size(header: tuple[tuple[int, ...], bool, np.dtype], begin: int, member: zipfile.ZipInfo) -> int:
    shape, _, dtype = header
    count = math.prod(shape)
    if begin + count * dtype.itemsize != member.file_size:
        raise ValueError(f"its header promises {shape} of {dtype}, which is not its size")
    return count


def _mapped(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED:
        return _mapped_copy(path, archive, member)
    with path.open("rb") as file:
        file.seek(member.header_offset)
        fields = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        if fields[0] != b"PK\x03\x04":
            raise ValueError("the archive is damaged")
        begin = member.header_offset + _LOCAL_HEADER.size + fields[-2] + fields[-1]
        file.seek(begin)
        header = shape, fortran, dtype = _header(file)
        offset = file.tell()
    if _check_size(header, offset - begin, member) == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


def _mapped_copy(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        shape, _, dtype = header = _header(file)
        if _check_size(header, file.tell(), member) == 0:
            return np.empty(shape, dtype)

    def fill(folder: Path) -> None:
        # A member is an npy file; its checksum is compared at its end.
        with archive.open(member) as file, (folder / "array.npy").open("wb") as copy:
            shutil.copyfileobj(file, copy, BLOCK)
            copy.flush()
            os.fsync(copy.fileno())

    return kept(Origin.of_files(path), ("npz", member.filename), fill)["array"]


def _line(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__
