"""Ready-made sinks against the real packages, offline; `make test-peers` has an environment for them.

Each trains, is stopped between two checkpoints, and goes on: one run there, with every row once.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from twinax import engines
from twinax.runs import CallbackFailed, resume, train

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from runs_probe import ProbeEngine, ProbeProblem

# Warnings of these packages are their own affair.
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]

QUIET = {"progress": False, "log_every": 5, "evaluate_every": 20, "checkpoint_every": 10, "steps": 40}
STEPS = [1, 5, 10, 15, 20, 25, 30, 35, 40]


class Filming(ProbeEngine):
    def evaluate(self):
        frames = np.zeros((2, 8, 8, 3), np.uint8)
        frames[1] = 255
        return {**super().evaluate(), "film/greedy": frames}


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "make_engine", Filming)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


def fail_at_25(run, step, metrics):
    if step == 25:
        raise ValueError("here")


def trained(name, run_dir):
    """A run that failed and went on, and what it knows of its sink."""
    with pytest.raises(CallbackFailed) as caught:
        train(ProbeProblem(), logger=(name,), run_dir=run_dir, callbacks=[fail_at_25], **QUIET)
    before = json.loads((run_dir / "sinks.json").read_text())
    run = resume(run_dir, ProbeProblem(), progress=False)
    assert json.loads((run_dir / "sinks.json").read_text()) == before, "it is the same run there"
    assert "notes" not in run.summary and "notes" not in caught.value.run.summary, run.summary.get("notes")
    (known,) = before.values()
    assert [row["step"] for row in run.metrics] == STEPS
    return run, known["id"]


def records(content):
    """The records of an offline run's file: after 7 bytes, LevelDB's log format in blocks of 32 KiB."""
    place, parts = 7, []
    while place + 7 <= len(content):
        if (left := -place % 2**15) and left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def test_wandb(tmp_path):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    run, id = trained("wandb", tmp_path / "run")
    files = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{id}/run-{id}.wandb"))
    assert len(files) == 2, "one offline part for each process, with one id"
    history, keys = [], set()
    for file in files:
        for data in records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                keys |= set(row)
                if "loss" in row:
                    history.append((record.history.step.num, json.loads(row["loss"])))
    assert history == [(row["step"], pytest.approx(row["loss"])) for row in run.metrics]
    for name in ("picture/target", "film/greedy"):
        assert any(key.startswith(name) for key in keys), sorted(keys)


def test_mlflow(tmp_path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    run, id = trained("mlflow", tmp_path / "run")
    client = MlflowClient()
    found = client.get_metric_history(id, "loss")
    assert sorted((one.step, one.value) for one in found) == [(row["step"], row["loss"]) for row in run.metrics]
    kept = client.get_run(id)
    assert kept.info.status == "FINISHED" and kept.data.params["trainer.steps"] == "40"
    assert kept.data.tags["twinax.status"] == "finished"
    assert [file.path for file in client.list_artifacts(id, "films")] == [
        f"films/greedy-{step:010d}.gif" for step in (20, 40)
    ]
    assert any("target" in file.path for file in client.list_artifacts(id, "images"))


def test_trackio(tmp_path):
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    run, id = trained("trackio", tmp_path / "run")
    logs = SQLiteStorage.get_logs("twinax", id)
    assert [(row["step"], row["loss"]) for row in logs if "loss" in row] == [
        (row["step"], pytest.approx(row["loss"])) for row in run.metrics
    ]
    assert [row["step"] for row in logs if "film/greedy" in row] == [20, 40]
    assert [row["step"] for row in logs if "picture/target" in row] == [20, 40]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_place_that_cannot_be_reached_costs_a_sentence(tmp_path, monkeypatch, name):
    package = pytest.importorskip(name)

    def unreachable(*_, **__):
        raise ConnectionError("no route to host")

    if name == "mlflow":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    else:  # these wait for a network that is gone, for minutes or for ever
        monkeypatch.setattr(package, "init", unreachable)
    run = train(ProbeProblem(), logger=(name,), run_dir=tmp_path / "run", **QUIET)
    assert run.summary["status"] == "finished" and len(run.summary["notes"]) == 1
