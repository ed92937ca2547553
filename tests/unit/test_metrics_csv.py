"""metrics.csv: the log as a table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from twinax import engines
from twinax.runs import Diverged, metrics_csv, resume, train
from twinax.runs.directory import RunDirectory

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", ProbeEngine)


def table(run_dir):
    with open(run_dir / "metrics.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_rows_of_the_log(tmp_path):
    run_dir = tmp_path / "run"
    run = train(ProbeProblem(), steps=12, evaluate_every=5, run_dir=run_dir, progress=False)
    rows = table(run_dir)
    assert [int(row["step"]) for row in rows] == list(range(1, 13))
    assert list(rows[0]) == list(dict.fromkeys(name for row in run.metrics for name in row))
    for line, row in zip(rows, run.metrics, strict=True):
        for name, text in line.items():
            assert (float(text) if text else None) == row.get(name), name
    assert [row["step"] for row in rows if row["total_variation"]] == ["5", "10", "12"]


def test_a_resumed_run_has_one_table(tmp_path):
    train(ProbeProblem(), steps=6, run_dir=tmp_path / "run", progress=False)
    resume(tmp_path / "run", ProbeProblem(), steps=9, progress=False)
    assert [int(row["step"]) for row in table(tmp_path / "run")] == list(range(1, 10))


def test_a_run_that_diverged_has_its_table(tmp_path):
    with pytest.raises(Diverged):
        train(ProbeProblem(bad_at=5), steps=20, chunk=1, run_dir=tmp_path / "run", progress=False)
    assert [int(row["step"]) for row in table(tmp_path / "run")] == [1, 2, 3, 4]


def test_seeds_have_columns_of_their_own(tmp_path):
    train(ProbeProblem(), steps=3, seeds=2, run_dir=tmp_path / "run", progress=False)
    last = RunDirectory(tmp_path / "run").read_metrics()[-1]
    shown = table(tmp_path / "run")[-1]
    assert [float(shown[f"grad_norm/{seed}"]) for seed in (0, 1)] == last["grad_norm"]
    assert "grad_norm" not in shown and float(shown["loss"]) == last["loss"]


def test_what_is_no_number_is_left_out():
    rows = [{"step": 1, "note": "a,b", "deep": [[1], [2]]}, {"step": 2, "more": 1.5}]
    assert metrics_csv.text(rows) == "step,more\n1,\n2,1.5\n"
    assert metrics_csv.text([]) == "\n"
