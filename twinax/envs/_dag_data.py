"""Data from which a graph is learned: read, checked, or simulated."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinax.envs._frozen_array import FrozenArray
from twinax.errors import TwinaxError
from twinax.npz_files import read_npz

LARGEST = 1e50
"""Numbers beyond this have squares whose sums are no longer safe in float64."""


class Observations(NamedTuple):
    """One sample in each row, one variable in each column, and what is known about them."""

    samples: FrozenArray
    names: tuple[str, ...]
    """What the variables are called."""
    graph: FrozenArray | None
    """The graph that the data came from, where it is known; entry [i, j] is True where i -> j."""


def simulated(num_nodes: int, num_samples: int, edges_per_node: float, seed: int) -> Observations:
    """A random graph with linear-Gaussian data; columns are in the order of the nodes.

    Nodes are put in a random order, and each pair is joined with the probability that makes `edges_per_node` edges for
    each node on average. Weights have the distribution N(0, 1), noise has N(0, 0.1), 0.1 being its variance.
    """
    rng = np.random.default_rng(seed)
    pairs = max(num_nodes - 1, 1) / 2  # for each node
    joined = rng.random((num_nodes, num_nodes)) < min(edges_per_node / pairs, 1.0)
    order = rng.permutation(num_nodes)
    graph = np.zeros((num_nodes, num_nodes), bool)
    graph[np.ix_(order, order)] = np.triu(joined, 1)
    weights = np.where(graph, rng.normal(size=graph.shape), 0.0)
    samples = rng.normal(scale=np.sqrt(0.1), size=(num_samples, num_nodes))
    for node in order:  # parents come first
        samples[:, node] += samples @ weights[:, node]
    return Observations(FrozenArray.of(samples), default_names(num_nodes), FrozenArray.of(graph))


def default_names(number: int) -> tuple[str, ...]:
    """The numbers of the nodes as their names."""
    return tuple(str(node) for node in range(number))


def given(data: Any, graph: Any, standardise: bool) -> Observations:
    """Data that a person gave: an array, a CSV file with or without a line of names, or an npz file with `samples`
    and, if they are known, `graph` and `names`. A `graph` that is given besides wins."""
    if isinstance(data, str | Path):
        where = str(data)
        samples, names, known = _read_npz(Path(data)) if where.endswith(".npz") else (*read_csv(Path(data)), None)
    else:
        where, names, known = "the data", None, None
        samples = _numbers(data.values if isinstance(data, FrozenArray) else data, where)
    _check_samples(samples, where, names)
    number = samples.shape[1]
    names = names or default_names(number)
    if len(names) != number:
        raise TwinaxError(f"{where} has {len(names)} names for {number} columns; give one for each")
    if standardise:
        samples = (samples - samples.mean(0)) / samples.std(0)
    known = known if graph is None else read_graph(graph)
    if known is not None:
        check_graph(known, number)
    return Observations(FrozenArray.of(samples), names, None if known is None else FrozenArray.of(known != 0))


def read_graph(graph: Any) -> np.ndarray:
    """A matrix that a person gave, as an array or as a CSV file of zeros and ones."""
    if isinstance(graph, FrozenArray):
        return graph.values
    return read_csv(Path(graph))[0] if isinstance(graph, str | Path) else _numbers(graph, "the true graph")


def check_graph(graph: np.ndarray, number: int) -> None:
    """One sentence about a matrix that is no graph over that many nodes."""
    if graph.shape != (number, number):
        raise TwinaxError(
            f"the true graph has the shape {graph.shape}, but the data have {number} variables; it must be "
            f"({number}, {number}), with 1 in row i and column j where i -> j"
        )
    if not np.isin(graph, (0, 1)).all() or np.diag(graph).any():
        raise TwinaxError("the true graph must have entries 0 and 1 only, and 0 on the diagonal")


def _check_samples(samples: np.ndarray, where: str, names: tuple[str, ...] | None) -> None:
    if samples.ndim != 2 or samples.shape[0] < 2 or samples.shape[1] < 2:
        raise TwinaxError(
            f"{where} has the shape {samples.shape}; it must be a table of at least 2 samples (rows) of at least 2 "
            "variables (columns)"
        )

    def name(column: int) -> str:
        return f"{column}" + (f" ('{names[column]}')" if names and column < len(names) else "")

    if (bad := np.argwhere(~(np.abs(samples) <= LARGEST))).size:
        row, column = bad[0]
        raise TwinaxError(
            f"{where} has {samples[row, column]} in row {row}, column {name(column)}, counted from 0; numbers must be "
            f"finite and below {LARGEST:g}, so leave such rows out"
        )
    if (flat := np.flatnonzero(np.ptp(samples, axis=0) == 0)).size:
        raise TwinaxError(
            f"{where} has the constant column {name(flat[0])}, counted from 0, which says nothing about edges; leave "
            "it out"
        )


def _numbers(values: Any, where: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TwinaxError(f"{where} is no table of numbers: {error}") from None


def _read_npz(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None, np.ndarray | None]:
    try:
        arrays = read_npz(path, ("samples", "names", "graph"))
    except OSError as error:
        raise TwinaxError(f"{path} cannot be read: {error.strerror or error}") from None
    if "samples" not in arrays:
        raise TwinaxError(f"{path} has no array 'samples'; it needs one, of a row for each sample")
    names = tuple(str(name) for name in arrays["names"].reshape(-1)) if "names" in arrays else None
    graph = _numbers(arrays["graph"], f"the graph in {path}") if "graph" in arrays else None
    return _numbers(arrays["samples"], str(path)), names, graph


def read_csv(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Numbers of a CSV file, and the names in its first row if it has any."""
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines()) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TwinaxError(f"{path} cannot be read as CSV: {getattr(error, 'strerror', None) or error}") from None
    return table_of(rows, str(path))


def table_of(rows: list[list[str]], where: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Numbers of rows of text, and the names in the first row if it has any."""
    names = None
    if rows and not all(_is_number(cell) for cell in rows[0]):
        names, rows = tuple(cell.strip() for cell in rows[0]), rows[1:]
    if not rows:
        raise TwinaxError(f"{where} has no rows of numbers")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]) or (names and len(row) != len(names)):
            wanted = len(names or rows[0])
            raise TwinaxError(f"{where} has {len(row)} columns in row {number}, counted from 0, and {wanted} before")
        if bad := [cell for cell in row if not _is_number(cell)]:
            raise TwinaxError(f"{where} has '{bad[0][:40]}' in row {number}, counted from 0, which is no number")
    return np.array([[float(cell) for cell in row] for row in rows]), names


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
