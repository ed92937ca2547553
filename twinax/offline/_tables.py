"""Flat tables of arrays by name: an npz file, a directory of npy files, or an HDF5 file without episodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twinax.mapped_files import Origin, gathered, kept, write_blocks
from twinax.memory import is_mapped
from twinax.npz_files import npz_names, read_npy_directory, read_npz
from twinax.offline._hdf5 import hdf5_array, hdf5_dataset, hdf5_names, on_disk, opened_hdf5

HDF5 = (".hdf5", ".h5")
LARGE = ("observations", "actions", "next_observations")
"""Arrays that stay on the disk where files are mapped."""


def table_names(path: Path) -> list[str]:
    """The arrays of a table; those of a group of HDF5 as group/array."""
    if path.is_dir():
        return [file.stem for file in sorted(path.glob("*.npy"))]
    if path.suffix in HDF5:
        with opened_hdf5(path) as file:
            return hdf5_names(file)
    return npz_names(path)


@contextmanager
def opened_table(path: Path, names: Iterable[str], mapped: bool) -> Iterator[dict[str, Any]]:
    """Arrays of a table by name; those that are not there are left out.

    With `mapped` the large ones are mapped, or, where an HDF5 file has them in pieces, can be read while it is open.
    """
    if path.is_dir() or path.suffix not in HDF5:
        yield (read_npy_directory if path.is_dir() else read_npz)(path, names, mapped)
        return
    with opened_hdf5(path) as file:
        large = LARGE if mapped else ()
        fields: dict[str, Any] = {
            name: hdf5_array(file, name, path) for name in names if name in file and name not in large
        }
        yield fields | {name: on_disk(hdf5_dataset(file, name, path), path) for name in large if name in file}


def chosen_rows(name: str, source: Any, index: np.ndarray, path: Path, key: Any) -> np.ndarray:
    """Rows of an array in memory, of a mapped one, or of one in the file of which a copy is mapped.

    `key` says which rows they are.
    """
    if is_mapped(source):
        if (np.diff(index) == 1).all():  # a piece of the file
            return source[index[0] : index[-1] + 1]
    elif isinstance(source, np.ndarray):
        return source[index]
    chunk = (getattr(source, "chunks", None) or (1,))[0]

    def fill(folder: Path) -> None:
        write_blocks(folder / "array.npy", gathered(source, index, chunk), source.shape[1:], source.dtype)

    origin = Origin.of_files(path, sorted(path.glob("*.npy"))) if path.is_dir() else Origin.of_files(path)
    return kept(origin, (key, name), fill)["array"]
