"""Spins that were observed, from which couplings are learned: read, checked, or simulated."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinax.envs._dag_data import read_csv
from twinax.envs._frozen_array import FrozenArray
from twinax.envs._spin_samples import sample_spins
from twinax.envs._spins import Ising, Spins, SpinSystem
from twinax.errors import TwinaxError
from twinax.npz_files import read_npz

SUMMED = 16
"""Systems of up to so many spins are all looked at: 2^16 are 65,536."""


class SpinData(NamedTuple):
    """Observed systems, and what is known about where they come from."""

    spins: FrozenArray
    """-1 and 1, (systems, places)."""
    couplings: FrozenArray | None
    """The true J, symmetric and with nothing on its diagonal, where it is known."""


def given_spins(data: Any, couplings: Any) -> SpinData:
    """Data that a person gave: an array or a file. True couplings that are given besides win over those of an npz."""
    where, known = ("the data", None) if not isinstance(data, Path) else (str(data), None)
    spins = data.values if isinstance(data, FrozenArray) else data
    if isinstance(data, Path):
        spins, known = read_spins(data)
    spins = _numbers(spins, where)
    _check_spins(spins, where)
    if couplings is not None:
        known = _read(couplings)[0] if isinstance(couplings, Path) else couplings
        known = known.values if isinstance(known, FrozenArray) else known
    if known is None:
        return SpinData(FrozenArray.of(spins.astype(np.int64)), None)
    return SpinData(FrozenArray.of(spins.astype(np.int64)), FrozenArray.of(_symmetric(known, spins.shape[1])))


@functools.lru_cache(maxsize=8)
def simulated_spins(world: SpinSystem, number: int, seed: int) -> np.ndarray:
    """Systems from a world's own law: exactly where all of them can be looked at, by parallel tempering otherwise."""
    if not isinstance(world, Ising | Spins):
        raise TwinaxError(
            f"{type(world).__name__} has no couplings of its own from which data could be simulated; give data of your "
            "own, proxy.data=FILE on the command line"
        )
    if world.places > SUMMED:
        return sample_spins(world, number, seed=seed)
    systems = every_system(world.places)
    paid = log_weights(systems, world.couplings(), world.pulls())
    chance = np.exp(paid - np.logaddexp.reduce(paid))
    drawn = np.random.default_rng(seed).choice(len(systems), number, p=chance / chance.sum())
    return systems[drawn].astype(np.int32)


@functools.lru_cache(maxsize=4)
def every_system(places: int) -> np.ndarray:
    """All systems of a few spins, as float64."""
    systems = 2.0 * (np.arange(2**places)[:, None] >> np.arange(places) & 1) - 1
    systems.flags.writeable = False
    return systems


def log_weights(systems: np.ndarray, couplings: np.ndarray, fields: np.ndarray) -> np.ndarray:
    """x^T J x + h^T x of each system."""
    return ((systems @ couplings + fields) * systems).sum(1)


def read_spins(path: Path) -> tuple[Any, Any]:
    """The spins of a file, and the true couplings where it has them."""
    spins, arrays = _read(path)
    if arrays is not None and "spins" not in arrays:
        raise TwinaxError(f"{path} has no array 'spins'; it needs one, of a row for each system")
    return (spins, None) if arrays is None else (arrays["spins"], arrays.get("couplings"))


def _read(path: Path) -> tuple[Any, dict[str, np.ndarray] | None]:
    """The one table of an npy or CSV file, or the arrays of an npz file."""
    try:
        if path.suffix == ".npz":
            return None, read_npz(path, ("spins", "couplings"))
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False), None
    except OSError as error:
        raise TwinaxError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise TwinaxError(f"{path} is no npy file of numbers: {error}") from None
    return read_csv(path)[0], None


def _numbers(values: Any, where: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TwinaxError(f"{where} is no table of numbers: {error}") from None


def _check_spins(spins: np.ndarray, where: str) -> None:
    if spins.ndim != 2 or spins.shape[0] < 2 or spins.shape[1] < 2:
        raise TwinaxError(
            f"{where} has the shape {spins.shape}; it must be a table of at least 2 systems (rows) of at least 2 "
            "spins (columns)"
        )
    if (bad := np.argwhere(np.abs(spins) != 1)).size:
        row, column = bad[0]
        bits = "; of zeros and ones, 2 x - 1 makes spins" if np.isin(spins, (0, 1)).all() else ""
        raise TwinaxError(
            f"{where} has {spins[row, column]:g} in row {row}, column {column}, counted from 0; spins are -1 or 1{bits}"
        )


def _symmetric(couplings: Any, places: int) -> np.ndarray:
    matrix = _numbers(couplings, "the matrix of true couplings")
    if matrix.shape != (places, places):
        raise TwinaxError(
            f"the matrix of true couplings has the shape {matrix.shape}, but the data have {places} spins; it must be "
            f"({places}, {places})"
        )
    if not np.isfinite(matrix).all():
        raise TwinaxError("the matrix of true couplings has entries that are not finite numbers")
    matrix = (matrix + matrix.T) / 2
    return matrix - np.diag(np.diag(matrix))
