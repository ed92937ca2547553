"""`twinax data sachs`: the table and the network are read out of a package, which is not installed."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from twinax.envs import DAG

NAMES = "praf,pmek,plcg,PIP2,PIP3,p44/42,pakts473,PKA,PKC,P38,pjnk".split(",")
DATA, EDGES = (f"cdt/data/resources/cyto_full_{name}.csv" for name in ("data", "target"))
CELLS = np.random.default_rng(0).lognormal(size=(7466, 11)).round(2)


def files(**changed: str) -> dict[str, str]:
    """A package of the published shape: 18 edges, two columns of which make a cycle."""
    table = "\n".join([",".join(NAMES), *(",".join(map(str, row)) for row in CELLS.tolist())])
    pairs = [(NAMES[i], NAMES[(i + step) % 11]) for step in (1, 2) for i in range(9)]
    edges = "\n".join(['"Cause","Effect"', *(f'"{cause}","{effect}"' for cause, effect in pairs)])
    return {DATA: changed.get("data", table), EDGES: changed.get("edges", edges)}


def wheel(path, **changed: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files(**changed).items():
            archive.writestr(name, text)


def test_a_wheel_becomes_data_for_graphs(twinax):
    wheel("cdt.whl")
    shown = twinax("data", "sachs", "cdt.whl", "cells.npz")
    assert shown.code == 0 and "7,466 cells" in shown.out and "18 edges" in shown.out, shown.err
    env = DAG(data="cells.npz", standardise=True)
    assert env.num_nodes == 11 and env.observations.names == tuple(NAMES)
    np.testing.assert_allclose(DAG(data="cells.npz").observations.samples.values, CELLS)
    assert env.true_graph is not None and env.true_graph.sum() == 18 and env.true_graph[0, 1]
    shown = twinax("train", "env=dag", "env.data=cells.npz", "env.standardise=true", "trainer.mode=torch", *SMALL)
    assert shown.code == 0 and "expected_shd" in shown.out and "auroc" in shown.out, shown.err


SMALL = (
    "trainer.steps=1",
    "trainer.batch_size=2",
    "policy.hidden=[8]",
    "metrics.samples=4",
    "metrics.fifo=8",
    "run.dir=r",
)


def test_an_archive_of_its_source_will_do(twinax):
    with tarfile.open("cdt.tar.gz", "w:gz") as archive:
        for name, text in files().items():
            member = tarfile.TarInfo(f"cdt-0.6.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    assert "18 edges" in twinax("data", "sachs", "cdt.tar.gz").out
    assert DAG(data="sachs.npz").num_nodes == 11


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"data": "a,b\n1,2"}, "names no two columns"),
        ({"data": ",".join(NAMES) + "\n1,2"}, "is no table of 11 columns of numbers"),
        ({"data": ",".join(NAMES) + "\n" + ",".join(["1"] * 11)}, "there are 1 cells, 11 proteins and 18 edges"),
        ({"edges": '"Cause","Effect"\n"PKA","PKB"'}, "names no two columns"),
    ],
)
def test_another_table_is_refused(twinax, changed, sentence):
    wheel("cdt.whl", **changed)
    shown = twinax("data", "sachs", "cdt.whl")
    assert shown.code == 2 and sentence in shown.err and len(shown.err.splitlines()) == 1


def test_what_is_no_package_is_refused(twinax):
    Path("text.whl").write_text("nothing")
    with zipfile.ZipFile("other.whl", "w") as archive:
        archive.writestr("a", "b")
    for given, sentence in (
        (["text.whl"], "this is no package that can be read"),
        (["missing.whl"], "No such file or directory"),
        (["other.whl"], "this archive has no cdt/data/resources/cyto_full_data.csv"),
        (["other.whl", "out.csv"], "its name must end in .npz"),
        ([], "data sachs is followed by 0 names"),
    ):
        shown = twinax("data", "sachs", *given)
        assert shown.code == 2 and sentence in shown.err and len(shown.err.splitlines()) == 1
